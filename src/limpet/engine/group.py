"""Several engines in one process that start, drain and end together. Each keeps its own sessions and its own store."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import Context
from typing import Final

from msgspec.structs import replace

from limpet.config import Settings
from limpet.engine.engine import Engine
from limpet.engine.load import Load
from limpet.errors import LifespanEnded
from limpet.ports import Clock, Observer

_LIMITS: Final = (
    "headers",
    "header_seconds",
    "body_seconds",
    "connections",
    "memory",
    "threads",
)
_TIMES: Final = ("write_stall", "drain", "drain_notice")


class EngineGroup:
    """The members of an `Engine` that an HTTP server uses, for several engines."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        """Take engines by the names of their servers."""
        self._engines = dict(engines)
        self.settings: Settings = _widest([engine.settings for engine in engines.values()])
        """For connections, which belong to no engine until their request was read: the largest of each limit."""
        self.observer: Observer = next(iter(engines.values())).observer
        self.clock: Clock = next(iter(engines.values())).clock
        self.load: Load = Load(self.settings.limits)
        """One ledger for the process: all engines charge to it."""
        for engine in engines.values():
            engine.load.ledger = self.load.ledger
            engine.load.decoding = self.load.decoding
        self.store: _Stores = _Stores(engines.values())
        self.failed: str = ""
        """The name of the engine that could not start."""

    @property
    def leaving(self) -> bool:
        """True if the process is stopping."""
        return any(engine.leaving for engine in self._engines.values())

    @leaving.setter
    def leaving(self, value: bool) -> None:
        for engine in self._engines.values():
            engine.leaving = value

    @property
    def failure(self) -> LifespanEnded | None:
        """Why an engine stops, and all with it; None if none has failed."""
        failures = (engine.failure for engine in self._engines.values())
        return next((failure for failure in failures if failure is not None), None)

    def when_failed(self, stop: Callable[[], None]) -> None:
        """Let a front stop the process if the back of an engine cannot answer any more."""
        for engine in self._engines.values():
            engine.when_failed(stop)

    async def ensure_started(self, context: Context | None = None) -> None:
        """Start all. If one cannot start, the others end again, and its error is raised."""
        for name, engine in self._engines.items():
            try:
                await engine.ensure_started(context)
            except BaseException:
                self.failed = name
                await self.aclose()
                raise

    async def aclose(self) -> None:
        """End all that have started: let handlers finish for the drain time, and close all sessions of this process."""
        await self._all(engine.aclose() for engine in self._engines.values())

    async def leave(self) -> None:
        """Let handlers finish, then end every stream that a hosting server would wait for."""
        await self._all(engine.leave() for engine in self._engines.values())

    async def drain(self) -> None:
        """Wait until no call runs; each engine ends its remaining calls after its own drain time."""
        await self._all(engine.drain() for engine in self._engines.values())

    def drain_left(self) -> float:
        """Return the seconds of the longest drain time that are left."""
        return max(engine.drain_left() for engine in self._engines.values())

    async def end_work(self) -> None:
        """End every call that still runs, now."""
        await self._all(engine.end_work() for engine in self._engines.values())

    def end_standalone(self) -> None:
        """End the standalone streams."""
        for engine in self._engines.values():
            engine.end_standalone()

    def in_flight(self) -> list[str]:
        """Return the name of each request that a stop waits for."""
        return [name for engine in self._engines.values() for name in engine.in_flight()]

    @staticmethod
    async def _all(work: Iterable[Awaitable[None]]) -> None:
        """Do the same in all engines at the same time.

        An error of one does not stop the others; it is raised at the end.
        """
        ended = await asyncio.gather(*work, return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error


class _Stores:
    """The stores of the engines."""

    def __init__(self, engines: Iterable[Engine]) -> None:
        self._engines = tuple(engines)

    @property
    def is_shared(self) -> bool:
        """True if other processes serve the sessions of at least one engine."""
        return any(engine.store.is_shared for engine in self._engines)


def _widest(settings: list[Settings]) -> Settings:
    first = settings[0]
    limits = {name: max(getattr(one.limits, name) for one in settings) for name in _LIMITS}
    times = {name: max(getattr(one.times, name) for one in settings) for name in _TIMES}
    return replace(first, limits=replace(first.limits, **limits), times=replace(first.times, **times))
