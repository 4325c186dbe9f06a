"""Which refusals tell the client that nothing ran: all that are made before, and none that is made after."""

import asyncio

import pytest

from limpet.auth import Principal
from limpet.config import Limits, Settings, Times
from limpet.errors import Fenced
from limpet.stores.base import Refusal
from limpet.testing.store.limits import tight
from tests.asgi import Call, Peer
from tests.messages import notification, request
from tests.stores import ScriptedStore
from tests.unit.fronts.http.bench import Bench, bench, front_test
from tests.unit.fronts.http.test_answers import guests_call

MARK = "limpet-refused"


def is_marked(answer: Call) -> bool:
    return answer.headers.get(MARK) == "not-executed"


async def opened(b: Bench, version: str = "2025-11-25") -> Peer:
    peer = b.peer()
    assert (await peer.initialize(version)).status == 200
    return peer


# Before anything runs


@front_test
async def test_a_store_that_is_unavailable_before_the_claim() -> None:
    store = ScriptedStore(is_shared=True)
    async with bench(store=store) as b:
        peer = await opened(b)
        store.fail("claim")
        refused = await peer.call(1).done()
        assert (refused.status, is_marked(refused), b.runs) == (503, True, [])
        store.recover()
        assert MARK not in (await peer.call(1).done()).headers


@front_test
async def test_a_replica_that_is_stopping() -> None:
    async with bench(Settings(times=Times(drain=60)), store=ScriptedStore(is_shared=True)) as b:
        peer = await opened(b)
        running = peer.call(1, "held")
        await asyncio.sleep(1)
        drain = asyncio.ensure_future(b.engine.drain())
        await asyncio.sleep(0)
        for refused in (await peer.call(2).done(), await b.peer().initialize()):
            assert (refused.status, is_marked(refused)) == (503, True)
        b.release.set()
        await drain
        await running.done()
        assert b.runs == ["held"]


@front_test
async def test_a_session_that_is_full_and_a_call_that_got_no_slot() -> None:
    async with bench(Settings(limits=Limits(running=1, queued=1, queue_seconds=5.0))) as b:
        peer = await opened(b)
        first, second = peer.call(1, "held"), peer.call(2, "held")
        await asyncio.sleep(0.1)
        for refused in (await peer.call(3, "held").done(), await second.done()):
            assert (refused.status, is_marked(refused)) == (429, True)
        b.release.set()
        await first.done()
        assert b.runs == ["held"]


@front_test
async def test_too_many_sessions_and_a_session_that_is_unknown() -> None:
    async with bench(Settings(limits=Limits(sessions=1))) as b:
        peer = await opened(b)
        refused = await b.peer().initialize()
        assert (refused.status, is_marked(refused)) == (503, True)
        await peer.delete()
        lost = await peer.call(1).done()
        assert (lost.status, is_marked(lost), b.runs) == (404, True, [])


@front_test
async def test_too_many_calls_without_a_session() -> None:
    async with bench(Settings(limits=tight(sessionless_calls=1))) as b:
        first = guests_call(b.peer(), "held", "held")
        await asyncio.sleep(0.1)
        refused = await guests_call(b.peer(), "held", "held").done()
        assert (refused.status, is_marked(refused), b.runs) == (429, True, ["held"])
        b.release.set()
        await first.done()


# After a handler was started


@front_test
async def test_a_call_refused_while_parking_is_not_marked_as_not_executed() -> None:
    async with bench(Settings(limits=tight(parked=1, parked_per_principal=1))) as b:
        parked, refused = [await guests_call(b.peer(), "ask").done() for _ in range(2)]
        assert parked.json["result"]["resultType"] == "input_required"
        assert (refused.json["error"]["code"], MARK in refused.headers) == (-31001, False)
        assert b.runs == ["ask", "ask"]


@pytest.mark.parametrize("response", ["adaptive", "json"])
@front_test
async def test_a_repeat_whose_answer_cannot_be_read_does_not_deny_the_first_execution(response: str) -> None:
    store = ScriptedStore(is_shared=True)
    async with bench(store=store, response=response) as b:
        peer = await opened(b)
        first = peer.call(1, "held")
        await asyncio.sleep(1)
        await first.cut()
        store.fail("attach")
        again = peer.call(1, "held")
        await asyncio.sleep(3)
        store.recover()
        b.release.set()
        await again.done()
        assert (again.status, b.runs, MARK in again.headers) == (200, ["held"], False)


@front_test
async def test_a_session_that_is_lost_during_a_call_is_not_answered_as_unknown() -> None:
    store = ScriptedStore(is_shared=True)
    # The store has declared the replica dead, and the session was deleted since.
    store.fail("open_stream", error=Fenced())
    store.reply_with("attach", Refusal.NO_SESSION)
    async with bench(store=store) as b:
        peer = await opened(b)
        answer = await peer.call(1, "held").done()
        assert b.runs == ["held"]
        assert (answer.status, answer.json["error"]["code"], MARK in answer.headers) == (200, -32800, False)


@front_test
async def test_a_token_that_cannot_be_checked() -> None:
    async def broken(token: str) -> Principal | None:
        raise RuntimeError

    async with bench(verifier=broken) as b:
        refused = await b.peer(token="t").initialize()
        assert (refused.status, is_marked(refused)) == (503, True)


@front_test
async def test_a_batch_whose_handlers_were_started_carries_no_mark() -> None:
    store = ScriptedStore(is_shared=True)
    async with bench(store=store) as b:
        peer = await opened(b, "2025-03-26")
        messages = [request(1, "tools/call", {"name": "held"}), notification("notifications/initialized")]
        store.fail("attach")
        answer = peer.post(messages)
        await asyncio.sleep(1)
        store.recover()
        b.release.set()
        await answer.done()
        assert (b.runs, MARK in answer.headers) == (["held"], False)
