"""`subscriptions/listen` over HTTP, on the loop's own clock."""

import asyncio
from typing import Any

from limpet.auth import Principal
from limpet.config import Settings, Times
from limpet.protocol.subscriptions import Change
from limpet.testing.store.limits import tight
from tests.asgi import Call
from tests.messages import MODERN, metadata, request
from tests.schema import validate
from tests.support import LoopClock
from tests.unit.fronts.http.bench import Bench, bench, front_test

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
TOOLS = {"toolsListChanged": True}


def listen(b: Bench, wanted: object, request_id: int | str = 1, *, token: str = "") -> Call:
    return b.peer(token=token).sessionless("subscriptions/listen", {"notifications": wanted}, id=request_id)


def judged(call: Call) -> list[Any]:
    """Return the stream's messages, each valid."""
    for message in call.messages:
        validate(message, MODERN, answers="subscriptions/listen")
    return call.messages


class Tokens:
    """A verifier whose tokens are valid for a minute."""

    async def __call__(self, token: str) -> Principal | None:
        return Principal(subject=token, expires=LoopClock().wall() + 60)


@front_test
async def test_the_acknowledgement_comes_at_once_then_changes_as_they_happen() -> None:
    async with bench() as b:
        call = await listen(b, {**TOOLS, "resourceSubscriptions": ["a://1"]}, "s").until(1)
        assert call.is_stream
        await b.engine.changed(Change("resource", "a://1"))
        await b.engine.changed(Change("resource", "a://2"))
        await b.engine.changed(Change("prompts"))
        await b.engine.changed(Change("tools"))
        await call.until(3)
        assert [message["method"] for message in judged(call)] == [
            "notifications/subscriptions/acknowledged",
            "notifications/resources/updated",
            "notifications/tools/list_changed",
        ]
        assert {message["params"]["_meta"][SUBSCRIPTION] for message in call.messages} == {"s"}
        assert not call.ids
        await call.cut()


@front_test
async def test_a_silent_stream_is_kept_alive_with_comments() -> None:
    async with bench(Settings(times=Times(keep_alive=15))) as b:
        call = await listen(b, TOOLS).until(1)
        await asyncio.sleep(46)
        assert len(call.comments) == 3
        await b.engine.changed(Change("tools"))
        await call.until(2)
        await call.cut()


@front_test
async def test_closing_the_response_ends_it_promptly() -> None:
    async with bench() as b:
        call = await listen(b, TOOLS).until(1)
        assert len(b.engine.listening) == 1
        before = asyncio.get_running_loop().time()
        await call.cut()
        assert asyncio.get_running_loop().time() == before
        assert len(b.engine.listening) == 0
        writes = call.writes
        await b.engine.changed(Change("tools"))
        assert call.writes == writes


@front_test
async def test_a_reader_that_stalls_is_dropped_at_the_stall_limit() -> None:
    async with bench(Settings(times=Times(write_stall=30))) as b:
        call = await listen(b, TOOLS).until(1)
        call.stop_reading()
        await b.engine.changed(Change("tools"))
        await asyncio.sleep(29)
        assert len(b.engine.listening) == 1
        await asyncio.sleep(2)
        assert (len(b.engine.listening), call.transport.aborted) == (0, True)
        assert call.task.done()


@front_test
async def test_a_reader_that_is_too_far_behind_is_dropped_at_once_and_another_takes_its_place() -> None:
    limits = tight(listeners=1, listener_changes=2)
    async with bench(Settings(limits=limits, times=Times(write_stall=30))) as b:
        uris = [f"a://{n}" for n in range(5)]
        slow = await listen(b, {"resourceSubscriptions": uris}).until(1)
        slow.stop_reading()
        await b.engine.changed(Change("resource", uris[0]))
        await asyncio.sleep(0)
        for uri in uris[1:]:
            await b.engine.changed(Change("resource", uri))
        assert slow.transport.aborted
        other = await listen(b, TOOLS).until(1)
        await other.cut()
        await asyncio.sleep(31)
        assert slow.task.done()
        assert len(slow.messages) == 1


@front_test
async def test_one_listener_too_many_is_refused_with_a_reason_and_a_time() -> None:
    settings = Settings(limits=tight(listeners_per_principal=1))
    async with bench(settings, verifier=Tokens()) as b:
        mine = await listen(b, TOOLS, token="me").until(1)
        refused = await listen(b, TOOLS, token="me").done()
        assert (refused.status, refused.json["error"]["code"]) == (429, -31001)
        assert refused.headers["retry-after"] == "30"
        yours = await listen(b, TOOLS, token="you").until(1)
        await mine.cut()
        again = await listen(b, TOOLS, token="me").until(1)
        await yours.cut()
        await again.cut()


@front_test
async def test_a_malformed_filter_is_refused_before_any_stream() -> None:
    async with bench() as b:
        malformed: list[object] = [
            None,
            [],
            {"toolsListChanged": "yes"},
            {"resourceSubscriptions": [1]},
        ]
        for wanted in malformed:
            refused = await listen(b, wanted).done()
            assert (refused.status, refused.json["error"]["code"]) == (400, -32602)
            assert refused.json["id"] == 1
        unknown = await listen(b, {"taskIds": ["t"]}).done()
        assert (unknown.status, unknown.json["error"]["code"]) == (400, -32021)


@front_test
async def test_the_stream_ends_with_the_callers_token() -> None:
    async with bench(verifier=Tokens()) as b:
        call = await listen(b, TOOLS, token="me").until(1)
        await asyncio.sleep(59)
        assert len(call.messages) == 1
        await asyncio.sleep(2)
        assert call.complete
        assert judged(call)[-1]["result"] == {"resultType": "complete", "_meta": {SUBSCRIPTION: 1}}
        assert len(b.engine.listening) == 0


@front_test
async def test_stopping_ends_a_hundred_listeners_with_the_completion_result_within_a_second() -> None:
    async with bench() as b:
        calls = [await listen(b, TOOLS, n).until(1) for n in range(100)]
        await b.engine.changed(Change("tools"))
        before = asyncio.get_running_loop().time()
        await b.engine.aclose()
        assert asyncio.get_running_loop().time() - before < 1
        for n, call in enumerate(calls):
            await call.done()
            messages = judged(call)
            assert [message.get("method", "result") for message in messages] == [
                "notifications/subscriptions/acknowledged",
                "notifications/tools/list_changed",
                "result",
            ]
            assert messages[-1]["id"] == n
            assert call.complete


@front_test
async def test_a_listener_and_a_running_call_do_not_wait_for_each_other_when_the_server_stops() -> None:
    """Trap 37: listeners are ended before anything waits for handlers."""
    async with bench(Settings(times=Times(drain=20))) as b:
        listener = await listen(b, TOOLS).until(1)
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "held"}
        held = b.peer().post(request(2, "tools/call", {"name": "held", "_meta": metadata()}), headers=headers)
        while not b.runs:
            await asyncio.sleep(0)
        stopping = asyncio.ensure_future(b.engine.drain())
        await listener.done()
        assert listener.messages[-1]["result"]["resultType"] == "complete"
        refused = await listen(b, TOOLS).done()
        assert refused.status == 503
        b.release.set()
        await stopping
        assert (await held.done()).json["result"]["tool"] == "held"


@front_test
async def test_get_and_delete_are_not_how_this_revision_listens() -> None:
    async with bench() as b:
        peer = b.peer()
        peer.version = MODERN
        assert (await peer.get().done()).status == 405
        assert (await peer.delete()).status == 405
