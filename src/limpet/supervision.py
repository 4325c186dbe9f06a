"""Loops that must run as long as the process: if one fails, the error is noted and the loop starts again.

Without this a failed loop stays unnoticed: no task waits for it, and its work is not done any more.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from limpet.ports import Observer

PAUSE: Final = 1.0
"""Seconds before a failed loop starts again: a loop that fails at once must not keep the process busy."""


def supervise(name: str, loop: Callable[[], Awaitable[None]], observer: Observer) -> asyncio.Task[None]:
    """Run a loop in a task until it returns or is cancelled; start it again if it fails."""
    return asyncio.get_running_loop().create_task(_keep_running(name, loop, observer), name=f"limpet {name}")


async def _keep_running(name: str, loop: Callable[[], Awaitable[None]], observer: Observer) -> None:
    while True:
        try:
            await loop()
        except Exception as error:  # noqa: BLE001 - the loop must continue after any error
            observer.note("loop.failed", loop=name, error=error)
        else:
            return
        await asyncio.sleep(PAUSE)
