"""Questions to the other replicas of the store about this moment: of operators, and of a replica that stops.

A question travels as a message of the inbox (`inbox.py`), and so does its answer. It is about this moment, so it is
not repeated. If the store is unavailable, or the other replica does not answer in time, there is no answer.

**Operators.** Question and answer are JSON that the engine does not read: the layer that shows the answers decides which
questions exist.

**A replica that stops** asks whether another one stays. It may end the streams of its running calls early, and one of several
workers may stop accepting connections; both are right only if a client that comes back finds a replica that serves it. A lease
does not prove that: it runs for some seconds after a kill, and the other replica may be stopping too, because one signal
often goes to all. So every living replica is asked, and the first that stays decides.

Why a wrong answer does no harm. No answer in time counts as no: the streams are served to their end here. A replica
that says yes and gets its own signal a moment later still serves resumes while it drains, and so does this one, as long
as it listens. A worker does not listen beside a sibling that stays, so it waits a moment before it asks
(`fronts/http/listener/service.py`): a signal for all workers has reached all of them by then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from holdfast.engine.inbox import Inbox
from holdfast.engine.replica_messages import Answer, Leaving, Question, Staying
from holdfast.engine.runtime import Runtime
from holdfast.errors import StoreError

_STAYING_SECONDS: Final = 1.0
"""How long the others may take to say that they stay. SQLite passes messages on every 50 ms."""
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
        message = Question(self._runtime.store.replica, msgspec.Raw(question))
        verdict = await self._inbox.ask(replica, message, seconds=seconds)
        return bytes(verdict.answer) if isinstance(verdict, Answer) else None

    async def _take(self, name: str, message: Question, payload: bytes) -> None:  # noqa: ARG002 - the signature of a handler
        await self._inbox.remove(name)
        answer = NOTHING if self.answer is None else await self.answer(bytes(message.question))
        await self._inbox.answer(name, message.reply_to, Answer(msgspec.Raw(answer)))


class Succession:
    """Asks the other replicas whether one of them stays, and answers them."""

    def __init__(self, runtime: Runtime, inbox: Inbox, is_leaving: Callable[[], bool]) -> None:
        self._runtime = runtime
        self._inbox = inbox
        self._is_leaving = is_leaving
        inbox.handlers[Leaving] = self._take

    def __repr__(self) -> str:
        return f"<Succession, {'leaving' if self._is_leaving() else 'staying'}>"

    async def exists(self) -> bool:
        """True if another replica of the store has just said that it stays. Takes at most about a second."""
        store = self._runtime.store
        if not store.is_shared:
            return False
        asked: list[asyncio.Task[bool]] = []
        try:
            async with asyncio.timeout(_STAYING_SECONDS):
                others = [name for name in await store.replicas() if name != store.replica]
                asked += [self._runtime.begin(self._stays(other)) for other in others]
                for answered in asyncio.as_completed(asked):
                    if await answered:
                        return True
        except (StoreError, TimeoutError):
            # Without the store, no replica can serve a resume.
            return False
        finally:
            for task in asked:
                task.cancel()
        return False

    async def _stays(self, other: str) -> bool:
        try:
            said = await self._inbox.ask(
                other, Leaving(self._runtime.store.replica), seconds=_STAYING_SECONDS
            )
        except StoreError:
            return False
        return isinstance(said, Staying) and said.stays

    async def _take(self, name: str, message: Leaving, payload: bytes) -> None:  # noqa: ARG002 - the signature of a handler
        await self._inbox.remove(name)
        await self._inbox.answer(name, message.reply_to, Staying(not self._is_leaving()))
