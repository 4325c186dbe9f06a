"""Who reads a stream, and whether they are still there, inside the memory store."""

from holdfast.stores.base import Probed
from holdfast.stores.memory_session import Session


class ProbeMethods:
    """probe, vouch."""

    _sessions: dict[str, Session]
    replica: str

    async def probe(self, key: str, stream: str) -> Probed | None:
        """Return who reads a stream. There is no other replica to ring."""
        session = self._sessions.get(key)
        channel = session.channels.get(stream) if session else None
        if channel is None:
            return None
        reader = self.replica if channel.has_reader else ""
        return Probed(running=channel.running, kept=channel.kept, reader=reader, word=channel.word)

    async def vouch(self, key: str, stream: str, *, alive: bool) -> None:
        """Say whether the reader is there."""
        session = self._sessions.get(key)
        channel = session.channels.get(stream) if session else None
        if channel is not None:
            channel.word = channel.word // 2 * 2 + 2 + alive
