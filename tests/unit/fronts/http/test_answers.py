"""How a request is answered: one JSON body where that is enough, a stream where it is not."""

import asyncio
from contextlib import aclosing
from typing import Any, get_args

import pytest

from limpet import Context, Server
from limpet.config import Limits, ResponseMode, Settings, Times
from limpet.stores.memory import MemoryStore
from tests.asgi import Call, Peer
from tests.messages import LATEST, metadata, modern_headers, request
from tests.support import LoopClock
from tests.unit.fronts.http.bench import MIDDLE, OLDEST, REVISIONS, Bench, bench, front_test

OLDER = (MIDDLE, OLDEST)


async def opened(b: Bench, version: str = LATEST, **options: Any) -> Peer:
    """Return a client with a session."""
    peer = b.peer(**options)
    assert (await peer.initialize(version)).status == 200
    return peer


def channels(b: Bench) -> list[Any]:
    """Return the store's exchanges and streams of all sessions."""
    assert isinstance(b.store, MemoryStore)
    return [exchange for session in b.store._sessions.values() for exchange in session.exchanges.values()]


@front_test
async def test_initialize_is_answered_with_the_session_id_and_the_negotiated_revision() -> None:
    async with bench() as b:
        for version in REVISIONS:
            answer = await b.peer().initialize(version)
            assert answer.json["id"] == "init"
            assert answer.json["result"]["protocolVersion"] == version
            session = answer.headers["mcp-session-id"]
            assert len(session) == 64
            assert all("!" <= letter <= "~" for letter in session), "visible ASCII"
        assert (await b.peer().initialize("1999-01-01")).json["result"]["protocolVersion"] == LATEST


@front_test
async def test_a_quick_call_is_one_json_body_and_no_stream_ever_existed() -> None:
    async with bench() as b:
        p = await opened(b)
        started: list[str] = []
        original = b.store.open_stream

        async def open_stream(key: str, stream: str, fence: int, tag: int) -> Any:
            started.append(stream)
            return await original(key, stream, fence, tag)

        b.store.open_stream = open_stream  # type: ignore[method-assign]
        call = await p.call(1).done()
        assert call.status == 200
        assert call.json == {"jsonrpc": "2.0", "id": 1, "result": {"tool": "quick", "id": 1}}
        assert call.headers == {"content-type": "application/json", "content-length": str(len(call.body))}
        assert started == []
        assert channels(b) == []
        assert (await p.call(2, "ticks").begun()).is_stream
        assert len(started) == 1


@front_test
async def test_a_call_that_ends_just_in_time_is_json() -> None:
    async with bench() as b:
        p = await opened(b)
        call = p.call(1, "held")
        await asyncio.sleep(0.2)
        b.release.set()
        assert (await call.done()).json["result"] == {"tool": "held", "id": 1}
        assert channels(b) == []


@front_test
async def test_a_slow_call_becomes_a_stream_with_a_position_first() -> None:
    async with bench() as b:
        p = await opened(b)
        before = LoopClock().now()
        call = await p.call(1, "held").begun()
        assert LoopClock().now() - before == pytest.approx(0.25)
        assert call.status == 200
        assert call.headers == {
            "content-type": "text/event-stream",
            "cache-control": "no-cache, no-transform",
            "x-accel-buffering": "no",
        }
        [priming] = call.events
        assert priming.id
        assert priming.data == ""
        assert 500 <= int(priming.retry) <= 3_000
        b.release.set()
        await call.done()
        assert call.messages == [{"jsonrpc": "2.0", "id": 1, "result": {"tool": "held", "id": 1}}]
        assert len(set(call.ids)) == 2
        assert call.complete


