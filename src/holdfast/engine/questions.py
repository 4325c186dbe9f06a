"""Questions of operators to the other replicas of the store, and the answers of this one.

A question travels as a message of the inbox (`inbox.py`), and so does its answer. Both are JSON that the engine does
not read: the layer that shows the answers decides which questions exist. A question is about this moment, so it is
not repeated. If the store is unavailable, or the other replica does not answer in time, there is no answer.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from holdfast.engine.inbox import Inbox
from holdfast.engine.replica_messages import Answer, Question, Reply
from holdfast.engine.runtime import Runtime
from holdfast.errors import StoreError

_KEPT_SECONDS: Final = 5.0
"""How long a question or an answer stays in an inbox."""
NOTHING: Final = b"null"
"""The answer of a replica that is alive and cannot say more."""


class Questions:
    """Asks other replicas, and answers them if `answer` is set."""

    def __init__(self, runtime: Runtime, inbox: Inbox) -> None:
        self._runtime = runtime
        self._inbox = inbox
        self.answer: Callable[[bytes], Awaitable[bytes]] | None = None
        """Returns the answer to a question as JSON. None: this process has no admin surface, and answers `NOTHING`."""
        inbox.handlers[Question] = self._take

    def __repr__(self) -> str:
        return f"<Questions {'' if self.answer else 'not '}answered>"

    async def ask(self, replica: str, question: bytes, *, seconds: float) -> bytes | None:
        """Return the answer of a replica; None: it has not answered in time, or its lease has ended.

        Raises:
            StoreError: the question could not be sent.
        """
        name = self._runtime.random.token(12)
        message = Question(self._runtime.store.replica, msgspec.Raw(question))
        with self._inbox.expecting(name) as replied:
            if not await self._inbox.send(replica, name, message, seconds=_KEPT_SECONDS):
                return None
            await asyncio.wait([replied], timeout=seconds)
            verdict = replied.result() if replied.done() else None
        return bytes(verdict.answer) if isinstance(verdict, Answer) else None

    async def _take(self, name: str, message: Question, payload: bytes) -> None:  # noqa: ARG002 - the signature of a handler
        await self._inbox.remove(name)
        answer = NOTHING if self.answer is None else await self.answer(bytes(message.question))
        reply = Reply(name, Answer(msgspec.Raw(answer)))
        try:
            await self._inbox.send(message.reply_to, f"re.{name}", reply, seconds=_KEPT_SECONDS)
        except StoreError:
            # The operator sees that this replica does not answer.
            return
