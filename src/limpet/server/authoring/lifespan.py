"""The lifespan of a server: an asynchronous context manager around the time in which a process serves."""

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from limpet.engine.held_context import HeldContext
from limpet.errors import ConfigError, LifespanEnded
from limpet.server.functions.signature import place_of

Failed = Callable[[LifespanEnded], None]
"""Called if the lifespan ends while it is held."""


class Lifespan:
    """Entered once for all its holders, and left when the last holder leaves. `value` is the value that it yielded.

    A lifespan has several holders if several servers of one process include the same server. If it ends by itself
    (`held_context.py`), each of them is called.
    """

    __slots__ = ("_factory", "_held", "_holders", "_name", "value")

    def __init__(self, factory: Callable[..., Any] | None, server: object, name: str) -> None:
        self._factory = _bound(factory, server) if factory is not None else None
        self._name = name
        self._held: HeldContext | None = None
        self._holders: list[Failed] = []
        self.value: Any = None

    async def enter(self, failed: Failed) -> None:
        """Enter the lifespan, or wait until another holder has entered it. Raises the exception of the entry."""
        if self._factory is None:
            return
        self._holders.append(failed)
        try:
            if self._held is None or self._held.is_over:
                self._held = HeldContext(self._factory(), self._report_end)
            self.value = await self._held.entered()
        except BaseException:
            self._let_go(failed)
            raise

    async def leave(self, failed: Failed) -> None:
        """Leave the lifespan. The last holder waits for its end, and gets its exception."""
        held = self._let_go(failed)
        if held is not None:
            await held.leave()
            self.value = None

    def _let_go(self, failed: Failed) -> HeldContext | None:
        """Release one hold; return the lifespan, which ends now, if it was the last."""
        if failed in self._holders:
            self._holders.remove(failed)
        if self._holders or self._held is None:
            return None
        held, self._held = self._held, None
        held.let_go()
        return held

    def _report_end(self, error: BaseException | None) -> None:
        failure = LifespanEnded(self._name)
        failure.__cause__ = error
        for failed in tuple(self._holders):
            failed(failure)


def _bound(factory: Callable[..., Any], server: object) -> Callable[[], AbstractAsyncContextManager[Any]]:
    make: Callable[..., Any] = (
        asynccontextmanager(factory) if inspect.isasyncgenfunction(factory) else factory
    )
    takes_server = any(item.default is item.empty for item in inspect.signature(factory).parameters.values())

    def entered() -> AbstractAsyncContextManager[Any]:
        manager = make(server) if takes_server else make()
        if isinstance(manager, AbstractAsyncContextManager):
            return manager
        if inspect.iscoroutine(manager):
            manager.close()  # It will never be awaited.
        raise ConfigError(
            f"{place_of(factory)}: a lifespan is an `async def` that yields once, and this one returns "
            f"{type(manager).__name__}: what is before `yield` runs at the start, what is after it at the end"
        )

    return entered
