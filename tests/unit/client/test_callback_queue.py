"""Callbacks: slow ones, and ones that fail."""

import asyncio

import pytest

from limpet.client.callback_queue import CallbackQueue
from limpet.ports import SilentObserver
from tests.support import virtual_test


@virtual_test
async def test_a_slow_callback_gets_messages_one_by_one_and_only_the_newest_that_fit() -> None:
    seen: list[int] = []

    async def slowly(number: int) -> None:
        await asyncio.sleep(1)
        seen.append(number)

    queue = CallbackQueue(slowly, 3, 10_000, observer=SilentObserver())
    for number in range(10):
        queue.put(number)
    await queue.drain()
    assert seen == [0, 7, 8, 9]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_callback_that_fails_ends_neither_the_queue_nor_the_call(is_async: bool) -> None:
    seen: list[int] = []

    def fail(number: int) -> None:
        seen.append(number)
        raise RuntimeError

    async def fail_later(number: int) -> None:
        fail(number)

    @virtual_test
    async def run() -> None:
        queue = CallbackQueue(fail_later if is_async else fail, 10, 10_000, observer=SilentObserver())
        for number in range(3):
            queue.put(number)
        await queue.drain()

    run()
    assert seen == [0, 1, 2]


@virtual_test
async def test_waiting_messages_are_limited_in_their_memory_and_the_newest_stays() -> None:
    told: list[str] = []

    async def slowly(text: str) -> None:
        await asyncio.sleep(1)
        told.append(text[:2])

    queue = CallbackQueue(slowly, 100, 10_000, observer=SilentObserver())
    for number in range(10, 20):
        queue.put(f"{number}" + "x" * 2_000)
    queue.put("99" + "x" * 50_000)
    await queue.drain()
    assert told == ["10", "99"]
    for number in range(10, 14):
        queue.put(f"{number}" + "x" * 1_000)
    await queue.drain()
    assert told[2:] == ["10", "11", "12", "13"]
