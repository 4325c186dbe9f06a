"""Turns in the memory store: the calls of a session run one after another, in the order of their fences."""

from holdfast.stores.base import WakeUp
from holdfast.stores.memory.sessions import SessionTable


class TurnMethods(SessionTable):
    """turn, hold_turn, pass_turn."""

    async def turn(self, key: str, stream: str, fence: int) -> bool:
        """Return True if a call may start."""
        session, _ = self._writable(key, stream, fence)
        return session.first() == stream

    async def hold_turn(self, key: str, stream: str, fence: int) -> None:
        """Keep the turn of a call after its end."""
        session, _ = self._writable(key, stream, fence)
        session.held[stream] = fence

    async def pass_turn(self, key: str, stream: str, fence: int) -> None:
        """End a turn, and send TURN for the next call."""
        session = self._sessions.get(key)
        if session is None:
            return
        if session.held.get(stream) == fence:
            del session.held[stream]
        if (following := session.first()) is not None:
            self.wake(WakeUp.TURN, key, following)
