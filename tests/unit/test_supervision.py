"""A loop that fails is logged and begins again; a cancelled one stops."""

import asyncio

from limpet.supervision import PAUSE, supervise
from limpet.testing import NotingObserver
from tests.support import virtual_test


@virtual_test
async def test_a_loop_that_fails_is_noted_and_begins_again() -> None:
    observer, runs = NotingObserver(), 0

    async def loop() -> None:
        nonlocal runs
        runs += 1
        await asyncio.sleep(10)
        raise LookupError("on purpose")

    task = supervise("poll", loop, observer)
    await asyncio.sleep(3 * (10 + PAUSE) + 1)
    assert runs == 4
    assert [(noted["loop"], type(noted["error"])) for noted in observer.named("loop.failed")] == [
        ("poll", LookupError)
    ] * 3
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


@virtual_test
async def test_a_loop_that_returns_has_ended() -> None:
    observer = NotingObserver()

    async def loop() -> None:
        await asyncio.sleep(1)

    await supervise("short", loop, observer)
    assert not observer.named("loop.failed")
