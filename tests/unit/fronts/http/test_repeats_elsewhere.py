"""A POST repeated at another replica: as at one, it gets the answer of the one execution, and a duplicate is refused."""

import asyncio
from typing import Any, get_args

import pytest

from limpet.config import ResponseMode, Times
from limpet.errors import OUTCOME_UNKNOWN
from tests.asgi import Call, Peer
from tests.messages import LATEST, request
from tests.unit.engine.harness import settle_down
from tests.unit.fronts.http.bench import OLDEST, Bench, front_test
from tests.unit.fronts.http.test_deleted import at, replicas

KEEP_ALIVE = 15.0
TIMES = Times(lease=10, lease_renewal=3, stream_age=(1e5, 2e5), keep_alive=KEEP_ALIVE)
MODES = get_args(ResponseMode)


async def begun(one: Bench, tool: str = "held", version: str = LATEST) -> tuple[Peer, Call]:
    """Begin a call."""
    p = one.peer()
    assert (await p.initialize(version)).status == 200
    call = p.call(1, tool)
    await asyncio.sleep(1)
    return p, call


def result(call: Call) -> Any:
    """Return the result that a response ends with."""
    return (call.messages[-1] if call.is_stream else call.json)["result"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("late", [0.0, 0.05], ids=["noticed", "overtaken"])
@front_test
async def test_a_cut_post_repeated_at_another_replica_gets_the_one_answer(
    mode: ResponseMode, late: float
) -> None:
    async with replicas(2, mode) as (one, two):
        p, call = await begun(one)
        # The repeat can overtake the news of the break.
        cut = asyncio.create_task(after(late, call.cut))
        if not late:
            await cut
        repeat = at(two, p).call(1, "held")
        await asyncio.sleep(2)
        assert not repeat.complete
        one.release.set()
        await repeat.done()
        await cut
        assert (repeat.status, result(repeat)) == (200, {"tool": "held", "id": 1})
        assert (one.runs, two.runs) == (["held"], [])


async def after(seconds: float, step: Any) -> None:
    await asyncio.sleep(seconds)
    await step()


@front_test
async def test_a_first_reader_that_was_silent_past_one_keep_alive_is_replaced_from_another_replica() -> None:
    async with replicas() as (one, two):
        p, call = await begun(one)
        await asyncio.sleep(KEEP_ALIVE)
        repeat = at(two, p).call(1, "held")
        await asyncio.sleep(1)
        one.release.set()
        await repeat.done()
        assert result(repeat) == {"tool": "held", "id": 1}
        await call.done()
        assert call.messages == [], "one of the two gets the answer"
        assert one.runs == ["held"]
        assert not one.noted("session.detached")


@front_test
async def test_the_same_bytes_at_another_replica_are_a_duplicate_while_the_first_reader_is_there() -> None:
    async with replicas(3) as (one, two, three):
        p, call = await begun(one, "ticks")
        for other in (two, three, one):
            duplicate = await at(other, p).call(1, "ticks").done()
            assert (duplicate.status, duplicate.json["error"]["code"]) == (400, -32600)
        one.release.set()
        await call.done()
        assert result(call) == {"tool": "ticks", "id": 1}
        assert (one.runs, two.runs, three.runs) == (["ticks"], [], [])


@front_test
async def test_a_reader_that_has_moved_to_a_third_replica_is_asked_there() -> None:
    async with replicas(3) as (one, two, three):
        p, call = await begun(one, "ticks")
        await call.cut()
        resumed = await at(two, p).get(call.ids[0]).until(2)
        for other in (three, one):
            assert (await at(other, p).call(1, "ticks").done()).status == 400
        # Both replicas are asked, and the one that has the reader sees it go.
        cut = asyncio.create_task(after(0.05, resumed.cut))
        repeat = at(one, p).call(1, "ticks")
        await asyncio.sleep(2)
        one.release.set()
        await repeat.done()
        await cut
        assert result(repeat) == {"tool": "ticks", "id": 1}


@front_test
async def test_a_repeat_waits_for_the_outcome_where_the_first_replica_is_dead() -> None:
    async with replicas(times=TIMES) as (one, two):
        p, _ = await begun(one)
        # As after kill -9: it renews no lease, receives no wake-up and answers nothing.
        assert one.engine.replica._keeper is not None
        one.engine.replica._keeper.stop()
        one.store.bind(lambda *_: None)
        repeat = at(two, p).call(1, "held")
        await asyncio.sleep(1)
        assert not repeat.status, "it is held, and no byte of an answer is sent"
        await two.store.renew(TIMES.lease)
        await one.store.release()
        await repeat.done()
        [end] = [message for message in repeat.messages if "id" in message]
        assert end["error"]["code"] == OUTCOME_UNKNOWN
        assert two.runs == []


@front_test
async def test_a_replica_that_never_answers_is_not_waited_for_without_end() -> None:
    async with replicas(times=TIMES) as (one, two):
        p, call = await begun(one, "ticks")
        one.store.bind(lambda *_: None)
        repeat = at(two, p).call(1, "ticks")
        for _ in range(11):
            # It lives, as far as its lease tells.
            for each in (one, two):
                await each.store.renew(TIMES.lease)
            assert not repeat.status
            await asyncio.sleep(5)
        await repeat.until(2)
        one.release.set()
        await repeat.done()
        assert result(repeat)["id"] == 1
        await call.cut()


@front_test
async def test_the_id_of_a_call_that_ends_while_the_same_request_waits_is_free() -> None:
    async with replicas() as (one, two):
        p, call = await begun(one, "held")
        again = at(two, p).call(1, "held")
        two.release.set()
        one.release.set()
        for answered in (call, again):
            await answered.done()
            assert result(answered)["id"] == 1
        assert (one.runs, two.runs) == (["held"], ["held"])


@front_test
async def test_calls_of_a_cut_batch_repeated_at_another_replica_get_their_answers() -> None:
    async with replicas() as (one, two):
        p = one.peer()
        await p.initialize(OLDEST)
        batch = [request(number, "tools/call", {"name": "held"}) for number in (1, 2)]
        call = p.post(batch)
        await asyncio.sleep(1)
        await call.cut()
        repeat = at(two, p).post(batch)
        await asyncio.sleep(1)
        one.release.set()
        await repeat.done()
        assert sorted(message["result"]["id"] for message in repeat.messages) == [1, 2]
        assert (one.runs, two.runs) == (["held", "held"], [])
        await settle_down()


@pytest.mark.parametrize("where", ["same", "other"])
@front_test
async def test_a_repeat_is_held_while_the_first_reader_acknowledges_nothing_and_then_takes_its_place(
    where: str,
) -> None:
    async with replicas() as (one, two):
        p, call = await begun(one, "ticks")
        # Half open: the kernel takes the written bytes, and they do not arrive.
        call.transport.is_all_taken = False
        repeat = at(one if where == "same" else two, p).call(1, "ticks")
        await asyncio.sleep(KEEP_ALIVE - 5)
        assert not repeat.status, "it may be a repeat: it is not refused"
        await asyncio.sleep(10)
        one.release.set()
        await repeat.done()
        assert result(repeat) == {"tool": "ticks", "id": 1}
        assert one.runs == ["ticks"]


@pytest.mark.parametrize("where", ["same", "other"])
@front_test
async def test_a_repeat_is_refused_as_soon_as_the_first_reader_has_taken_the_written_bytes(
    where: str,
) -> None:
    async with replicas() as (one, two):
        p, call = await begun(one, "ticks")
        call.transport.is_all_taken = False
        written = len(call.comments)
        duplicate = at(one if where == "same" else two, p).call(1, "ticks")
        await asyncio.sleep(3)
        assert not duplicate.raw_headers
        assert len(call.comments) > written, "something is written to it, so that it can be acknowledged"
        call.transport.is_all_taken = True
        await duplicate.done()
        assert duplicate.status == 400
        one.release.set()
        await call.done()
        assert result(call) == {"tool": "ticks", "id": 1}


@pytest.mark.parametrize("is_taken", [True, False])
@front_test
async def test_a_request_equal_to_one_whose_answer_is_being_written_elsewhere_waits_for_the_outcome(
    *, is_taken: bool
) -> None:
    async with replicas() as (one, two):
        p, call = await begun(one, "ticks")
        call.stop_reading()
        one.release.set()
        await asyncio.sleep(0.1)
        # The end is stored, and the connection takes nothing of it.
        equal = at(two, p).call(1, "ticks")
        await asyncio.sleep(0.05)
        assert not equal.complete
        if is_taken:
            call.read_on()
            await call.done()
            two.release.set()
        else:
            call.leave()
            call.fails = True
            call.read_on()
        await equal.done()
        assert result(equal) == {"tool": "ticks", "id": 1}
        assert (one.runs, two.runs) == (["ticks"], ["ticks"] if is_taken else [])


@front_test
async def test_the_answer_of_a_replica_that_dies_before_its_client_has_taken_it_is_not_lost() -> None:
    async with replicas(times=TIMES) as (one, two):
        p, call = await begun(one, "ticks")
        call.stop_reading()
        one.release.set()
        await asyncio.sleep(0.1)
        # As after kill -9: it renews no lease, receives no wake-up and answers nothing.
        assert one.engine.replica._keeper is not None
        one.engine.replica._keeper.stop()
        one.store.bind(lambda *_: None)
        repeat = at(two, p).call(1, "ticks")
        await asyncio.sleep(1)
        assert not repeat.status
        await one.store.release()
        await repeat.done()
        assert result(repeat) == {"tool": "ticks", "id": 1}
        assert (one.runs, two.runs) == (["ticks"], [])