@pytest.mark.parametrize("version", OLDER)
@front_test
async def test_older_revisions_get_a_position_in_a_notification_without_effect(version: str) -> None:
    """Gemini CLI and others fail on an event with empty data, and resume only after an event with an id."""
    async with bench() as b:
        p = await opened(b, version)
        call = await p.call(1, "held").begun()
        [mark] = [event for event in call.events if event.id]
        assert mark.message["method"] == "notifications/cancelled"
        assert mark.message["params"]["requestId"] == mark.id.partition(".")[0]
        await call.cut()
        resumed = p.get(mark.id)
        b.release.set()
        await resumed.done()
        assert [event.message["id"] for event in resumed.events if event.id] == [1]
        assert [event.retry for event in call.events if event.retry]
        assert b.runs == ["held"]


@front_test
async def test_without_sessions_a_stream_gives_no_position_to_resume_from() -> None:
    async with bench(Settings(stateless=True)) as b:
        call = await b.peer().call(1, "held").begun()
        b.release.set()
        await call.done()
        assert not any(event.is_mark for event in call.events)


@front_test
async def test_the_first_notification_makes_it_a_stream_at_once() -> None:
    async with bench() as b:
        p = await opened(b)
        before = LoopClock().now()
        call = await p.call(1, "ticks").until(2)
        assert LoopClock().now() == before
        b.release.set()
        await call.done()
        assert [message.get("method", "result") for message in call.messages] == [
            "notifications/progress",
            "notifications/progress",
            "result",
        ]
        assert len(set(call.ids)) == 4


@front_test
async def test_errors_of_the_protocol_are_answers_with_status_200() -> None:
    async with bench() as b:
        p = await opened(b)
        unknown = await p.post(request(1, "no/such/method")).done()
        assert (unknown.status, unknown.json["id"], unknown.json["error"]["code"]) == (200, 1, -32601)


@front_test
async def test_a_fault_of_the_author_is_masked_and_joined_to_the_log_by_an_id() -> None:
    async with bench() as b:
        p = await opened(b)
        failed = await p.call(1, "no_such_script").done()
        assert (failed.status, failed.json["error"]["code"]) == (200, -32603)
        [note] = b.observer.named("handler.failed")
        assert str(note["correlation"]) in failed.json["error"]["message"]
        assert "no_such_script" not in failed.json["error"]["message"]


# A second initialize


@front_test
async def test_a_second_initialize_in_a_live_session_is_refused_and_changes_nothing() -> None:
    async with bench() as b:
        p = await opened(b, MIDDLE)
        first = p.session
        params = {"protocolVersion": LATEST, "clientInfo": {"name": "x"}, "capabilities": {}}
        again = await p.post(request(5, "initialize", params)).done()
        assert (again.status, again.json["id"], again.json["error"]["code"]) == (400, 5, -32600)
        assert len(await b.store.sessions()) == 1
        p.session = first
        assert (await p.call(1, "held").begun()).events[0].is_mark
        b.release.set()


@front_test
async def test_a_second_initialize_that_reattaches_a_session_calls_the_listener() -> None:
    async with bench() as b:
        p = await opened(b)
        await (await p.get().begun()).cut()
        params = {"protocolVersion": LATEST, "clientInfo": {"name": "x"}, "capabilities": {}}
        assert (await p.post(request(5, "initialize", params)).done()).status == 400
        await asyncio.sleep(0)
        assert b.back.events[-2:] == ["detached", "reattached"]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"protocolVersion": 1, "clientInfo": {"name": "x"}, "capabilities": {}},
        {"protocolVersion": LATEST, "clientInfo": {}, "capabilities": {}},
        {"protocolVersion": LATEST, "clientInfo": {"name": "x"}},
    ],
)
@front_test
async def test_a_malformed_initialize_is_refused_with_its_id_and_opens_nothing(
    params: dict[str, Any],
) -> None:
    async with bench() as b:
        refused = await b.peer().post(request("i", "initialize", params)).done()
        assert (refused.status, refused.json["id"], refused.json["error"]["code"]) == (400, "i", -32602)
        assert await b.store.sessions() == []


# Always JSON


