"""A replica that stops asks the others whether one of them stays (a message of the kind `leaving`, `messages.py`).

It may end the streams of its running calls early if a client that comes back finds a replica that serves it. A lease
does not prove that: it runs for some seconds after a kill, and the other replica may be stopping too, because one
signal often goes to all. So every living replica is asked, and the first that stays decides.

Why a wrong answer does no harm. No answer in time counts as no: the streams are served to their end here. A replica
that says yes and gets its own signal a moment later still serves resumes while it drains, and so does this one, as long
as it listens. A worker that does not listen was replaced by its parent, which has said that another worker stays
(`fronts/http/http1/start_and_stop.py`).
"""

import asyncio
from collections.abc import Callable
from typing import Final

from limpet.engine.inbox import Inbox
from limpet.engine.runtime import Runtime
from limpet.errors import StoreError

_STAYING_SECONDS: Final = 1.0
"""How long the others may take to say that they stay. SQLite passes messages on every 50 ms."""


class Succession:
    """Asks the other replicas whether one of them stays, and answers them."""

    def __init__(self, runtime: Runtime, inbox: Inbox, is_leaving: Callable[[], bool]) -> None:
        self._runtime = runtime
        self._inbox = inbox
        self._is_leaving = is_leaving
        inbox.answer("leaving", None, self._answer)

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
            reply = await self._inbox.ask(other, "leaving", seconds=_STAYING_SECONDS)
            return reply is not None and bytes(reply.body) == b"true"
        except StoreError:
            return False

    async def _answer(self, _: None) -> bool:
        return not self._is_leaving()
