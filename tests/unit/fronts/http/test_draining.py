"""A server that stops, over HTTP: it finishes its work, serves what begins none, and refuses the rest as not executed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, Final

import pytest

from limpet import Client, Server
from limpet.config import Limits, Settings, Times
from limpet.errors import BUSY, NOT_EXECUTED, PARKED_GONE
from limpet.protocol.methods import METHODS, From
from limpet.stores.base import Store
from limpet.stores.memory import MemoryStore
from tests.asgi import Call, Peer
from tests.messages import LATEST, metadata, notification, request
from tests.simulation.cluster import Cluster
from tests.stores import ScriptedStore
from tests.support import LoopClock, virtual_test
from tests.unit.fronts.http.bench import MIDDLE, OLDEST, Bench, bench, front_test

DRAIN: Final = 60.0
SETTINGS: Final = Settings(times=Times(drain=DRAIN))
BEGIN_WORK: Final = {"initialize", "tools/call", "subscriptions/listen", "unknown/method"}


async def draining(b: Bench) -> asyncio.Task[None]:
    drain = asyncio.ensure_future(b.engine.drain())
    await asyncio.sleep(0)
    return drain


def assert_refused(call: Call, request_id: int | str | None) -> None:
    """Check that a client may send the same request again, and learns that."""
    assert (call.status, call.headers["retry-after"]) == (503, "1")
    assert call.headers[NOT_EXECUTED[0].lower()] == NOT_EXECUTED[1]
    assert (call.json["error"]["code"], call.json.get("id")) == (BUSY, request_id)
    assert "This request was not executed" in call.json["error"]["message"]


@pytest.mark.parametrize("is_shared", [True, False])
@front_test
async def test_new_calls_and_sessions_are_refused_as_not_executed(*, is_shared: bool) -> None:
    async with bench(SETTINGS, store=ScriptedStore(is_shared=is_shared)) as b:
        peer = b.peer()
        await peer.initialize()
        running = await peer.call(1, "held").begun()
        drain = await draining(b)
        assert (await peer.send("GET", path="/readyz").done()).status == 503
        assert_refused(await peer.call(2).done(), 2)
        assert_refused(await b.peer().initialize(), "init")
        assert_refused(await peer.sessionless("tools/call", {"name": "quick"}).done(), 1)
        assert_refused(await peer.sessionless("subscriptions/listen", {"notifications": {}}).done(), 1)
        assert (await peer.post(notification("notifications/initialized")).done()).status == 202
        b.release.set()
        await drain
        assert [message["id"] for message in (await running.done()).messages] == [1]
        assert b.runs == ["held"]
        b.engine.draining = False
        assert (await peer.call(2).done()).status == 200, "its id is free"


def params_of(method: str) -> dict[str, Any]:
    ref = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}}
    named: dict[str, dict[str, Any]] = {
        "tools/call": {"name": "t"},
        "prompts/get": {"name": "p"},
        "completion/complete": ref,
    }
    return named.get(method, {"uri": "x://y", "taskId": "t", "level": "info", "notifications": {}})


def sent_by_clients(*, sessions: bool) -> list[str]:
    """Return the requests of an era, and one that no revision has."""
    of_era = [
        method.name
        for method in METHODS.values()
        if method.sender is not From.SERVER
        and not method.notification
        and (method.sessions if sessions else method.sessionless)
    ]
    return [*of_era, "unknown/method"]


def whole_server() -> Server:
    server = Server("whole", settings=SETTINGS)

    @server.resource("x://y")
    async def r() -> str:
        return "text"

    @server.tool
    async def t() -> str:
        return "ran"

    @server.prompt
    async def p(a: str) -> str:
        return a

    return server


@virtual_test
async def test_each_method_of_a_session_that_begins_no_work_is_served() -> None:
    server = whole_server()
    peer = Peer(server.asgi())
    async with aclosing(server.engine):
        await peer.initialize()
        server.engine.draining = True
        served = set()
        for number, method in enumerate(sent_by_clients(sessions=True)):
            asking = Peer(server.asgi()) if method == "initialize" else peer
            call = await asking.post(request(number, method, params_of(method))).done()
            if call.status == 503:
                assert_refused(call, number)
            else:
                served.add(method)
        assert set(sent_by_clients(sessions=True)) - served == BEGIN_WORK - {"subscriptions/listen"}


@virtual_test
async def test_each_method_of_2026_07_28_that_begins_no_work_is_served() -> None:
    server = whole_server()
    peer = Peer(server.asgi())
    async with aclosing(server.engine):
        await peer.sessionless("server/discover", {}).done()
        server.engine.draining = True
        served = set()
        for method in sent_by_clients(sessions=False):
            params = params_of(method)
            call = await peer.sessionless(method, params).done()
            if call.status == 503:
                assert_refused(call, 1)
            else:
                served.add(method)
        assert set(sent_by_clients(sessions=False)) - served == BEGIN_WORK - {"initialize"}


@front_test
async def test_a_stateless_server_describes_itself_and_lists_and_refuses_calls() -> None:
    async with bench(Settings(stateless=True, times=Times(drain=DRAIN))) as b:
        peer = b.peer()
        await peer.initialize()
        b.engine.draining = True
        assert (await peer.initialize()).status == 200, "no session remains of it"
        assert (await peer.post(request(1, "ping")).done()).status == 200
        assert_refused(await peer.call(2).done(), 2)
        assert b.runs == []


@front_test
async def test_a_member_of_a_batch_is_refused_by_itself() -> None:
    async with bench(SETTINGS) as b:
        peer = b.peer()
        await peer.initialize(OLDEST)
        b.engine.draining = True
        call = await peer.post([request(1, "ping"), request(2, "tools/call", {"name": "quick"})]).done()
        members: Any = call.received[0]
        answers = {member["id"]: member for member in members}
        assert answers[1]["result"] == {}
        assert "This request was not executed" in answers[2]["error"]["message"]
        assert b.runs == []


@pytest.mark.parametrize("is_shared", [True, False])
@front_test
async def test_a_repeat_of_a_cut_post_reads_the_running_call(*, is_shared: bool) -> None:
    async with bench(SETTINGS, store=ScriptedStore(is_shared=is_shared)) as b:
        peer = b.peer()
        await peer.initialize()
        first = await peer.call(1, "held").begun()
        drain = await draining(b)
        await first.cut()
        again = await peer.call(1, "held").begun()
        b.release.set()
        await drain
        assert [message["id"] for message in (await again.done()).messages if "id" in message] == [1]
        assert b.runs == ["held"]


@front_test
async def test_an_answer_that_was_not_written_is_there_for_a_repeat() -> None:
    async with bench(SETTINGS) as b:
        peer = b.peer()
        await peer.initialize()
        first = peer.call(1, "held")
        other = await peer.call(2, "ticks").begun()
        await first.cut()
        b.release.set()
        await other.done()
        b.release.clear()
        busy = await peer.call(3, "held").begun()
        drain = await draining(b)
        again = await peer.call(1, "held").done()
        assert [message["id"] for message in again.messages if "id" in message] == [1]
        b.release.set()
        await drain
        await busy.done()
        assert b.runs == ["held", "ticks", "held"]


@front_test
async def test_a_call_that_asks_gets_its_answer() -> None:
    async with bench(SETTINGS) as b:
        peer = b.peer()
        await peer.initialize()
        asking = await peer.call(1, "ask").until(1)
        drain = await draining(b)
        answer = {"jsonrpc": "2.0", "id": asking.messages[-1]["id"], "result": {"roots": []}}
        assert (await peer.post(answer).done()).status == 202
        await drain
        assert (await asking.done()).messages[-1]["result"]["tool"] == "ask"


async def parked_call(b: Bench) -> dict[str, Any]:
    """Let a call of 2026-07-28 ask; return the params of the retry that answers."""
    meta = metadata(capabilities={"roots": {}})
    parked = (await b.peer().sessionless("tools/call", {"name": "ask"}, meta=meta).done()).json["result"]
    answers: dict[str, Any] = {key: {"roots": []} for key in parked["inputRequests"]}
    return {"name": "ask", "requestState": parked["requestState"], "inputResponses": answers}


@front_test
async def test_a_parked_call_waits_for_its_retry_within_the_drain_time() -> None:
    async with bench(SETTINGS) as b:
        retry = await parked_call(b)
        drain = await draining(b)
        await asyncio.sleep(DRAIN / 2)
        assert b.engine.in_flight() == ["ask"]
        done = await b.peer().sessionless("tools/call", retry, meta=metadata()).done()
        assert done.json["result"]["tool"] == "ask"
        await drain


@front_test
async def test_a_parked_call_that_is_not_answered_ends_with_the_drain_time() -> None:
    async with bench(SETTINGS) as b:
        retry = await parked_call(b)
        began = asyncio.get_running_loop().time()
        await b.engine.drain()
        assert asyncio.get_running_loop().time() - began == DRAIN
        late = await b.peer().sessionless("tools/call", retry, meta=metadata()).done()
        assert late.json["error"]["code"] == PARKED_GONE


@front_test
async def test_an_engine_that_no_client_can_reach_any_more_does_not_wait_for_answers() -> None:
    async with bench(SETTINGS) as b:
        await parked_call(b)
        began = asyncio.get_running_loop().time()
        await b.engine.aclose()
        assert asyncio.get_running_loop().time() == began


@virtual_test
async def test_a_call_may_use_its_own_server_while_the_server_stops() -> None:
    server = Server("nested", settings=SETTINGS)

    @server.tool
    async def inner() -> str:
        return "ran"

    @server.tool
    async def outer() -> str:
        await asyncio.sleep(1)
        async with Client(server) as client:
            return str((await client.call_tool("inner")).text)

    peer = Peer(server.asgi())
    async with aclosing(server.engine):
        await peer.initialize()
        call = await peer.call(1, "outer").begun()
        await server.engine.drain()
        assert (await call.done()).messages[-1]["result"]["content"][0]["text"] == "ran"


# Streams


@asynccontextmanager
async def replicas() -> AsyncIterator[tuple[Bench, Bench]]:
    """Two replicas of one store."""
    cluster = Cluster(Limits(), LoopClock())
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(bench(SETTINGS, store=cluster.connect(name).store))
            for name in ("one", "two")
        ]
        for b in (one, two):
            await b.engine.ensure_started()
        yield one, two


async def streaming(b: Bench, version: str) -> tuple[Peer, Call]:
    peer = b.peer()
    await peer.initialize(version)
    return peer, await peer.call(1, "held").begun()


@front_test
async def test_streams_end_early_if_another_replica_stays_and_their_clients_resume_there() -> None:
    async with replicas() as (one, two):
        (new, handed_over), (_, kept) = await streaming(one, LATEST), await streaming(one, MIDDLE)
        listening = await new.get().begun()
        drain = await draining(one)
        await handed_over.done()
        await listening.done()
        assert handed_over.messages == [], "its client comes back for the answer"
        assert not kept.complete, "older revisions forbid ending a stream early"
        elsewhere = two.peer()
        elsewhere.session, elsewhere.version = new.session, new.version
        resumed = elsewhere.get(handed_over.ids[-1])
        one.release.set()
        await drain
        assert [message["id"] for message in (await resumed.done()).messages] == [1]
        assert [message["id"] for message in (await kept.done()).messages if "id" in message] == [1]
        assert one.runs == ["held", "held"]


@pytest.mark.parametrize("other", ["stops too", "is dead, and its lease runs", "is not there"])
@front_test
async def test_streams_are_served_to_their_end_if_no_other_replica_stays(other: str) -> None:
    async with replicas() as (one, two):
        if other == "stops too":
            two.engine.leaving = True
        elif other == "is not there":
            await two.engine.aclose()
        else:
            two.store.bind(lambda *_: None)
        peer, call = await streaming(one, LATEST)
        listening = await peer.get().begun()
        drain = await draining(one)
        await asyncio.sleep(DRAIN / 2)
        assert not call.complete
        assert not listening.complete
        one.release.set()
        await drain
        assert [message["id"] for message in (await call.done()).messages] == [1]


@pytest.mark.parametrize("store", [MemoryStore, lambda: ScriptedStore(is_shared=True)])
@front_test
async def test_a_single_process_serves_streams_to_their_end_and_resumes_too(store: Any) -> None:
    made: Store = store()
    async with bench(SETTINGS, store=made) as b:
        peer, call = await streaming(b, LATEST)
        drain = await draining(b)
        await asyncio.sleep(5)
        assert not call.complete
        await call.cut()
        resumed = await peer.get(call.ids[-1]).begun()
        b.release.set()
        await drain
        assert [message["id"] for message in (await resumed.done()).messages] == [1]


@front_test
async def test_streams_are_served_to_their_end_while_the_store_is_unavailable() -> None:
    store = ScriptedStore(is_shared=True)
    async with bench(SETTINGS, store=store) as b:
        _, call = await streaming(b, LATEST)
        store.fail("replicas")
        drain = await draining(b)
        await asyncio.sleep(5)
        assert not call.complete
        b.release.set()
        await drain
        assert [message["id"] for message in (await call.done()).messages] == [1]


# The drain time


@front_test
async def test_a_stop_has_one_drain_time() -> None:
    async with bench(Settings(times=Times(drain=10))) as b:
        await streaming(b, LATEST)
        began = asyncio.get_running_loop().time()
        await b.engine.leave()
        await b.engine.aclose()
        assert 10 <= asyncio.get_running_loop().time() - began < 14


@front_test
async def test_without_a_drain_time_calls_end_at_once_with_one_answer() -> None:
    async with bench(Settings(times=Times(drain=0))) as b:
        _, call = await streaming(b, LATEST)
        began = asyncio.get_running_loop().time()
        await b.engine.drain()
        assert asyncio.get_running_loop().time() - began < 2
        assert (await call.done()).messages[-1]["error"]["code"] == -32800
