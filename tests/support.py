"""How asynchronous tests run: in real time under a bound, or in virtual time that jumps whenever every task waits.

Virtual time moves only when every task waits, so an hour's timeout costs nothing and never fires early.
"""

import asyncio
import functools
import selectors
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, Final, ParamSpec, Protocol, TypeVar, TypeVarTuple

from typing_extensions import override

BOUND: Final = 240.0
"""Seconds for a test, and for a condition of it. A test that passes ends long before; a loaded machine can be forty times slower."""
STUCK_AFTER: Final = 30.0

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
AsyncTest = Callable[P, Coroutine[Any, Any, None]]


class Stuck(Exception):
    """Every task of a virtual test waits, and no timer or thread is left that could wake one."""


def async_test_within(seconds: float) -> Callable[[AsyncTest[P]], Callable[P, None]]:
    """Run a coroutine test in real time; it fails after so many seconds."""

    def decorate(test: AsyncTest[P]) -> Callable[P, None]:
        @functools.wraps(test)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            async def bounded() -> None:
                async with asyncio.timeout(seconds):
                    await test(*args, **kwargs)

            asyncio.run(bounded(), debug=False)

        return run

    return decorate


def async_test(test: AsyncTest[P]) -> Callable[P, None]:
    """Run a coroutine test in real time, bounded by four minutes."""
    return async_test_within(BOUND)(test)


def virtual_test_within(seconds: float) -> Callable[[AsyncTest[P]], Callable[P, None]]:
    """Run a coroutine test in virtual time; it fails after so many virtual seconds.

    For tests in which some timer always runs, so that `Stuck` is never raised.
    """

    def decorate(test: AsyncTest[P]) -> Callable[P, None]:
        @functools.wraps(test)
        async def bounded(*args: P.args, **kwargs: P.kwargs) -> None:
            async with asyncio.timeout(seconds):
                await test(*args, **kwargs)

        return virtual_test(bounded)

    return decorate


def virtual_test(test: AsyncTest[P]) -> Callable[P, None]:
    """Run a coroutine test in virtual time. Raises `Stuck` when nothing can ever happen again."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(debug=False, loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


Condition = Callable[[], bool] | Callable[[], Awaitable[bool]]


async def until(
    condition: Condition, seconds: float = BOUND, *, every: float = 0.005, explain: Callable[[], str] = str
) -> None:
    """Return as soon as `condition()` is true, and let the loop run meanwhile; fail when it is not true in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        found = condition()
        if await found if isinstance(found, Awaitable) else found:
            return
        assert loop.time() < deadline, f"the condition is still false after {seconds:g} s {explain()}"
        await asyncio.sleep(every)


async def stays(condition: Condition, seconds: float) -> None:
    """Fail if `condition()` is false at any time in so many seconds. Real time is the subject: no event reports that nothing happens."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while loop.time() < deadline:
        found = condition()
        assert await found if isinstance(found, Awaitable) else found, "the condition became false"
        await asyncio.sleep(min(0.01, seconds))


def wait_until(
    condition: Callable[[], bool], seconds: float = BOUND, *, explain: Callable[[], str] = str
) -> None:
    """Return as soon as `condition()` is true; fail when it is not true in time. For tests without a loop."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition is still false after {seconds:g} s {explain()}"
        time.sleep(0.02)


class Closed(Protocol):
    """What has an end of its own: an engine, a store, a client."""

    async def aclose(self) -> None: ...


@asynccontextmanager
async def all_closed(*opened: Closed) -> AsyncIterator[None]:
    """Close each of them at the end, the last one first, also if the body fails. For one of them there is `contextlib.aclosing`."""
    async with AsyncExitStack() as stack:
        for one in opened:
            await stack.enter_async_context(aclosing(one))
        yield


class LoopClock:
    """The loop's time as the Clock port: in a virtual test, virtual. Its date is a million seconds on."""

    def now(self) -> float:
        """Return the loop's time."""
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        """Return the loop's time as a date."""
        return self.now() + 1_000_000.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock starts at zero and jumps to the next timer when it is idle.

    While work runs in a thread (`run_in_executor`) time stands still, so no timer overtakes it.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._outside = 0
        super().__init__(_JumpingSelector(self))

    @override
    def time(self) -> float:
        return self._now

    def idle(self, timeout: float) -> None:
        self._now += timeout

    @property
    def waits_for_threads(self) -> bool:
        return self._outside > 0

    @override
    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        job = super().run_in_executor(executor, func, *args)
        self._outside += 1
        job.add_done_callback(self._returned)
        return job

    def _returned(self, _job: asyncio.Future[Any]) -> None:
        self._outside -= 1

    @override
    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        # Newer Pythons bound this by a timer, which would fire at once here.
        self._outside += 1
        await super().shutdown_default_executor()
        self._outside -= 1


class _JumpingSelector(selectors.DefaultSelector):
    """Looks for real events first; without one, moves the loop's clock instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is not None and not self._loop.waits_for_threads:
            self._loop.idle(timeout)
            return ready
        ready = super().select(STUCK_AFTER)
        if not ready:
            raise Stuck(f"every task waits at virtual second {self._loop.time():g} and nothing can wake one")
        return ready
