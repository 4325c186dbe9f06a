"""The loop of a process of ours."""

import asyncio
import threading

from holdfast.config import Limits
from holdfast.transports.loops import run


def test_as_many_blocking_functions_run_at_once_as_there_are_threads() -> None:
    wanted = Limits().threads
    together = threading.Barrier(wanted)

    async def work() -> None:
        # Each waits for all the others: with one thread fewer none would ever go on.
        await asyncio.gather(*(asyncio.to_thread(together.wait, 20) for _ in range(wanted)))

    run(work(), threads=wanted)
    assert not together.broken
