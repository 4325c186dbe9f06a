"""The wake-up: every waiting task receives it."""

import asyncio

from limpet.engine.wake import OnWake, Wake
from tests.support import virtual_test
from tests.unit.engine.harness import settle_down


@virtual_test
async def test_a_wake_up_wakes_every_waiting_task() -> None:
    wake = Wake()
    waiting = [
        asyncio.create_task(wake.wait()),
        asyncio.create_task(wake.wait(60)),
        asyncio.create_task(wake.wait()),
    ]
    await settle_down()
    wake.set()
    assert await asyncio.gather(*waiting) == [True, True, True]
    assert asyncio.get_running_loop().time() == 0


@virtual_test
async def test_each_waiter_has_its_own_patience() -> None:
    wake = Wake()
    short, long = asyncio.create_task(wake.wait(1)), asyncio.create_task(wake.wait(5))
    cancelled = asyncio.create_task(wake.wait(5))
    await settle_down()
    cancelled.cancel()
    assert not await short
    assert not long.done()
    wake.set()
    assert await long
    assert await wake.wait()
    wake.clear()
    assert not await wake.wait(1)


@virtual_test
async def test_a_function_is_called_once_soon_after_the_wake_up_or_the_silence() -> None:
    wake, told = Wake(), list[tuple[str, bool]]()
    OnWake(wake, lambda woken: told.append(("patient", woken)), None)
    OnWake(wake, lambda woken: told.append(("short", woken)), 1)
    OnWake(wake, lambda woken: told.append(("long", woken)), 5)
    await asyncio.sleep(2)
    assert told == [("short", False)]
    wake.set()
    wake.set()
    assert told == [("short", False)], "not within the call of the one who wakes"
    await asyncio.sleep(10)
    assert told == [("short", False), ("patient", True), ("long", True)]
    assert wake.followers == ()
