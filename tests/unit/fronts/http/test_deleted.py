"""DELETE at any replica: every call in flight ends with −32800 where its client waits, and its handler is cancelled."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, get_args

import pytest

from limpet.config import Limits, ResponseMode, Settings, Times
from limpet.errors import REQUEST_CANCELLED
from limpet.stores.memory import MemoryStore
from tests.asgi import Call, Peer
from tests.messages import LATEST, request
from tests.simulation.cluster import Cluster
from tests.support import LoopClock
from tests.unit.engine.harness import settle_down
from tests.unit.fronts.http.bench import OLDEST, Bench, bench, front_test

# No lease ends here by itself.
TIMES = Times(lease=1e6, lease_renewal=1e5, stream_age=(1e5, 2e5))
MODES = get_args(ResponseMode)


@asynccontextmanager
async def replicas(
    count: int = 2, mode: ResponseMode = "adaptive", **settings: Any
) -> AsyncIterator[list[Bench]]:
    """Run fronts over one store, one of them over a store of its own."""
    cluster = Cluster(settings.get("limits", Limits()), LoopClock())
    benches: list[Bench] = []
    made = Settings(times=settings.pop("times", TIMES), **settings)
    async with AsyncExitStack() as stack:
        for number in range(count):
            store = (
                cluster.connect(f"r{number}").store if count > 1 else MemoryStore(made.limits, LoopClock())
            )
            benches.append(await stack.enter_async_context(bench(made, store=store, response=mode)))
            await benches[-1].engine.ensure_started()
        yield benches


def at(other: Bench, peer: Peer) -> Peer:
    """Return the same client at another replica."""
    there = other.peer()
    there.session, there.version = peer.session, peer.version
    return there


def cancelled(call: Call) -> list[Any]:
    """Return the ids of the calls that this response ends as cancelled; nothing else may be in it but progress."""
    found = call.messages if call.is_stream else call.json
    ends = [message for message in (found if isinstance(found, list) else [found]) if "method" not in message]
    assert {end["error"]["code"] for end in ends} == {REQUEST_CANCELLED}, ends
    return sorted(end["id"] for end in ends)


WHERE = pytest.mark.parametrize("where", ["same", "other", "only"])


@asynccontextmanager
async def deleted(
    where: str, mode: ResponseMode = "adaptive", version: str = LATEST
) -> AsyncIterator[tuple[Bench, Peer, Peer]]:
    """Yield the replica that runs, its client, and the client where it sends its DELETE."""
    async with replicas(1 if where == "only" else 2, mode) as benches:
        runner, other = benches[0], benches[-1]
        p = runner.peer()
        assert (await p.initialize(version)).status == 200
        yield runner, p, p if where == "same" else at(other, p)
        await settle_down()
        assert not runner.noted("handler.failed")


@WHERE
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tool", ["held", "ticks"])
@front_test
async def test_a_call_in_flight_ends_as_cancelled_wherever_the_delete_arrives(
    where: str, mode: ResponseMode, tool: str
) -> None:
    async with deleted(where, mode) as (runner, p, there):
        if (mode, tool) == ("json", "ticks"):
            return  # Nothing but a result can be sent there.
        call = p.call(1, tool)
        await asyncio.sleep(1)
        assert (await there.delete()).status == 204
        await call.done()
        assert (call.status, cancelled(call)) == (200, [1])
        await settle_down()
        [exchange] = runner.back.handled
        assert exchange.task is not None
        assert exchange.task.cancelled()
        assert (await there.delete()).status == 404
        assert (await p.call(2).done()).status == 404


@WHERE
@front_test
async def test_a_call_that_asks_ends_as_cancelled_and_its_handler_sees_no_other_error(where: str) -> None:
    async with deleted(where) as (runner, p, there):
        call = await p.call(1, "ask").until(1)
        assert (await there.delete()).status == 204
        await call.done()
        assert cancelled(call) == [1]
        await settle_down()
        [exchange] = runner.back.handled
        assert exchange.task is not None
        assert exchange.task.cancelled()


@front_test
async def test_a_reader_at_a_third_replica_receives_the_end() -> None:
    async with replicas(3) as (one, two, three):
        p = one.peer()
        await p.initialize()
        call = await p.call(1, "ticks").until(2)
        await call.cut()
        resumed = await at(two, p).get(call.ids[0]).until(2)
        assert (await at(three, p).delete()).status == 204
        await resumed.done()
        assert cancelled(resumed) == [1]
        assert two.noted("session.detached") == 0


@WHERE
@pytest.mark.parametrize("mode", MODES)
@front_test
async def test_each_call_of_a_batch_ends_as_cancelled(where: str, mode: ResponseMode) -> None:
    async with deleted(where, mode, OLDEST) as (_, p, there):
        call = p.post([request(number, "tools/call", {"name": "held"}) for number in (1, 2)])
        await asyncio.sleep(1)
        assert (await there.delete()).status == 204
        await call.done()
        assert (call.status, cancelled(call)) == (200, [1, 2])


@front_test
async def test_a_call_that_waits_for_its_turn_ends_as_cancelled_and_never_starts() -> None:
    async with replicas(limits=Limits(running=1, queued=5)) as (one, two):
        p = one.peer()
        await p.initialize()
        calls = [p.call(number, "held") for number in (1, 2)]
        await asyncio.sleep(1)
        assert (await at(two, p).delete()).status == 204
        for call in calls:
            await call.done()
        assert [cancelled(call) for call in calls] == [[1], [2]]
        await settle_down()
        assert one.runs == ["held"]


@front_test
async def test_of_two_deletes_at_two_replicas_one_succeeds_and_listeners_are_called_once() -> None:
    async with replicas() as (one, two):
        p = one.peer()
        await p.initialize()
        call = p.call(1, "held")
        await asyncio.sleep(1)
        answers = await asyncio.gather(p.delete(), at(two, p).delete())
        assert sorted(answer.status for answer in answers) == [204, 404]
        await call.done()
        assert cancelled(call) == [1]
        await settle_down()
        told = [event for each in (one, two) for event in each.back.events if event.startswith("closed")]
        assert told == ["closed: deleted"]


@front_test
async def test_a_delete_does_not_wait_for_a_replica_without_wake_ups() -> None:
    async with replicas() as (one, two):
        p = one.peer()
        await p.initialize()
        call = await p.call(1, "talk").until(1)
        # As of a process that is stopped: no wake-up reaches it.
        one.store.bind(lambda *_: None)
        began = asyncio.get_running_loop().time()
        assert (await at(two, p).delete()).status == 204
        assert asyncio.get_running_loop().time() - began < 2
        # It finds out when it writes next, and its reader when it looks next.
        await call.done()
        assert cancelled(call) == [1]
        assert not one.noted("handler.failed")


@front_test
async def test_a_result_that_was_ready_first_is_the_one_end() -> None:
    async with replicas() as (one, two):
        p = one.peer()
        await p.initialize(LATEST)
        call = await p.call(1, "ticks").until(2)
        one.release.set()
        await settle_down()
        assert (await at(two, p).delete()).status == 204
        await call.done()
        assert [message["result"]["id"] for message in call.messages if "id" in message] == [1]


@pytest.mark.parametrize("mode", MODES)
@front_test
async def test_a_repeated_batch_whose_session_is_deleted_is_answered_request_by_request(
    mode: ResponseMode,
) -> None:
    async with bench(response=mode) as b:
        p = b.peer()
        await p.initialize(OLDEST)
        batch = [request(1, "tools/call", {"name": "held"})]
        first = p.post(batch)
        await asyncio.sleep(1)
        await first.cut()
        again = p.post(batch)
        await asyncio.sleep(1)
        assert (await p.delete()).status == 204
        await again.done()
        [answer] = again.messages if again.is_stream else again.json
        assert isinstance(answer, dict)
        assert (again.status, answer["id"], answer["error"]["code"]) == (200, 1, REQUEST_CANCELLED)
        assert b.runs == ["held"]
