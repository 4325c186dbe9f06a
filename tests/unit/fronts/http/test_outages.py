"""The store becomes unavailable after a handler has started: the answer comes late, and is never a refusal that invites a second run."""

import asyncio
from typing import Any, get_args

import pytest

from limpet.config import ResponseMode, Settings, Times
from limpet.errors import OUTCOME_UNKNOWN
from limpet.stores.memory import MemoryStore
from tests.asgi import Call, Peer
from tests.messages import request
from tests.stores import OF_EXCHANGES, ScriptedStore
from tests.support import LoopClock
from tests.unit.fronts.http.bench import OLDEST, Bench, bench, front_test

HELD = {"name": "held"}
AWAY = 3.0


async def opened(b: Bench) -> Peer:
    peer = b.peer()
    assert (await peer.initialize(OLDEST)).status == 200
    return peer


async def away_for(store: ScriptedStore, seconds: float) -> None:
    store.fail(*OF_EXCHANGES)
    await asyncio.sleep(seconds)
    store.recover()


def ids(call: Call) -> set[int]:
    messages: Any = call.messages if call.is_stream else call.json
    return {message["id"] for message in messages if "result" in message}


@pytest.mark.parametrize("mode", get_args(ResponseMode))
@front_test
async def test_a_batch_whose_handlers_run_is_answered_when_the_store_is_back(mode: ResponseMode) -> None:
    store = ScriptedStore()
    async with bench(store=store, response=mode) as b:
        p = await opened(b)
        call = p.post([request(number, "tools/call", HELD) for number in (1, 2)])
        await asyncio.sleep(0.1)
        assert b.runs == ["held", "held"]
        await away_for(store, AWAY)
        b.release.set()
        await call.done()
        assert (call.status, ids(call), b.runs) == (200, {1, 2}, ["held", "held"])
        assert store.failed or mode == "json"


@pytest.mark.parametrize("batch", [False, True])
@front_test
async def test_a_repeat_waits_for_the_store_and_gets_the_result_of_the_one_execution(*, batch: bool) -> None:
    store = ScriptedStore()
    async with bench(store=store) as b:
        p = await opened(b)
        one = request(1, "tools/call", HELD)
        sent = [one, request(2, "ping")] if batch else one
        first = p.post(sent)
        await first.begun()
        await first.cut()
        store.fail(*OF_EXCHANGES)
        again = p.post(sent)
        await asyncio.sleep(AWAY)
        assert again.status in {0, 200}
        store.recover()
        b.release.set()
        await again.done()
        assert (again.status, ids(again) - {2}, b.runs) == (200, {1}, ["held"])


@front_test
async def test_without_sessions_an_answer_does_not_wait_for_the_store_to_forget_its_request() -> None:
    store = ScriptedStore()
    async with bench(Settings(stateless=True, times=Times(drain=0)), store=store) as b:
        call = b.peer().call(1, "held")
        await asyncio.sleep(0.1)
        b.release.set()
        store.fail(*OF_EXCHANGES)
        assert (await call.done()).status == 200
        assert call.json["result"]["tool"] == "held"
        store.recover()


@pytest.mark.parametrize("form", ["post", "repeat", "batch", "repeated batch"])
@front_test
async def test_a_stream_whose_session_the_store_has_lost_ends_with_one_error(form: str) -> None:
    store = MemoryStore(Settings().limits, LoopClock())
    async with bench(store=store) as b:
        p = await opened(b)
        call = request(1, "tools/call", {"name": "ticks"})
        message = [call] if "batch" in form else call
        post = await p.post(message).until(2)
        if "repeat" in form:
            await post.cut()
            post = await p.post(message).until(2)
        store._sessions.clear()
        await post.done()
        [end] = [message for message in post.messages if "method" not in message]
        assert (end["id"], end["error"]["code"]) == (1, OUTCOME_UNKNOWN)


@front_test
async def test_a_stream_whose_log_alone_was_lost_ends_without_an_error() -> None:
    store = MemoryStore(Settings().limits, LoopClock())
    async with bench(store=store) as b:
        p = await opened(b)
        post = await p.call(1, "ticks").until(2)
        next(iter(store._sessions.values())).logs.clear()
        await post.done()
        assert all("method" in message for message in post.messages)


@pytest.mark.parametrize("tool", ["quick", "big"], ids=["the same request", "another request"])
@front_test
async def test_an_answered_id_can_be_used_again_although_its_end_was_not_stored_at_first(tool: str) -> None:
    store = ScriptedStore(is_shared=True)
    async with bench(store=store) as b:
        p = await opened(b)
        store.fail("settle", times=1)
        assert (await p.call(1).done()).json["result"]["tool"] == "quick"
        again = await p.call(1, tool).done()
        assert again.status == 200
        assert again.received[-1]["result"]["tool"] == tool
        assert b.runs == ["quick", tool]
