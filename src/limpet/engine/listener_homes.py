"""New homes for sessions whose clients only listen.

A request finds out that the home of its session is gone, and makes its replica the new one (`home.py`). A client that
only listens sends no request: it has the standalone stream open and waits for messages, which the server behind sends
to the home. So each replica looks after the streams that are open at it. If the home of such a session has no lease any
more, this replica becomes the home and lets its back begin at once, as the caller that opened the stream.

Why replicas do not compete. A standalone stream has one active reader in the whole cluster, and only its replica does
this. A request at another replica may be faster: `take_home` compares, and one of them becomes the home.

A session without an open stream costs nothing: the replica at which its client opens one finds the home gone then. One
read of the leases a second serves all streams of a process. At most `EACH_SWEEP` sessions are moved with each sweep,
because the server behind, or a machine that starts a child for each, should not get all sessions of a dead replica at
once.
"""

from collections.abc import Iterator
from typing import Final

from limpet.engine.caller import Caller
from limpet.engine.home import Homes
from limpet.engine.runtime import Runtime
from limpet.errors import LimpetError, SessionGone, StoreUnavailable
from limpet.stores.base import SessionRecord

EACH_SWEEP: Final = 10
_AGAIN_SECONDS: Final = 30.0
"""How long to wait after the back could not begin."""


class ListenerHomes:
    """Becomes the home of sessions that are listened to here and have lost theirs."""

    def __init__(self, runtime: Runtime, homes: Homes) -> None:
        self._runtime = runtime
        self._homes = homes
        self._unserved: dict[str, float] = {}
        """Sessions whose home this replica became, and whose back could not begin: when to try again."""
        self._moving: set[str] = set()

    async def sweep(self) -> None:
        """Move some sessions whose home is gone, in the background."""
        if not self._homes.may_take():
            return
        listening = {record.key: (record, caller) for record, caller in self._listening()}
        self._unserved = {key: at for key, at in self._unserved.items() if key in listening}
        now = self._runtime.clock.now()
        lost = [key for key, at in self._unserved.items() if at <= now]
        lost += await self._without_home(listening)
        for key in [key for key in lost if key not in self._moving][:EACH_SWEEP]:
            self._moving.add(key)
            self._runtime.spawn(self._move(*listening[key]))

    def _listening(self) -> Iterator[tuple[SessionRecord, Caller]]:
        """Return the sessions whose standalone stream is read here, and who opened it."""
        for session in self._runtime.sessions.values():
            for reader in session.readers.get(session.record.standalone, ()):
                if reader.active and reader.end is None and reader.caller is not None:
                    yield session.record, reader.caller

    async def _without_home(self, listening: dict[str, tuple[SessionRecord, Caller]]) -> list[str]:
        homes = {key: self._homes.home_of(record) for key, (record, _) in listening.items()}
        elsewhere = {key: home for key, home in homes.items() if home != self._runtime.store.replica}
        if not elsewhere:
            return []
        try:
            alive = await self._runtime.store.replicas()
        except StoreUnavailable:
            return []
        return [key for key, home in elsewhere.items() if home not in alive]

    async def _move(self, record: SessionRecord, caller: Caller) -> None:
        key, me = record.key, self._runtime.store.replica
        try:
            record = await self._homes.take_from(self._homes.home_of(record), key)
            self._unserved.pop(key, None)
            if record.home == me:
                await self._runtime.back.serve(record, caller)
        except SessionGone:
            # Closed by its client, or because the back cannot serve it here.
            return
        except LimpetError as error:
            self._unserved[key] = self._runtime.clock.now() + _AGAIN_SECONDS
            self._runtime.observer.note("session.unserved", session=key[:8], error=error)
        finally:
            self._moving.discard(key)
