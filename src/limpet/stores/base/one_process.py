"""The replicas part for a store of one process: ready to inherit.

There is one replica. It owns everything, so it has no orphans to reap. Its listeners end with it, so no closing is left
to report. Requests that it forwards to itself, announcements and secrets are kept in memory.
"""

from collections import OrderedDict
from collections.abc import Callable
from heapq import nsmallest
from math import inf
from typing import Final, Protocol, Self

from limpet.core.records import Closed, Orphan, Status, WakeUp
from limpet.ports import Clock, SystemClock
from limpet.stores.base.overview import Listing
from limpet.stores.base.replicas import Announced, Forwarded, is_inbox_full
from limpet.stores.base.wakeups import OnWake, silent

_ANNOUNCEMENTS: Final = 1_000
"""Announcements kept; the oldest are deleted first."""


class _Sessions(Protocol):
    """The calls of a store from which `OneProcess` makes the listing."""

    async def sessions(self) -> list[str]: ...

    async def look(self, key: str) -> Status | None: ...


class OneProcess:
    """One replica, and the common members of stores for one process: their clock, `now`, and their wake-ups, `wake`."""

    is_shared = False
    replica: str = "this process"

    def __init__(self, clock: Clock | None = None) -> None:
        self.now: Callable[[], float] = (clock or SystemClock()).now
        self.wake: OnWake = silent
        self._inbox: OrderedDict[str, bytes] = OrderedDict()
        self._events: OrderedDict[str, tuple[int, bytes]] = OrderedDict()
        """Announcements by name, each with its number."""
        self._announced = 0
        self._secrets: dict[str, tuple[bytes, float]] = {}
        """Each with the time until which it is kept."""
        self._leased = False

    def bind(self, on_wake: OnWake) -> None:
        self.wake = on_wake

    async def prove(self) -> None:
        """Do nothing: memory is always writable. A store that writes elsewhere overrides this."""

    def twin(self) -> Self:
        """Return this store: no other process waits for the end of its lease."""
        return self

    async def sessions_after(self: _Sessions, after: str, *, limit: int) -> Listing:
        keys = nsmallest(limit, filter(after.__lt__, await self.sessions()))
        found = [status for key in keys if (status := await self.look(key)) is not None]
        return Listing(found, keys[-1] if len(keys) == limit else "")

    async def renew(self, seconds: float) -> int:  # noqa: ARG002
        """Take the lease, which never ends by itself."""
        self._leased = True
        return 1

    async def release(self) -> None:
        self._leased = False

    async def replicas(self) -> dict[str, float]:
        """Return this replica, while it holds its lease."""
        return {self.replica: inf} if self._leased else {}

    async def orphans(self) -> list[Orphan]:
        return []

    async def reap(self, orphan: Orphan, terminal: bytes, *, tag: int) -> bool:  # noqa: ARG002
        return False

    async def forward(self, replica: str, name: str, payload: bytes, *, seconds: float) -> bool:  # noqa: ARG002
        """Put a request into the own inbox. False for any other replica."""
        if replica != self.replica or not self._leased:
            return False
        if name not in self._inbox:
            if is_inbox_full(self._inbox.values(), payload):
                return False
            self._inbox[name] = payload
        self.wake(WakeUp.FORWARD, "", "")
        return True

    async def inbox(self) -> list[Forwarded]:
        return [Forwarded(name, payload) for name, payload in self._inbox.items()]

    async def remove_forwarded(self, name: str, *, replica: str = "") -> bool:
        return replica in {"", self.replica} and self._inbox.pop(name, None) is not None

    async def announce(self, name: str, event: bytes) -> None:
        """Keep an event once, and send NEWS."""
        if name in self._events:
            return
        self._announced += 1
        self._events[name] = self._announced, event
        if len(self._events) > _ANNOUNCEMENTS:
            self._events.popitem(last=False)
        self.wake(WakeUp.NEWS, "", "")

    async def announced(self, after: str) -> Announced:
        if not after:
            return Announced(str(self._announced), [])
        events = [event for number, event in self._events.values() if number > int(after)]
        return Announced(str(self._announced), events, len(events) < self._announced - int(after))

    async def secret(self, name: str, candidate: bytes, *, seconds: float) -> bytes:
        now = self.now()
        kept = {one: secret for one, secret in self._secrets.items() if secret[1] > now}
        value, _ = kept.get(name, (candidate, 0.0))
        self._secrets = {**kept, name: (value, now + seconds)}
        return value

    async def post_notice(self, notice: bytes, *, seconds: float) -> list[bytes]:  # noqa: ARG002
        """Return none: there is no other replica."""
        return []

    async def closing_reported(self, closed: Closed) -> None:
        """Do nothing."""

    async def unreported_closings(self) -> list[Closed]:
        return []