@front_test
async def test_always_json_waits_as_long_as_it_takes() -> None:
    async with bench(response="json") as b:
        p = await opened(b)
        call = p.call(1, "held")
        await asyncio.sleep(3_000)
        assert call.writes == 0
        b.release.set()
        assert (await call.done()).json["result"]["tool"] == "held"
        assert channels(b) == []


@front_test
async def test_always_json_fails_an_ask_at_once() -> None:
    async with bench(response="json") as b:
        p = await opened(b)
        before = LoopClock().now()
        failed = await p.call(1, "ask").done()
        assert LoopClock().now() == before
        assert failed.json["error"]["code"] == -32603
        [note] = b.observer.named("handler.failed")
        assert "plain JSON only" in str(note["error"])


@front_test
async def test_always_json_drops_messages_beside_the_result() -> None:
    server = Server("plain")

    @server.tool
    async def talk(ctx: Context) -> str:
        await ctx.progress(1, 2)
        await ctx.info("working")
        return "done"

    p = Peer(server.asgi(response="json"))
    async with aclosing(server.engine):
        await p.initialize()
        params = {"name": "talk", "arguments": {}, "_meta": {"progressToken": 1}}
        call = await p.post(request(1, "tools/call", params)).done()
        assert call.json["result"]["content"] == [{"type": "text", "text": "done"}]
        assert "isError" not in call.json["result"]


@front_test
async def test_always_json_has_no_streams_to_get() -> None:
    async with bench(response="json") as b:
        p = await opened(b)
        refused = await p.get().done()
        assert (refused.status, refused.headers["allow"]) == (405, "POST, DELETE")
        assert (await p.delete()).status == 204


# Always SSE


@front_test
async def test_always_sse_sends_a_ready_result_in_one_write() -> None:
    async with bench(response="sse") as b:
        p = b.peer()
        answer = await p.initialize()
        assert answer.is_stream
        assert answer.headers["mcp-session-id"] == p.session
        call = await p.call(1).done()
        assert (call.is_stream, call.writes, len(call.chunks)) == (True, 2, 1)
        assert call.messages == [{"jsonrpc": "2.0", "id": 1, "result": {"tool": "quick", "id": 1}}]
        assert channels(b) == []


@front_test
async def test_always_sse_streams_a_slow_call_as_adaptive_does() -> None:
    async with bench(response="sse") as b:
        p = await opened(b)
        call = await p.call(1, "held").begun()
        assert len(call.ids) == 1
        b.release.set()
        assert (await call.done()).messages[0]["result"]["tool"] == "held"


# Without a session


def guests_call(p: Peer, name: Any, header: str = "") -> Call:
    """Call a tool in protocol 2026-07-28; its header says the same unless given."""
    params = {"name": name, "arguments": {}, "_meta": {**metadata(), "progressToken": 1}}
    headers = modern_headers("tools/call", {"name": header or name})
    return p.post(request(1, "tools/call", params), headers=headers)


def talkative() -> Server:
    server = Server("talkative")

    @server.tool
    async def talk(ctx: Context) -> str:
        await ctx.progress(1, 2)
        await asyncio.sleep(100)
        return "done"

    @server.tool
    async def quick() -> str:
        return "done"

    @server.tool
    async def silent() -> str:
        await asyncio.sleep(100)
        return "done"

    return server


@pytest.mark.parametrize("mode", get_args(ResponseMode))
@front_test
async def test_a_guest_is_answered_in_the_mode_that_was_set(mode: ResponseMode) -> None:
    server = talkative()
    p = Peer(server.asgi(response=mode))
    async with aclosing(server.engine):
        quick, talk = await guests_call(p, "quick").done(), await guests_call(p, "talk").done()
        assert (quick.is_stream, talk.is_stream) == (mode == "sse", mode != "json")
        for call in (quick, talk):
            [*told, answer] = call.received
            assert answer["result"]["content"] == [{"type": "text", "text": "done"}]
            assert [message["method"] for message in told] == (
                ["notifications/progress"] if call is talk and mode != "json" else []
            )


