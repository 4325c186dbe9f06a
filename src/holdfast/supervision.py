"""Loops that must not end while the process lives: what one of them raises is noted, and it begins again.

Without this a loop that dies is silent: no code waits for its task, and its work is not done from then on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.ports import Observer

PAUSE: Final = 1.0
"""Seconds before a loop that failed begins again: it may fail at once, and must not keep the process busy."""


def supervise(name: str, loop: Callable[[], Awaitable[None]], observer: Observer) -> asyncio.Task[None]:
    """Run a loop in a task of its own until it returns or is cancelled; one that fails begins again."""
    return asyncio.get_running_loop().create_task(_supervised(name, loop, observer), name=f"holdfast {name}")


async def _supervised(name: str, loop: Callable[[], Awaitable[None]], observer: Observer) -> None:
    while True:
        try:
            await loop()
        except Exception as error:  # noqa: BLE001 - whatever it was, the loop has to go on
            observer.note("loop.failed", loop=name, error=error)
        else:
            return
        await asyncio.sleep(PAUSE)
