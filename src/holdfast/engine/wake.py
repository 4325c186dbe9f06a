"""The two smallest ways to wait: for a bell, and for one turn of the loop."""

import asyncio
import types
from collections.abc import Generator


class Wake:
    """A bell that any number of tasks wait for. A ring wakes all of them, and is remembered until cleared."""

    __slots__ = ("_rung", "_waiters")

    def __init__(self) -> None:
        self._rung = False
        self._waiters: tuple[asyncio.Future[bool], ...] = ()
        """A tuple: most bells have one waiter at a time, and many have none."""

    def ring(self) -> None:
        """Wake all present waiters; a later waiter does not wait until the bell is cleared."""
        self._rung = True
        for waiter in self._waiters:
            _release(waiter, rung=True)

    def clear(self) -> None:
        """Forget earlier rings. Clear before looking: a ring after the look then wakes again (law 5)."""
        self._rung = False

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until rung; False if `timeout` seconds passed first."""
        return self._rung or await self.next(timeout)

    async def next(self, timeout: float | None = None) -> bool:
        """Wait for the next ring, whatever was rung before; for a caller that has just looked, without an await since."""
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


def _release(waiter: asyncio.Future[bool], *, rung: bool = False) -> None:
    if not waiter.done():
        waiter.set_result(rung)


@types.coroutine
def turn() -> Generator[None, None, None]:
    """Let everything that is ready run once, then go on.

    A handler that never suspends has finished after this, so its caller needs no timer,
    callback or watcher (half the cost of a plain call).
    """
    yield