@pytest.mark.parametrize("mode", get_args(ResponseMode))
@front_test
async def test_the_response_of_a_slow_sessionless_call_begins_after_stream_after(mode: ResponseMode) -> None:
    server = talkative()
    now = asyncio.get_running_loop().time
    sent_at = now()
    async with aclosing(server.engine):
        call = await guests_call(Peer(server.asgi(response=mode)), "silent").begun()
        begins_at = 100 if mode == "json" else server.settings.times.stream_after
        assert now() - sent_at == pytest.approx(begins_at, abs=0.1)
        await call.done()
        assert call.comments == ([] if mode == "json" else ["keep-alive"] * 7)
        [answer] = call.received
        assert answer["result"]["content"] == [{"type": "text", "text": "done"}]


@front_test
async def test_the_name_header_is_compared_for_every_call() -> None:
    server = talkative()
    p = Peer(server.asgi())
    async with aclosing(server.engine):
        for header, name, status in (
            ("quick", "quick", 200),
            ("quick", "quick", 200),
            ("quick", "talk", 400),
            ("talk", "quick", 400),
            ("quick, quick", "quick", 400),
            ("quick", "quick", 200),
        ):
            assert (await guests_call(p, name, header).done()).status == status, (header, name)


@pytest.mark.parametrize("name", [{}, ["quick"], 5, None])
@front_test
async def test_a_tool_whose_name_is_no_text_is_unknown(name: Any) -> None:
    server = talkative()
    async with aclosing(server.engine):
        call = await guests_call(Peer(server.asgi()), name, "quick").done()
        assert call.json["error"] == {"code": -32602, "message": f"Unknown tool: {name}"}


# Limits of calls


@front_test
async def test_a_call_beyond_the_queue_gets_429_with_retry_after_and_its_id() -> None:
    async with bench(Settings(limits=Limits(running=1, queued=1))) as b:
        p = await opened(b)
        first, second = p.call(1, "held"), p.call(2, "held")
        await asyncio.sleep(0.1)
        third = await p.call(3, "held").done()
        assert (third.status, third.json["id"], third.json["error"]["code"]) == (429, 3, -31001)
        assert third.headers["retry-after"] == "1"
        assert (await p.post(request(4, "ping")).done()).json["result"] == {}
        b.release.set()
        assert (await first.done()).json["id"] == 1
        assert (await second.done()).json["id"] == 2
        assert b.runs == ["held", "held"]


@front_test
async def test_a_call_that_got_no_slot_in_time_gets_429_and_its_id_is_free() -> None:
    async with bench(Settings(limits=Limits(running=1, queue_seconds=30.0))) as b:
        p = await opened(b)
        first = p.call(1, "held")
        await first.begun()
        second = p.call(2, "held")
        await asyncio.sleep(29)
        assert second.writes == 0
        await second.done()
        assert (second.status, second.json["id"], second.json["error"]["code"]) == (429, 2, -31001)
        assert second.headers["retry-after"] == "1"
        b.release.set()
        await first.done()
        assert (await p.call(2).done()).json["result"]["id"] == 2


@front_test
async def test_beyond_the_limit_of_sessions_initialize_gets_503_with_retry_after() -> None:
    async with bench(Settings(limits=Limits(sessions=1))) as b:
        p = await opened(b)
        refused = await b.peer().initialize()
        assert (refused.status, refused.json["id"]) == (503, "init")
        assert int(refused.headers["retry-after"]) > 0
        await p.delete()
        assert (await b.peer().initialize()).status == 200


# Keep-alive and age


@front_test
async def test_a_silent_stream_carries_comments() -> None:
    async with bench() as b:
        p = await opened(b)
        call = await p.call(1, "held").begun()
        await asyncio.sleep(46)
        assert call.comments == ["keep-alive"] * 3
        b.release.set()
        await call.done()


