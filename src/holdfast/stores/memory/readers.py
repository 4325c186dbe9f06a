"""Readers in the memory store: each stream has one at a time, and a new one replaces it."""

from holdfast.core.stream import Position
from holdfast.stores.base import Attached, Probed, Refusal
from holdfast.stores.memory.sessions import SessionTable


class ReaderMethods(SessionTable):
    """attach, detach, probe, vouch."""

    replica: str

    async def attach(
        self,
        key: str,
        principal: str,
        stream: str | None,
        cursor: Position | None,
        *,
        since: int | None = None,
    ) -> Attached | Refusal:
        """Make the caller the reader of the stream. It replaces the reader before it."""
        session = self._live(key, principal)
        if session is None:
            return Refusal.NO_SESSION
        standalone = stream is None or stream == session.record.standalone
        exchange = session.standalone() if standalone else session.exchanges.get(stream or "")
        if exchange is None or exchange.log is None:
            if exchange is not None and exchange.running:
                return Refusal.UNBEGUN
            return Refusal.WITHDRAWN if session.has_given_back(stream or "") else Refusal.UNRESUMABLE
        log = exchange.log
        if cursor is not None and not log.proves(cursor):
            return Refusal.UNRESUMABLE
        if cursor is None:
            cursor = log.delivered if standalone else log.start
        if since is not None:
            if exchange.has_reader and exchange.generation != since:
                return Refusal.BUSY
            cursor = max(cursor, log.delivered)
            if exchange.has_reader:
                return Attached(session.record, since, cursor, returned=False, finished=log.is_end(cursor))
        returned = session.client_seen(self.now())
        session.readers += not exchange.has_reader
        exchange.has_reader = True
        exchange.generation += 1
        return Attached(session.record, exchange.generation, cursor, returned, log.is_end(cursor))

    async def detach(
        self, key: str, stream: str, generation: int, cursor: Position | None, *, broke: bool
    ) -> bool:
        """Remove the reader of a stream. If it broke and no reader is left, the grace period starts."""
        session = self._sessions.get(key)
        exchange = session.exchanges.get(stream) if session else None
        if (
            session is None
            or exchange is None
            or exchange.generation != generation
            or not exchange.has_reader
        ):
            return False
        if exchange.left(cursor):
            session.release(exchange)
        is_detached = session.reader_lost(self.now(), broke=broke)
        self._schedule(session)
        return is_detached

    async def probe(self, key: str, stream: str) -> Probed | None:
        """Return the state of a stream and its reader. No wake-up is sent, because there is no other replica."""
        session = self._sessions.get(key)
        exchange = session.exchanges.get(stream) if session else None
        if session is not None and session.has_given_back(stream):
            return Probed(running=False, kept=False, reader="", word=0, withdrawn=True)
        if exchange is None:
            return None
        reader = self.replica if exchange.has_reader else ""
        return Probed(running=exchange.running, kept=exchange.kept, reader=reader, word=exchange.word)

    async def vouch(self, key: str, stream: str, *, alive: bool) -> None:
        """Record that the reader is alive, or that it is not."""
        exchange = self._exchange(key, stream)
        if exchange is not None:
            exchange.word = exchange.word // 2 * 2 + 2 + alive
