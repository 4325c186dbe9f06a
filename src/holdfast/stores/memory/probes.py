"""Probes in the memory store: the state of a stream, and whether its reader is alive."""

from holdfast.stores.base import Probed
from holdfast.stores.memory.session import MemorySession


class ProbeMethods:
    """probe, vouch."""

    _sessions: dict[str, MemorySession]
    replica: str

    async def probe(self, key: str, stream: str) -> Probed | None:
        """Return the state of a stream and its reader. No wake-up is sent, because there is no other replica."""
        session = self._sessions.get(key)
        exchange = session.exchanges.get(stream) if session else None
        if exchange is None:
            return None
        reader = self.replica if exchange.has_reader else ""
        return Probed(running=exchange.running, kept=exchange.kept, reader=reader, word=exchange.word)

    async def vouch(self, key: str, stream: str, *, alive: bool) -> None:
        """Record that the reader is alive, or that it is not."""
        session = self._sessions.get(key)
        exchange = session.exchanges.get(stream) if session else None
        if exchange is not None:
            exchange.word = exchange.word // 2 * 2 + 2 + alive
