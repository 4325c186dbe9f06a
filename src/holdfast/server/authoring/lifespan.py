"""The lifespan of a server: an asynchronous context manager around the time in which a process serves.

A separate task enters and leaves it, so that cancel scopes and task groups inside it work even if different tasks
start and stop the engine.
"""

import asyncio
import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any


class Lifespan:
    """Entered once for all its holders, and left when the last holder leaves. `value` is the value that it yielded.

    A lifespan has several holders if several servers of one process include the same server.
    """

    __slots__ = ("_entered", "_factory", "_holders", "_leave", "_task", "value")

    def __init__(self, factory: Callable[..., Any] | None, server: object) -> None:
        self._factory = _bound(factory, server) if factory is not None else None
        self._task: asyncio.Task[None] | None = None
        self._entered: asyncio.Future[Any] | None = None
        self._leave = asyncio.Event()
        self._holders = 0
        self.value: Any = None

    async def enter(self) -> None:
        """Enter the lifespan, or wait until another holder has entered it. Raises the exception of the entry."""
        if self._factory is None:
            return
        self._holders += 1
        if self._task is None or self._entered is None:
            loop = asyncio.get_running_loop()
            self._entered, self._leave = loop.create_future(), asyncio.Event()
            self._task = loop.create_task(self._live(self._factory(), self._entered, self._leave))
        try:
            # Shielded: a holder that is cancelled must not cancel it for the others.
            self.value = await asyncio.shield(self._entered)
        except BaseException:
            self._let_go()
            raise

    async def leave(self) -> None:
        """Leave the lifespan. The last holder waits for its end, and gets its exception."""
        task = self._task
        if task is not None and self._let_go():
            await task
            self.value = None

    def _let_go(self) -> bool:
        """Release one hold; return True if it was the last."""
        self._holders -= 1
        if self._holders:
            return False
        self._leave.set()
        self._task = self._entered = None
        return True

    async def _live(
        self, manager: AbstractAsyncContextManager[Any], entered: asyncio.Future[Any], leave: asyncio.Event
    ) -> None:
        try:
            async with manager as value:
                entered.set_result(value)
                await leave.wait()
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)


def _bound(factory: Callable[..., Any], server: object) -> Callable[[], AbstractAsyncContextManager[Any]]:
    make: Callable[..., Any] = (
        asynccontextmanager(factory) if inspect.isasyncgenfunction(factory) else factory
    )
    takes_server = any(item.default is item.empty for item in inspect.signature(factory).parameters.values())
    return (lambda: make(server)) if takes_server else make
