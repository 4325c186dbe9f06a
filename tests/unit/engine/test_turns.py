"""`in_order`: a session's calls run one after another, at every replica and after every kind of end."""

import asyncio
from unittest.mock import patch

import pytest

from limpet.config import Limits, Settings, Times
from limpet.engine.exchange import Exchange
from limpet.errors import BUSY, REQUEST_CANCELLED, Busy, StoreUnavailable
from limpet.testing import ScriptedBack
from tests.unit.engine.harness import CALL, EngineHarness, engine_harness, engine_test, settle_down
from tests.unit.engine.test_reaping import NOTICED, SETTINGS, die, fleet

ORDERED = Settings(in_order=True, times=SETTINGS.times)


class Runs:
    """Handlers that record which calls run at the same time."""

    def __init__(self, cleanup: float = 0.0) -> None:
        self.order: list[object] = []
        self.now = self.peak = 0
        self._cleanup = cleanup

    async def __call__(self, exchange: Exchange) -> object:
        self.now += 1
        self.peak = max(self.peak, self.now)
        self.order.append(exchange.request.id)
        try:
            await asyncio.sleep(exchange.request.params.get("seconds", 1))
        finally:
            await asyncio.sleep(self._cleanup)
            self.now -= 1
        return {"id": exchange.request.id}


@engine_test
async def test_calls_at_several_replicas_run_one_after_another_in_the_order_of_their_claims() -> None:
    runs = Runs()
    async with fleet(runs, runs, runs, settings=ORDERED) as harnesses:
        posts = [await harnesses[number % 3].post(number) for number in range(9)]
        for post in posts:
            assert "result" in (await post.whole())[-1]
        assert (runs.order, runs.peak) == (list(range(9)), 1)
        assert asyncio.get_running_loop().time() < 9.1, "the wake-up says when a turn was passed on"


@pytest.mark.parametrize("shared", [False, True])
@engine_test
async def test_a_cancelled_call_keeps_its_turn_until_its_handler_has_cleaned_up(*, shared: bool) -> None:
    runs = Runs(cleanup=5)
    if shared:
        async with fleet(runs, runs, settings=ORDERED) as (one, two):
            await _cancel_first(runs, one, two)
    else:
        async with engine_harness(ScriptedBack({CALL: runs}), ORDERED) as d:
            await _cancel_first(runs, d, d)


async def _cancel_first(runs: Runs, one: EngineHarness, two: EngineHarness) -> None:
    first = await one.post(1, params={"seconds": 100})
    await settle_down()
    second = await two.post(2)
    await one.cancel(1)
    began = asyncio.get_running_loop().time()
    assert (await first.whole())[-1]["error"]["code"] == REQUEST_CANCELLED
    assert asyncio.get_running_loop().time() == began, "the answer does not wait for the cleanup"
    again = await two.post(1)
    assert "result" in (await second.whole())[-1]
    assert "result" in (await again.whole())[-1]
    assert (runs.order, runs.peak) == ([1, 2, 1], 1)


@engine_test
async def test_a_turn_that_is_held_only_after_its_handler_has_ended_is_passed_on() -> None:
    runs = Runs(cleanup=0.1)
    async with engine_harness(ScriptedBack({CALL: runs}), ORDERED) as d:
        store = d.engine.runtime.store
        outage = [StoreUnavailable("the store is unavailable")]
        hold_turn = store.hold_turn

        async def held_at_the_second_attempt(key: str, stream: str, fence: int) -> None:
            if outage:
                raise outage.pop()
            await hold_turn(key, stream, fence)

        with patch.object(store, "hold_turn", held_at_the_second_attempt):
            first = await d.post(1, params={"seconds": 100})
            await settle_down()
            await d.cancel(1)
            assert (await first.whole())[-1]["error"]["code"] == REQUEST_CANCELLED
        assert runs.now == 0, "the handler ended while the store was unavailable"
        assert "result" in await d.call(2)


@engine_test
async def test_the_turn_of_a_replica_that_died_goes_on_with_the_next() -> None:
    runs = Runs()
    async with fleet(runs, runs, settings=ORDERED) as (one, two):
        await one.post(1, params={"seconds": 10_000})
        await settle_down()
        second = await two.post(2)
        die(one)
        await asyncio.sleep(NOTICED)
        assert "result" in (await second.whole())[-1]
        assert runs.order == [1, 2]


@engine_test
async def test_a_call_whose_turn_does_not_come_is_refused_as_busy_and_gives_its_turn_up() -> None:
    runs = Runs()
    settings = Settings(in_order=True, limits=Limits(queue_seconds=5, queued=1))
    async with engine_harness(ScriptedBack({CALL: runs}), settings) as d:
        first = await d.post(1, params={"seconds": 20})
        await settle_down()
        late = await d.post(2)
        await settle_down()
        also = await d.post(3)
        with pytest.raises(Busy):
            await d.submit(4)
        for post in (late, also):
            assert (await post.whole())[-1]["error"]["code"] == BUSY
            assert post.exchange.refusal
        assert "result" in (await first.whole())[-1]
        assert "result" in await d.call(2)
        assert runs.order == [1, 2]


@engine_test
async def test_a_call_that_is_cancelled_while_it_waits_never_runs_and_delays_no_other() -> None:
    runs = Runs()
    async with engine_harness(ScriptedBack({CALL: runs}), ORDERED) as d:
        posts = [await d.post(number) for number in range(3)]
        await settle_down()
        await d.cancel(1)
        assert (await posts[1].whole())[-1]["error"]["code"] == REQUEST_CANCELLED
        assert "result" in (await posts[2].whole())[-1]
        assert runs.order == [0, 2]


@engine_test
async def test_control_traffic_waits_for_no_turn() -> None:
    runs = Runs()
    async with engine_harness(
        ScriptedBack({CALL: runs, "ping": lambda _: asyncio.sleep(0, {})}), ORDERED
    ) as d:
        await d.post(1, params={"seconds": 10})
        await settle_down()
        assert "result" in await d.call("p", "ping")
        assert asyncio.get_running_loop().time() < 1


@engine_test
async def test_a_stopping_server_lets_those_that_wait_for_their_turn_finish() -> None:
    runs = Runs()
    settings = Settings(in_order=True, times=Times(drain=10))
    async with engine_harness(ScriptedBack({CALL: runs}), settings) as d:
        posts = [await d.post(number) for number in range(4)]
        await settle_down()
        await d.engine.drain()
        for post in posts:
            assert "result" in (await post.whole())[-1]


@engine_test
async def test_without_in_order_a_handler_that_cleans_up_keeps_its_slot_in_a_shared_store_too() -> None:
    runs = Runs(cleanup=5)
    settings = Settings(times=SETTINGS.times, limits=Limits(running=1))
    async with fleet(runs, settings=settings) as (one,):
        first = await one.post(1, params={"seconds": 100})
        await settle_down()
        await one.cancel(1)
        assert (await first.whole())[-1]["error"]["code"] == REQUEST_CANCELLED
        assert "result" in await one.call(2)
        assert runs.peak == 1
        await asyncio.sleep(6)
        assert one.engine.runtime.sessions == {}, "nothing of the session lives here any more"
