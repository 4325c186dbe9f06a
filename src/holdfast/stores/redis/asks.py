"""Asks: each has a place, the first answer counts, and the replica that asks is woken up (lua/asks.lua)."""

from holdfast.errors import SessionGone
from holdfast.stores.base import Answered, Refusal, WakeUp
from holdfast.stores.redis.core import Core


class AskMethods(Core):
    """ask, answer, take_answer, withdraw."""

    async def ask(self, key: str, ask: str, stream: str) -> bool:
        """Register an ask if the session has a place for it."""
        reply = await self.run("ask", key, ask, stream, self._limits.asks)
        if reply[0] == b"gone":
            raise SessionGone
        if reply[0] != b"ok":
            return False
        self.work_in(key).asks[ask] = stream
        return True

    async def answer(
        self, key: str, principal: str, ask: str, digest: bytes, payload: bytes
    ) -> Answered | Refusal:
        """Keep the first answer."""
        reply = await self.run("answer", key, principal, ask, digest, payload)
        if reply[0] == b"none":
            return Refusal.NO_SESSION
        verdict = Answered(reply[0].decode())
        if verdict is Answered.FIRST:
            self._on_wake(WakeUp.ANSWER, key, ask)
        return verdict

    async def take_answer(self, key: str, ask: str) -> bytes | None:
        """Return an ask's answer."""
        reply = await self.run("take", key, ask)
        if reply[0] != b"ok":
            return None
        self._asked(key, ask)
        payload: bytes = reply[2]
        return payload

    async def withdraw(self, key: str, ask: str) -> None:
        """Forget an ask."""
        self._asked(key, ask)
        await self.run("withdraw", key, ask)

    def _asked(self, key: str, ask: str) -> None:
        work = self._work.get(key)
        if work is not None:
            work.asks.pop(ask, None)
            self.forget_if_idle(key)
