"""A lifespan while a process serves: one task enters an asynchronous context manager, holds it and leaves it.

A lifespan may hold a task group or a cancel scope, and the task that entered one must leave it. So the tasks that start
and stop a server do not enter the lifespan themselves.

How a lifespan reports that it cannot go on. It ends: a task group inside of it cancels its body when one of its
background tasks fails, and the context manager ends with the error. It was not told to leave, so `ended` is called. A
background task outside of any group fails unnoticed: no part of the lifespan waits for it.
"""

import asyncio
import contextvars
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

Ended = Callable[[BaseException | None], None]
"""Called with the error of a lifespan that has ended by itself; None: it has none."""


class HeldContext:
    """Enters a context manager at once, and holds it until `leave`, or until it ends by itself."""

    __slots__ = ("_context", "_ended", "_entered", "_leave", "_task")

    def __init__(self, manager: AbstractAsyncContextManager[Any], ended: Ended) -> None:
        loop = asyncio.get_running_loop()
        self._ended = ended
        self._leave = asyncio.Event()
        self._entered: asyncio.Future[Any] = loop.create_future()
        self._context = contextvars.Context()
        self._task = loop.create_task(self._hold(manager), name="limpet lifespan")

    @property
    def is_over(self) -> bool:
        """True if it could not be entered, or has ended."""
        return self._task.done()

    @property
    def context(self) -> contextvars.Context:
        """A copy of the context inside of it."""
        return self._context.copy()

    async def entered(self) -> Any:
        """Wait until it is entered; return its value. Raises the exception of the entry.

        A caller that is cancelled does not cancel it: others may wait for it too.
        """
        await asyncio.wait({self._entered})
        return self._entered.result()

    def let_go(self) -> None:
        """Leave soon."""
        self._leave.set()

    async def leave(self) -> None:
        """Leave, and wait for its end. Raises the exception of the exit; none if it had ended by itself."""
        self._leave.set()
        await self._task

    async def _hold(self, manager: AbstractAsyncContextManager[Any]) -> None:
        error: BaseException | None = None
        try:
            async with manager as value:
                self._context = contextvars.copy_context()
                self._entered.set_result(value)
                await self._leave.wait()
        except BaseException as failed:
            if not self._entered.done():
                self._entered.set_exception(failed)
                return
            if self._leave.is_set() or _ends_the_loop(failed):
                raise
            error = failed
        if not self._leave.is_set():
            self._ended(error)


def _ends_the_loop(error: BaseException) -> bool:
    """True if the process ends, or the loop cancels all tasks: the lifespan has not failed."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | SystemExit)
