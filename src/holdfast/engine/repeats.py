"""Is a POST with the id and the bytes of one in flight a repeat of it, or a duplicate? Decision 10.

It is a repeat if the first POST's reader is lost: its connection is gone, or has been silent past one
keep-alive. Only the replica that has the reader can tell. So each replica applies the rule to its own readers,
and asks for the others through the store: `probe` rings the replica that has the reader, which says with
`vouch` whether the reader is there. The POST waits meanwhile, and no byte of an answer is sent.

Why the wait ends. The other replica answers, or the exchange ends, or that replica's lease ends: then the
store takes its readers away, and the reader is lost. A replica that renews its lease and never answers is
given the time after which it must have lost its lease, and then the reader is lost too.

How a replica tells that its reader is there, before one keep-alive has passed. It writes a keep-alive now. A
connection whose other side is gone breaks by it; where the other side vanished without a word (half open), the bytes
are not acknowledged, and the POST is held until they are or the reader was silent past one keep-alive. Where
acknowledgements cannot be seen (other servers and systems), a connection that does not break counts as there.

Why a repeat is not refused as a duplicate of itself. News of a break may still be on its way to the replica
that had the reader, so that one waits a moment before it vouches. A reader that it does not know is lost.
"""

import asyncio
from typing import Final

from holdfast.engine.reader import End, Reader
from holdfast.engine.runtime import Runtime
from holdfast.engine.session import Session
from holdfast.engine.writer import LogWriter
from holdfast.errors import StoreError
from holdfast.stores.base import Duplicate

_NEWS_SECONDS: Final = 0.1
"""How long the end of a connection may be on its way to us after its client has noticed it."""
_LOOK_SECONDS: Final = (0.02, 0.5)
"""How soon, and at last how often, one looks for the word of another replica."""


class Repeats:
    """Tells whether the reader of an exchange is lost, here and for other replicas."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._answering: set[tuple[str, str]] = set()

    async def is_lost(self, session: Session, duplicate: Duplicate) -> bool:
        """Tell whether the first POST's reader is lost. The exchange is in flight, or was when it was claimed again."""
        if not duplicate.has_reader:
            return True
        if _is_here(session, duplicate.stream):
            return await self._is_lost_here(session, duplicate.stream)
        return self._runtime.store.is_shared and await self._is_lost_elsewhere(session, duplicate.stream)

    async def _is_lost_here(self, session: Session, stream: str) -> bool:
        readers = session.readers.get(stream)
        if readers:
            return await self._is_lost_reader(readers[-1])
        # On a pooled connection the repeat overtakes the news of the break.
        exchange = session.exchanges.get(stream)
        writer = exchange.writer if exchange is not None else None
        return isinstance(writer, LogWriter) and await writer.is_abandoned_within(_NEWS_SECONDS)

    async def _is_lost_reader(self, reader: Reader) -> bool:
        """Wait until the reader has gone, was silent past one keep-alive, or has taken what was written to it now."""
        keep_alive = self._runtime.settings.times.keep_alive
        reader.nudge()
        while self._runtime.clock.now() - reader.delivered_at <= keep_alive:
            if await reader.ended.wait(_NEWS_SECONDS):
                return reader.end is not End.FINISHED
            if reader.is_taken is None or reader.is_taken() is not False:
                return False
        return True

    async def _is_lost_elsewhere(self, session: Session, stream: str) -> bool:
        store, now, key = self._runtime.store, self._runtime.clock.now, session.record.key
        times = self._runtime.settings.times
        deadline = now() + times.loop_patience + 2 * times.lease + times.sweep
        pause, longest = _LOOK_SECONDS
        probed = first = await store.probe(key, stream)
        while probed is not None and first is not None and probed.running:
            # One that we have and know nothing of was never given back.
            if probed.reader in {"", store.replica} or now() > deadline:
                return True
            if probed.word != first.word:
                return probed.word % 2 == 0
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)
            probed = await store.probe(key, stream)
        if probed is None or not probed.kept:
            # It has ended: its answer is kept a moment later, if it could not be written.
            await asyncio.sleep(_NEWS_SECONDS)
            probed = await store.probe(key, stream)
        return probed is not None and probed.kept

    async def answer(self, session: Session, stream: str) -> None:
        """Say to another replica whether a reader of ours is there."""
        key = session.record.key
        if (key, stream) in self._answering or not _is_here(session, stream):
            return
        self._answering.add((key, stream))
        try:
            alive = not await self._is_lost_here(session, stream)
            await self._runtime.store.vouch(key, stream, alive=alive)
        except StoreError:
            # The replica that asked rings again.
            return
        finally:
            self._answering.discard((key, stream))


def _is_here(session: Session, stream: str) -> bool:
    """Tell whether a stream has its reader in this process, or a POST that waits to become it."""
    exchange = session.exchanges.get(stream)
    writer = exchange.writer if exchange is not None else None
    waits = not isinstance(writer, LogWriter) or writer.has_reader
    return bool(session.readers.get(stream)) or (writer is not None and waits)
