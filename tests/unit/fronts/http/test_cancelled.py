"""A host cancels a request at any moment, also while the store's reply is on its way: no claim, reader or session is left."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from limpet.config import Settings, Times
from limpet.core.rules.streams import drop_finished
from limpet.stores.memory import MemoryStore
from tests.asgi import Call, Peer
from tests.messages import LATEST, initialize, request
from tests.stores import ScriptedStore
from tests.unit.fronts.http.bench import OLDEST, Bench, bench, front_test

CALLS = ("open", "find", "claim", "settle", "keep", "open_stream", "attach", "detach", "read", "close")
CLOCKS = Times(idle=100, grace=50, sweep=1)
SOON = 0.5


Action = Callable[[Bench, Peer], Call]
ACTIONS: dict[str, Action] = {
    "quick call": lambda _, peer: peer.call(1),
    "slow call": lambda _, peer: peer.call(1, "held"),
    "call that talks": lambda _, peer: peer.call(1, "ticks"),
    "batch": lambda _, peer: peer.post(
        [request(n, "tools/call", {"name": t}) for n, t in ((1, "quick"), (2, "held"))]
    ),
    "get": lambda _, peer: peer.get(),
    "delete": lambda _, peer: peer.send("DELETE"),
    "second session": lambda b, _: b.peer().post(request("init", "initialize", initialize())),
}


@asynccontextmanager
async def opened(version: str = LATEST) -> AsyncIterator[tuple[Bench, Peer, ScriptedStore]]:
    """Open a session of a front whose store obeys the test."""
    store = ScriptedStore()
    async with bench(Settings(times=CLOCKS), store=store) as b:
        peer = b.peer()
        await peer.initialize(version)
        yield b, peer, store


async def cancel(call: Call) -> None:
    call.task.cancel()
    await asyncio.wait([call.task])


async def check_nothing_is_left(b: Bench, store: MemoryStore) -> None:
    """Let the clocks run out: a claim or a reader that is left would keep its session from closing."""
    b.release.set()
    await asyncio.sleep(300)
    assert await store.sessions() == []
    assert b.engine.runtime.sessions == {}


@pytest.mark.parametrize("action", ACTIONS)
@front_test
async def test_a_request_that_is_cancelled_at_any_moment_leaves_no_claim_or_reader(action: str) -> None:
    for moment in range(14):
        async with opened(OLDEST if action == "batch" else LATEST) as (b, peer, store):
            store.delay(*CALLS, before=SOON)
            call = ACTIONS[action](b, peer)
            await asyncio.sleep(0.01 + moment * SOON / 2)
            await cancel(call)
            await check_nothing_is_left(b, store)


@front_test
async def test_a_batch_that_is_cancelled_again_while_it_cleans_up_leaves_no_claim_or_reader() -> None:
    for moment in range(6, 12):
        async with opened(OLDEST) as (b, peer, store):
            store.delay(*CALLS, before=SOON)
            call = ACTIONS["batch"](b, peer)
            await asyncio.sleep(0.01 + moment * SOON / 2)
            while not call.task.done():
                # At each await, as a cancelled scope of anyio does it.
                call.task.cancel()
                await asyncio.sleep(0)
            await check_nothing_is_left(b, store)


@front_test
async def test_the_id_of_a_request_that_was_cancelled_while_it_was_claimed_is_free_and_nothing_ran() -> None:
    async with opened() as (b, peer, store):
        store.delay(*CALLS, before=1.4)
        call = peer.call(1)
        await asyncio.sleep(1)
        await cancel(call)
        # The same bytes, at once: they meet the first claim, and must not be taken for a duplicate of it.
        again = await peer.call(1).done()
        assert (again.status, b.runs) == (200, ["quick"])
        await check_nothing_is_left(b, store)


@front_test
async def test_a_claim_whose_reply_was_lost_is_given_back() -> None:
    async with opened() as (b, peer, store):
        store.delay(*CALLS, before=SOON)
        store.lose_replies("claim")
        assert (await peer.call(1).done()).status == 503
        store.recover()
        store.delay(*CALLS, before=SOON)
        await asyncio.sleep(5)
        assert ((await peer.call(1).done()).status, b.runs) == (200, ["quick"])
        await check_nothing_is_left(b, store)


@front_test
async def test_a_resume_that_finds_the_store_unavailable_after_it_has_its_place_waits_for_the_store() -> None:
    async with opened() as (b, peer, store):
        b.release.set()
        call = await peer.call(1, "ticks").done()
        store.delay(*CALLS, before=SOON)
        store.lose_replies("read")
        resumed = await peer.get(call.ids[0]).begun()
        await asyncio.sleep(5)
        assert not resumed.messages
        store.recover()
        store.delay(*CALLS, before=SOON)
        assert (await resumed.done()).messages == call.messages
        await check_nothing_is_left(b, store)


@front_test
async def test_a_call_whose_host_ends_it_while_its_stream_begins_can_be_repeated() -> None:
    async with opened() as (b, peer, store):
        call = peer.call(1, "held")
        await asyncio.sleep(0.2)
        store.delay(*CALLS, before=SOON)
        await asyncio.sleep(0.2)
        await cancel(call)
        await asyncio.sleep(5)
        again = peer.call(1, "held")
        await asyncio.sleep(5)
        b.release.set()
        assert (await again.done()).messages[-1]["result"]["tool"] == "held"
        assert b.runs == ["held"]


@front_test
async def test_an_answer_that_another_connection_has_read_is_not_sent_to_the_next_request_with_its_id() -> (
    None
):
    async with opened() as (b, peer, _):
        call = await peer.call(1, "ticks").until(2)
        call.stop_reading()
        b.release.set()
        await asyncio.sleep(0.1)
        # The client leaves; the write of the answer to it is given up only after the stall limit.
        call._gone.set()
        await asyncio.sleep(0.1)
        resumed = await peer.get(call.ids[0]).done()
        assert resumed.messages[-1]["result"]["tool"] == "ticks"
        await call.done()
        assert (await peer.call(1, "ticks").done()).messages[-1]["result"]["tool"] == "ticks"
        assert b.runs == ["ticks", "ticks"]


@front_test
async def test_a_session_whose_opening_was_cancelled_is_closed() -> None:
    store = ScriptedStore()
    async with bench(Settings(times=CLOCKS), store=store) as b:
        store.delay(*CALLS, before=SOON)
        opening = b.peer().post(request("init", "initialize", initialize()))
        await asyncio.sleep(SOON / 2)
        await cancel(opening)
        await asyncio.sleep(3)
        assert await store.sessions() == []


@front_test
async def test_a_repeat_after_its_kept_answer_was_dropped_gets_the_reason_and_does_not_run() -> None:
    async with opened() as (b, peer, store):
        first = peer.call(1, "held")
        await asyncio.sleep(0.1)
        await first.cut()
        [exchange] = b.back.handled
        b.release.set()
        await asyncio.sleep(1)
        session = store._sessions[exchange.session.record.key]
        assert drop_finished(session)
        for _ in range(2):
            again = await peer.call(1, "held").done()
            assert again.json["error"]["code"] == -31002
            assert "executed already" in again.json["error"]["message"]
        assert b.runs == ["held"]
        assert "result" in (await peer.call(1, "quick").done()).json, "another request may use the id"


@front_test
async def test_a_repeat_of_a_call_that_was_dropped_is_answered_outcome_unknown() -> None:
    async with opened() as (b, peer, store):
        first = peer.call(1, "held")
        await asyncio.sleep(0.1)
        await first.cut()
        [exchange] = b.back.handled
        b.release.set()
        await asyncio.sleep(1)
        # Dropped for room between the look at the id and the look for the stream.
        store.delay(*CALLS, before=SOON)
        again = peer.call(1, "held")
        await asyncio.sleep(SOON * 2.5)
        session = store._sessions[exchange.session.record.key]
        assert drop_finished(session)
        await again.done()
        assert again.json["error"]["code"] == -31002
        assert b.runs == ["held"]


@front_test
async def test_an_attach_whose_reply_was_lost_leaves_no_reader() -> None:
    for stream in ("standalone", "of a call"):
        async with opened() as (b, peer, store):
            b.release.set()
            call = await peer.call(1, "ticks").done()
            store.lose_replies("attach")
            get = peer.get() if stream == "standalone" else peer.get(call.ids[0])
            assert (await get.done()).status == 503
            store.recover()
            await check_nothing_is_left(b, store)


@front_test
async def test_an_attach_whose_reply_was_lost_does_not_disturb_the_next_one() -> None:
    async with opened() as (b, peer, store):
        store.delay("look", "probe", before=SOON)
        store.lose_replies("attach")
        assert (await peer.get().done()).status == 503
        store.recover()
        # Its client is back before the lost place is looked for, and is attached while that goes on.
        store.delay("look", "probe", before=SOON)
        store.delay("attach", after=3 * SOON)
        again = await peer.get().begun()
        await asyncio.sleep(20)
        assert not again.task.done()
        [status] = [await store.look(key) for key in await store.sessions()]
        assert status is not None
        assert status.readers == 1
        await cancel(again)
        await check_nothing_is_left(b, store)
