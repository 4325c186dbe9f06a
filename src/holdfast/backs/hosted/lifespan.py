"""The lifespan of a hosted object, entered once in a process.

`lowlevel.Server.run` enters the lifespan of its server, and there is one run for each upstream connection. But an author
who opens a database in the lifespan expects one database for the process. So we enter the lifespan once. While we serve,
the attribute `lifespan` of the server is replaced by one that returns the state of this entry. Afterwards the attribute
is restored.

A lifespan may hold a task group, and the task that entered a task group must leave it. So one task enters and leaves the
lifespan.
"""

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator
from typing import Any

from holdfast.errors import ConfigError, NotSent
from holdfast.ports import Observer


class Lifespan:
    """The lifespan of one `lowlevel.Server`. Call `start` first, `stop` last."""

    def __init__(self, server: Any, observer: Observer) -> None:
        self._server = server
        self._own = server.lifespan
        self._observer = observer
        self._leave = asyncio.Event()
        self._context: asyncio.Future[contextvars.Context] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Enter the lifespan.

        Raises:
            ConfigError: the author's code failed.
        """
        self._task = asyncio.get_running_loop().create_task(self._hold(), name="holdfast hosted lifespan")
        first: set[asyncio.Future[Any]] = {self._task, self._context}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not self._context.done():
            cancelled = asyncio.CancelledError("by its own code")
            error = cancelled if self._task.cancelled() else self._task.exception()
            raise ConfigError(f"the lifespan of {self._server.name} failed: {error!r}") from error

    @property
    def context(self) -> contextvars.Context:
        """A copy of the context inside of the lifespan: a run sees the context variables that the lifespan set.

        Raises:
            NotSent: the lifespan has ended.
        """
        if self._task is None or self._task.done():
            raise NotSent(f"the lifespan of {self._server.name} has ended")
        return self._context.result().copy()

    async def stop(self) -> None:
        """Leave the lifespan. An error of the author's code is noted."""
        self._leave.set()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _hold(self) -> None:
        try:
            async with self._own(self._server) as state:
                self._server.lifespan = _always(state)
                self._context.set_result(contextvars.copy_context())
                await self._leave.wait()
        except Exception as error:
            self._observer.note("hosted.lifespan_failed", error=error)
            if not self._context.done():
                raise
        finally:
            self._server.lifespan = self._own


def _always(state: Any) -> Any:
    """Return a lifespan that runs no code and yields this state."""

    @contextlib.asynccontextmanager
    async def entered(_server: Any) -> AsyncIterator[Any]:
        yield state

    return entered
