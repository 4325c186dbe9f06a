"""Messages of the server that wait for a slow client: in order, bounded, sent by one task that lives only while it has work."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from holdfast.errors import HoldfastError
from holdfast.ports import Observer

Send = Callable[[str, dict[str, Any]], Awaitable[None]]
"""Sends a notification: method and params."""
_PROGRESS: Final = "notifications/progress"


class Outbox:
    """A queue of notifications.

    The code that receives from the server must not wait, so this queue limits a flood of messages: if it is full,
    progress replaces the newest progress that waits, and any other message is dropped and noted.
    """

    __slots__ = ("_limit", "_observer", "_send", "_sending", "_waiting")

    def __init__(self, send: Send, limit: int, observer: Observer) -> None:
        self._send = send
        self._limit = limit
        self._observer = observer
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._sending: asyncio.Task[None] | None = None

    def put(self, method: str, params: dict[str, Any]) -> None:
        """Take a message; never waits."""
        waiting = self._waiting
        if len(waiting) >= self._limit:
            if method != _PROGRESS or waiting[-1][0] != _PROGRESS:
                self._observer.note("upstream.dropped", method=method)
                return
            waiting.pop()
        waiting.append((method, params))
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._run())

    async def flush(self) -> None:
        """Wait until everything that was put so far is sent or could not be sent."""
        if self._sending is not None:
            await asyncio.shield(self._sending)

    def close(self) -> None:
        """Drop the messages that wait."""
        self._waiting.clear()
        if self._sending is not None:
            self._sending.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                method, params = self._waiting.popleft()
                try:
                    await self._send(method, params)
                except HoldfastError as error:
                    # The exchange has ended, the answer is plain JSON, or the store is away: the call itself goes on.
                    self._observer.note("upstream.undelivered", method=method, error=error)
        finally:
            self._sending = None
