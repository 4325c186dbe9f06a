"""Anonymous sessions make room for new ones, when the store has no more.

A principal's own longest idle session is evicted for its next one. Anonymous clients have no principal: so the address
that has the most idle sessions loses some first (`core/crowding.py`), and one address cannot lock out all others. A
process knows the sessions that it has opened; where the store is shared, each process evicts those.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from limpet.core.crowding import Crowd
from limpet.core.lifecycle import SessionInput
from limpet.engine.runtime import Runtime

_SECONDS: Final = 1.0
"""A session is idle if its client has been quiet for so long: the first request of a new one is on its way. Also the
time between two searches."""
_SHARE: Final = 1_024
"""How many places are made at a time: one, and one for each so many sessions of the limit. The sessions that get the
others are opened without a wait."""
_LOOKS: Final = 1_000
"""How many sessions one opening looks at; the next one goes on after them."""


class AnonymousSessions:
    """The anonymous sessions that this process has opened, by address."""

    def __init__(self, runtime: Runtime, close: Callable[[str, SessionInput], Awaitable[bool]]) -> None:
        self._runtime = runtime
        self._close = close
        self._addresses: dict[str, str] = {}
        """By session key; the oldest first."""
        self._crowd: Crowd[str] = Crowd(self._idle, _SECONDS)

    def opened(self, key: str, address: str) -> None:
        """Remember a session. One that another process has closed may be among them, so their number is limited."""
        self._addresses[key] = address
        if len(self._addresses) > self._runtime.settings.limits.sessions:
            del self._addresses[next(iter(self._addresses))]

    def closed(self, key: str) -> None:
        """Forget a session."""
        self._addresses.pop(key, None)

    def _idle(self) -> Iterator[tuple[str, str]]:
        local = self._runtime.sessions
        for key, address in self._addresses.items():
            session = local.get(key)
            if session is None or session.is_quiet:
                yield address, key

    async def make_room(self) -> bool:
        """Close idle sessions; False: none is idle."""
        closed, most = 0, 1 + self._runtime.settings.limits.sessions // _SHARE
        for _ in range(_LOOKS):
            if closed >= most or (key := self._crowd.next(self._runtime.clock.now())) is None:
                break
            # Another process may use it.
            status = await self._runtime.store.look(key)
            if status is None:
                self.closed(key)
            elif not (status.running or status.readers) and status.quiet >= _SECONDS:
                closed += await self._close(key, SessionInput.EVICTED)
        return closed > 0
