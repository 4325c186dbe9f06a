"""Asks in the memory store: their number is limited, and the first answer counts."""

from holdfast.stores.base import Answered, Refusal, WakeUp
from holdfast.stores.memory.sessions import SessionTable
from holdfast.stores.rules import answered


class AskMethods(SessionTable):
    """ask, answer, take_answer, withdraw."""

    async def ask(self, key: str, ask: str, stream: str) -> bool:
        """Register an ask if the session is below its limit of asks."""
        session = self._owner(key)
        if ask in session.asks:
            return True
        if session.outstanding >= self._limits.asks:
            return False
        return session.add_ask(ask, stream)

    async def answer(
        self, key: str, principal: str, ask: str, digest: bytes, payload: bytes
    ) -> Answered | Refusal:
        """Keep the first answer."""
        session = self._live(key, principal)
        if session is None:
            return Refusal.NO_SESSION
        known = session.asks.get(ask)
        if known is None:
            return session.answered(ask, digest, self.now())
        if known.answer is not None:
            return answered(known.digest, digest)
        known.answer, known.digest = payload, digest
        session.outstanding -= 1
        self.wake(WakeUp.ANSWER, key, ask)
        return Answered.FIRST

    async def take_answer(self, key: str, ask: str) -> bytes | None:
        """Return an ask's answer."""
        session = self._sessions.get(key)
        known = session.asks.get(ask) if session else None
        return known.answer if known else None

    async def withdraw(self, key: str, ask: str) -> None:
        """Forget an ask."""
        if (session := self._sessions.get(key)) is not None:
            session.drop_ask(ask, self.now())
