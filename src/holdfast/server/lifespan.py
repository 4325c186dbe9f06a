"""A server's lifespan: one asynchronous context manager around everything a process answers.

It is entered and left in one task of its own, so that cancel scopes and task groups inside it
work whoever starts and stops the engine.
"""

import asyncio
import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

Factory = Callable[..., AbstractAsyncContextManager[Any]]
"""Makes the context manager; takes the server, or nothing."""


class Lifespan:
    """Entered at most once at a time; `value` is what it yielded."""

    __slots__ = ("_factory", "_leave", "_task", "value")

    def __init__(self, factory: Callable[..., Any] | None, server: object) -> None:
        self._factory = _bound(factory, server) if factory is not None else None
        self._task: asyncio.Task[None] | None = None
        self._leave: asyncio.Event | None = None
        self.value: Any = None

    async def enter(self) -> None:
        """Enter and take the value; what entering raises is raised here."""
        if self._factory is None or self._task is not None:
            return
        loop = asyncio.get_running_loop()
        entered: asyncio.Future[Any] = loop.create_future()
        self._leave = asyncio.Event()
        self._task = loop.create_task(self._live(self._factory(), entered, self._leave))
        try:
            self.value = await entered
        except BaseException:
            self._task = None
            raise

    async def leave(self) -> None:
        """Leave, and wait for it; what leaving raises is raised here."""
        task, leave = self._task, self._leave
        if task is None or leave is None:
            return
        self._task = self._leave = None
        leave.set()
        await task
        self.value = None

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