def aged(low: float, high: float) -> Settings:
    return Settings(times=Times(stream_age=(low, high)))


@front_test
async def test_a_streams_connection_ends_at_its_age_and_the_client_resumes_the_rest() -> None:
    async with bench(aged(20, 40)) as b:
        p = await opened(b)
        before = LoopClock().now()
        call = await p.call(1, "ticks").done()
        assert 20 <= LoopClock().now() - before <= 40
        assert call.complete
        assert [message["params"]["progress"] for message in call.messages] == [1, 2]
        assert "detached" not in b.back.events
        resumed = await p.get(call.ids[-1]).begun()
        b.release.set()
        await resumed.done()
        assert [message["result"]["tool"] for message in resumed.messages] == ["ticks"]


@front_test
async def test_ages_are_jittered() -> None:
    async with bench(aged(20, 40)) as b:
        p = await opened(b)
        ages = []
        for number in range(5):
            before = LoopClock().now()
            await p.call(number, "held").done()
            ages.append(LoopClock().now() - before)
        assert len(set(ages)) == 5


@front_test
async def test_a_stream_that_never_falls_silent_ends_at_its_age_too() -> None:
    async with bench(aged(20.5, 20.5)) as b:
        p = await opened(b)
        call = p.call(1, "talk")
        await asyncio.sleep(25)
        assert call.complete
        assert len(call.messages) == 21


@pytest.mark.parametrize("version", OLDER)
@front_test
async def test_older_revisions_forbid_to_end_a_requests_stream_early(version: str) -> None:
    async with bench(aged(20, 40)) as b:
        p = await opened(b, version)
        call = await p.call(1, "held").begun()
        standalone = await p.get().begun()
        await asyncio.sleep(100)
        assert not call.complete
        assert standalone.complete
        b.release.set()
        assert (await call.done()).messages[0]["id"] == 1


@front_test
async def test_an_author_may_close_the_connection_and_the_client_resumes() -> None:
    async with bench() as b:
        p = await opened(b)
        before = LoopClock().now()
        call = await p.call(1, "let_go").done()
        assert LoopClock().now() == before
        assert (call.is_stream, call.complete, call.messages) == (True, True, [])
        resumed = await p.get(call.ids[0]).begun()
        b.release.set()
        assert (await resumed.done()).messages[0]["result"] == {"tool": "let_go"}
        assert "detached" not in b.back.events


@pytest.mark.parametrize("version", OLDER)
@front_test
async def test_closing_the_connection_does_nothing_where_the_revision_forbids_it(version: str) -> None:
    async with bench() as b:
        p = await opened(b, version)
        call = await p.call(1, "let_go").begun()
        await asyncio.sleep(10)
        assert not call.complete
        b.release.set()
        assert (await call.done()).messages[0]["result"] == {"tool": "let_go"}


@front_test
async def test_a_long_answer_is_kept_if_the_host_reports_a_disconnect_before_it_was_written() -> None:
    async with bench() as b:
        p = await opened(b)
        for _ in range(3):
            call = p.call(1, "big")
            call.stop_reading()
            await asyncio.sleep(0.1)
            call.leave()
            # The host's write returns in silence.
            call.read_on()
            await call.done()
        assert (await p.call(1, "big").done()).received[-1]["result"]["tool"] == "big"
        assert b.runs == ["big"]
        assert (await p.call(1, "big").done()).received[-1]["result"]["tool"] == "big"
        assert b.runs == ["big", "big"]


@front_test
async def test_a_short_answer_of_a_host_is_one_write() -> None:
    async with bench() as b:
        p = await opened(b)
        assert len((await p.call(1).done()).chunks) == 1
        long = await p.call(1, "big").done()
        assert [len(chunk) > 65_536 for chunk in long.chunks] == [True, False]
        assert long.complete
