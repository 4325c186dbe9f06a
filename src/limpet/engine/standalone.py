"""The standalone stream of a session: it carries the messages that belong to no request.

Every process may write it. A message goes into the store's log, and from there to the reader of the stream, wherever
that is; or straight to the connection that carries the whole session (stdio, a pair in memory).

The wait for a reader. A log has a bound. If a handler writes faster than its client reads, the oldest events would be
trimmed, and the client would see a gap. So `send` waits while the stream's reader in this process is more than half a
log behind (law 9). It waits at most until the reader is ended because its client does not read (`Times.write_stall`).
Nothing waits for a reader that is gone, idle, or connected to another process: their position is not known here. A
function that must not wait for a client, such as one that sends to several sessions, uses `append` (law 7).
"""

import asyncio
from collections.abc import Sequence

from limpet.core.stream import NewEvents, Position
from limpet.engine.outages import RETRY_SECONDS
from limpet.engine.pace import Pace
from limpet.engine.reader import Reader
from limpet.engine.runtime import Runtime
from limpet.engine.wake import one_pass
from limpet.errors import SessionGone, StoreError, StoreUnavailable
from limpet.stores.base import STANDALONE_FENCE

_BREATH = 64
"""Messages that a handler may send in a row."""


class Standalone:
    """Writes the standalone streams."""

    __slots__ = ("_runtime",)

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def send(self, key: str, message: bytes) -> None:
        """Send a message; wait while the reader of this stream is far behind. No effect if the session is gone.

        Raises:
            StoreUnavailable: the store was unavailable for `Limits.store_seconds`.
        """
        await self.append(key, [message], self._runtime.settings.limits.store_seconds)
        await self.room(key)

    async def append(self, key: str, messages: Sequence[bytes], patience: float | None = None) -> bool:
        """Send messages; do not wait for a reader. False: the session is gone, or the store refuses them.

        Raises:
            StoreUnavailable: the store was unavailable for `patience` seconds; None: wait until it is back.
        """
        session = self._runtime.sessions.get(key)
        if session is not None and session.duplex is not None:
            for message in messages:
                await session.duplex.send(message)
            return True
        tag = self._runtime.random.tag
        try:
            position = await self._store(key, [(tag(), message) for message in messages], patience)
        except StoreUnavailable:
            raise
        except (StoreError, SessionGone):
            self._runtime.observer.note("push.dropped", session=key[:8])
            return False
        if session is not None:
            session.pace = session.pace or Pace()
            session.pace.wrote(position, sum(map(len, messages)))
        if position.seq % _BREATH == 0:
            # A handler that never waits must let other tasks run, such as the reader of this stream.
            await one_pass()
        return True

    async def _store(self, key: str, events: NewEvents, patience: float | None) -> Position:
        now = asyncio.get_running_loop().time
        deadline = None if patience is None else now() + patience
        while True:
            try:
                return await self._runtime.store.append(key, "", STANDALONE_FENCE, events)
            except StoreUnavailable:
                if deadline is not None and now() >= deadline:
                    raise
                await asyncio.sleep(RETRY_SECONDS)

    async def room(self, key: str) -> None:
        """Wait until the reader of this stream in this process, if there is one, is not far behind."""
        while (late := self._late(key)) is not None:
            reader, pace = late
            reader.on_progress = pace.moved.set
            await pace.moved.next()

    def is_late(self, key: str) -> bool:
        """True if the reader of this stream in this process is far behind."""
        return self._late(key) is not None

    def may_wait(self, key: str) -> bool:
        """True if a message may have to wait for the client of this session."""
        session = self._runtime.sessions.get(key)
        return session is not None and (session.duplex is not None or self.is_late(key))

    def _late(self, key: str) -> tuple[Reader, Pace] | None:
        """Return the active reader of this process, if it is far behind, and how far."""
        session = self._runtime.sessions.get(key)
        if session is None or session.pace is None:
            return None
        for reader in session.readers.get(session.record.standalone, ()):
            if reader.active and reader.end is None and session.pace.measure(reader.cursor, session.limits):
                return reader, session.pace
        return None
