"""The lifespan of a hosted object, entered once in a process.

`lowlevel.Server.run` enters the lifespan of its server, and there is one run for each upstream connection. But an
author who opens a database in the lifespan expects one database for the process. So we enter the lifespan once. While
we serve, the attribute `lifespan` of the server is replaced by one that returns the state of this entry. Afterwards the
attribute is restored.
"""

import contextlib
import contextvars
from collections.abc import AsyncIterator, Callable
from typing import Any

from limpet.engine.held_context import HeldContext
from limpet.errors import ConfigError, LifespanEnded, NotSent
from limpet.ports import Observer


class Lifespan:
    """The lifespan of one `lowlevel.Server`. Call `start` first, `stop` last.

    `failed` is called if the lifespan ends by itself (`held_context.py`).
    """

    def __init__(self, server: Any, observer: Observer, failed: Callable[[LifespanEnded], None]) -> None:
        self._server = server
        self._own = server.lifespan
        self._observer = observer
        self._failed = failed
        self._held: HeldContext | None = None

    async def start(self) -> None:
        """Enter the lifespan.

        Raises:
            ConfigError: the author's code failed.
        """
        held: HeldContext | None = None
        try:
            held = HeldContext(self._own(self._server), self._report_end)
            state = await held.entered()
        except BaseException as error:
            if held is not None and not held.is_over:
                # Not the lifespan was cancelled, but this start.
                held.let_go()
                raise
            self._observer.note("hosted.lifespan_failed", error=error)
            raise ConfigError(f"the lifespan of {self._server.name} failed: {error!r}") from error
        self._server.lifespan = _always(state)
        self._held = held

    @property
    def context(self) -> contextvars.Context:
        """A copy of the context inside of the lifespan: a run sees the context variables that the lifespan set.

        Raises:
            NotSent: the lifespan has ended.
        """
        if self._held is None or self._held.is_over:
            raise NotSent(str(LifespanEnded(self._server.name)))
        return self._held.context

    async def stop(self) -> None:
        """Leave the lifespan. An error of the author's code is noted."""
        held, self._held = self._held, None
        try:
            if held is not None:
                await held.leave()
        except Exception as error:  # noqa: BLE001 - an author's code
            self._observer.note("hosted.lifespan_failed", error=error)
        finally:
            self._server.lifespan = self._own

    def _report_end(self, error: BaseException | None) -> None:
        self._server.lifespan = self._own
        failure = LifespanEnded(self._server.name)
        failure.__cause__ = error
        self._failed(failure)


def _always(state: Any) -> Any:
    """Return a lifespan that runs no code and yields this state."""

    @contextlib.asynccontextmanager
    async def entered(_server: Any) -> AsyncIterator[Any]:
        yield state

    return entered
