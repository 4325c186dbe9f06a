import asyncio

import pytest

from limpet.engine.slots import Slots
from limpet.errors import Busy
from tests.support import virtual_test


class Calls:
    """Calls of one second each, and how many of them ran at once."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._now = self.peak = 0
        self.done: list[int] = []
        self.owners: dict[int, str] = {}

    async def call(self, number: int) -> int:
        owner = self.owners.get(number, "a")
        await self._slots.take(owner)
        self._now += 1
        self.peak = max(self.peak, self._now)
        try:
            await asyncio.sleep(1)
        finally:
            self._now -= 1
            self._slots.release(owner)
        self.done.append(number)
        return number


@virtual_test
async def test_calls_over_the_limit_wait_in_order_and_are_then_refused() -> None:
    calls = Calls(Slots(2, 3))
    running = [asyncio.create_task(calls.call(number)) for number in range(5)]
    await asyncio.sleep(0.1)
    with pytest.raises(Busy):
        await calls.call(5)
    await asyncio.gather(*running)
    assert (calls.peak, calls.done) == (2, [0, 1, 2, 3, 4])


@virtual_test
async def test_a_cancelled_call_gives_its_slot_or_its_place_in_the_queue_to_the_next() -> None:
    calls = Calls(Slots(1, 8))
    running = [asyncio.create_task(calls.call(number)) for number in range(4)]
    await asyncio.sleep(0.1)
    running[1].cancel()
    running[0].cancel()
    running[2].cancel()  # The slot was given to it in this moment.
    assert await asyncio.wait_for(running[3], 3) == 3
    assert await asyncio.wait_for(calls.call(4), 3) == 4


@virtual_test
async def test_calls_that_wait_are_started_in_turn_by_their_owners() -> None:
    """The calls of one client were all started before the first call of the next one."""
    calls = Calls(Slots(1, 100))
    calls.owners = {50: "b", 51: "b", 60: "c"}
    running = [asyncio.create_task(calls.call(number)) for number in (*range(5), 50, 51, 60)]
    await asyncio.gather(*running)
    assert calls.done == [0, 1, 50, 60, 2, 51, 3, 4]
