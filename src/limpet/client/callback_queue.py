"""Messages for a callback that may be slow: one at a time, in order, in a bounded queue that drops the oldest."""

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from limpet.client.cache import memory_of
from limpet.ports import Observer

Callback = Callable[..., Awaitable[None] | None]


class CallbackQueue:
    """Calls a callback; the caller of `put` never waits.

    A plain function is called at once, a coroutine one at a time.
    """

    __slots__ = ("_behind", "_bytes", "_callback", "_most_bytes", "_observer", "_task", "_waiting")

    def __init__(self, callback: Callback, behind: int, most_bytes: int, *, observer: Observer) -> None:
        self._callback = callback
        self._observer = observer
        self._behind = behind
        self._most_bytes = most_bytes
        self._waiting: deque[tuple[int, tuple[Any, ...]]] = deque()
        """Messages with their memory."""
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None

    def put(self, *message: Any) -> None:
        """Call the callback with a message, or queue the message."""
        if self._task is not None:
            size = memory_of(message)
            self._waiting.append((size, message))
            self._bytes += size
            # The newest one stays in any case.
            while len(self._waiting) > max(1, self._behind) or (
                self._bytes > self._most_bytes and len(self._waiting) > 1
            ):
                self._oldest()
            return
        turn = self._call(message)
        if turn is not None:
            self._task = asyncio.get_running_loop().create_task(self._run(turn))

    async def drain(self) -> None:
        """Wait until the callback has received every message."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def close(self) -> None:
        """Stop calling back."""
        self._waiting.clear()
        self._bytes = 0
        if self._task is not None:
            self._task.cancel()

    def _oldest(self) -> tuple[Any, ...]:
        size, message = self._waiting.popleft()
        self._bytes -= size
        return message

    def _call(self, message: tuple[Any, ...]) -> Awaitable[None] | None:
        try:
            turn = self._callback(*message)
        except Exception as error:  # noqa: BLE001 - a callback that fails must not end the connection
            self._observer.note("client.callback_failed", error=error)
            return None
        return turn if inspect.isawaitable(turn) else None

    async def _run(self, turn: Awaitable[None] | None) -> None:
        try:
            while True:
                if turn is not None:
                    await self._finish(turn)
                if not self._waiting:
                    return
                turn = self._call(self._oldest())
        finally:
            self._task = None

    async def _finish(self, turn: Awaitable[None]) -> None:
        try:
            await turn
        except Exception as error:  # noqa: BLE001 - as above
            self._observer.note("client.callback_failed", error=error)
