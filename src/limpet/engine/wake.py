"""The smallest ways to wait: for a wake-up, in a task or without one, and for one pass of the loop."""

import asyncio
import types
from collections.abc import Callable, Generator, Sequence
from contextvars import copy_context
from functools import partial
from typing import Final


class Wake:
    """A wake-up that any number of tasks wait for. `set` wakes all of them. It stays set until `clear`."""

    __slots__ = ("_is_set", "_waiters", "followers")

    def __init__(self) -> None:
        self._is_set = False
        self.followers: tuple[Wake | OnWake, ...] = ()
        """What is set with this one."""
        self._waiters: tuple[asyncio.Future[bool], ...] = ()
        """A tuple: most wake-ups have one waiter or none."""

    def set(self) -> None:
        """Wake all tasks that wait. A task that comes later does not wait, until `clear`."""
        self._is_set = True
        for waiter in self._waiters:
            _release(waiter, woken=True)
        for follower in self.followers:
            follower.set()

    @property
    def is_set(self) -> bool:
        """True if a task would not wait."""
        return self._is_set

    def clear(self) -> None:
        """Forget earlier wake-ups.

        Clear first, then check: a wake-up after the check then ends the next wait (law 5).
        """
        self._is_set = False

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; False if `timeout` seconds passed first."""
        return self._is_set or await self.next(timeout)

    async def next(self, timeout: float | None = None) -> bool:
        """Wait for the next wake-up, not for an earlier one. The caller has just checked, with no await since."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiters = (*self._waiters, waiter)
        timer = loop.call_later(timeout, _release, waiter) if timeout is not None else None
        try:
            return await waiter
        finally:
            self._waiters = tuple(other for other in self._waiters if other is not waiter)
            if timer is not None:
                timer.cancel()


class OnWake:
    """Calls a function once, soon after the next wake-up: with True, or with False if `timeout` seconds passed first.

    What waits this way needs no task. The function runs in the context in which this was made: the task that wakes has
    another one, in which an author's code has set variables.
    """

    __slots__ = ("_call", "_context", "_loop", "_timer", "_wake")

    def __init__(self, wake: Wake, call: Callable[[bool], object], timeout: float | None) -> None:
        self._wake, self._call = wake, call
        self._loop, self._context = asyncio.get_running_loop(), copy_context()
        wake.followers = (*wake.followers, self)
        self._timer = (
            None if timeout is None else self._loop.call_later(timeout, partial(self.set, woken=False))
        )

    def set(self, *, woken: bool = True) -> None:
        """Call the function in the next pass of the loop."""
        self._wake.followers = tuple(other for other in self._wake.followers if other is not self)
        if self._timer is not None:
            self._timer.cancel()
        self._loop.call_soon(self._call, woken, context=self._context)


async def wait_for_any(wakes: Sequence[Wake], timeout: float | None = None) -> bool:
    """Wait until one of them is set; False if `timeout` seconds passed first."""
    if any(wake.is_set for wake in wakes):
        return True
    common = Wake()
    for wake in wakes:
        wake.followers = (*wake.followers, common)
    try:
        return await common.wait(timeout)
    finally:
        for wake in wakes:
            wake.followers = tuple(other for other in wake.followers if other is not common)


def _release(waiter: asyncio.Future[bool], *, woken: bool = False) -> None:
    if not waiter.done():
        waiter.set_result(woken)


FEW: Final = 8
"""Messages of a batch that are taken in one pass of the loop."""


async def after_few(number: int) -> None:
    """Call it before each message of a batch: after each few, every other task that is ready runs first."""
    if number and number % FEW == 0:
        await one_pass()


@types.coroutine
def one_pass() -> Generator[None, None, None]:
    """Let every task that is ready run once, then continue.

    A handler that never waits has finished after this. Its caller needs no timer, callback or watcher, which would
    cost half of a plain call.
    """
    yield
