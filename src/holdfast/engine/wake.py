"""The two smallest ways to wait: for a bell, and for one turn of the loop."""

import asyncio
import types
from collections.abc import Generator


class Wake:
    """A bell one task waits for. Rung while nobody waits, it is remembered until cleared."""

    __slots__ = ("_rung", "_waiter")

    def __init__(self) -> None:
        self._rung = False
        self._waiter: asyncio.Future[bool] | None = None

    def ring(self) -> None:
        """Wake the waiter, now or when it comes."""
        self._rung = True
        self._release(rung=True)

    def clear(self) -> None:
        """Forget earlier rings. Clear before looking: a ring after the look then wakes again (law 5)."""
        self._rung = False

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until rung; False if `timeout` seconds passed first."""
        if self._rung:
            return True
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(timeout, self._release) if timeout is not None else None
        try:
            return await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _release(self, *, rung: bool = False) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(rung)


@types.coroutine
def turn() -> Generator[None, None, None]:
    """Let everything that is ready run once, then go on.

    A handler that never suspends has finished after this, so its caller needs no timer,
    callback or watcher (half the cost of a plain call).
    """
    yield
