"""Asks: requests from the server to the client. Each takes one of the session's places; its first answer counts."""

from typing import Protocol

from limpet.core.records import Answered, Refusal
from limpet.core.rules import asks
from limpet.stores.backend import GONE, Backend


class AskPart(Backend, Protocol):
    """The calls for asks."""

    async def ask(self, key: str, ask: str, stream: str) -> bool:
        """Register an ask of an exchange, or of the standalone stream. True if it is registered, now or before.

        False if `Limits.asks` of the session have no answer yet, or if REMEMBERED_ANSWERS of the stream have an answer
        and were not withdrawn. An answer is never forgotten to make room: the caller tries again until an ask is
        answered or withdrawn. `settle` forgets all asks of its exchange.

        Raises:
            SessionGone: the session is unknown or closed.
        """
        return await self.apply(key, GONE, asks.ask, ask, stream, self.me, self._limits.asks)

    async def answer(
        self, key: str, principal: str, ask: str, digest: bytes, payload: bytes
    ) -> Answered | Refusal:
        """Keep the first answer, free the place of its ask, send ANSWER.

        NO_SESSION if the session is unknown, closed or another principal's. After an ask was forgotten the digest of
        its answer is still compared: of the session's last REMEMBERED_ANSWERS answers, for REMEMBERED_SECONDS. So a
        client that did not receive our 202 may send its answer again. An ask that was forgotten without an answer is
        UNKNOWN.
        """
        now = self.now()
        return await self.apply(key, Refusal.NO_SESSION, asks.answer, principal, ask, digest, payload, now)

    async def take_answer(self, key: str, ask: str) -> bytes | None:
        """Return the answer of an ask, which stays; empty while the ask waits; None if it is unknown or forgotten."""
        return await self.apply(key, None, asks.take_answer, ask)

    async def withdraw(self, key: str, ask: str) -> None:
        """Forget an ask; its caller has taken the answer, or waits no longer. An unknown ask is ignored."""
        await self.apply(key, None, asks.withdraw, ask, self.now())
