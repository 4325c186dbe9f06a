"""The HTTP requests of a client, one by one: headers, order, resumption, retries and results, as the specification wants them."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import pytest

from limpet import Client
from limpet.client import ClientTimes
from limpet.errors import BadAnswer, CallTimeout, HttpRefused, McpError, VersionRefused
from limpet.ports import SystemClock, SystemRandom
from limpet.testing import NotingObserver
from limpet.upstream.negotiation import EraMemory
from tests.client.torture import Exchange, Hangup, Mischief, Sent, Torture, cut_after, plain, streamed
from tests.messages import BOTH, LATEST, MODERN, PREFIX
from tests.support import async_test, until

TIMES: Final = ClientTimes(patience=5.0, settle=0.5, backoff=(0.005, 0.05), standalone=0.05)
ERAS: Final = {"sessions": False, "sessionless": True}


@asynccontextmanager
async def against(era: str, **options: Any) -> AsyncIterator[tuple[Torture, Client]]:
    server = Torture(1, is_modern=ERAS[era], mischief=0.0)
    url = await server.start()
    given = {"times": TIMES, "eras": EraMemory(), "protocol_version": era, **options}
    try:
        async with Client(url, **given) as client:
            yield server, client
    finally:
        await server.aclose()


async def say(client: Client, token: str, **options: Any) -> str:
    return (await client.call_tool("echo", {"token": token}, **options)).text


def methods(sent: list[Sent]) -> list[str]:
    return [one.message.get("method", "response") if one.verb == "POST" else one.verb for one in sent]


def replying(result: dict[str, Any]) -> Mischief:
    """Answer a call with this result."""

    async def reply(exchange: Exchange) -> None:
        message = {"jsonrpc": "2.0", "id": exchange.message["id"], "result": result}
        await exchange.send(200, json.dumps(message).encode())

    return reply


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], "resultType": "complete"}


# Every request


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_each_message_is_one_post_that_takes_both_forms(era: str) -> None:
    async with against(era) as (server, client):
        await asyncio.gather(*(say(client, str(number)) for number in range(3)))
        await client.list_tools()
        posts = [one for one in server.sent if one.verb == "POST"]
        assert methods(posts).count("tools/call") == 3
        for one in posts:
            assert (one.headers["accept"], one.headers["content-type"]) == (BOTH, "application/json")
            assert one.message["jsonrpc"] == "2.0", "one message, no array"


@async_test
async def test_initialize_comes_first_and_initialized_second() -> None:
    async with against("sessions") as (server, client):
        await say(client, "later")
        first, second = server.sent[:2]
        assert (first.message["method"], second.message["method"]) == (
            "initialize",
            "notifications/initialized",
        )
        params = first.message["params"]
        assert params["protocolVersion"] == LATEST
        assert params["clientInfo"]["name"] == "limpet"
        assert type(params["capabilities"]) is dict
        assert "mcp-session-id" not in first.headers


@async_test
async def test_every_request_after_initialize_has_the_session_and_the_version() -> None:
    server = Torture(1, is_modern=False, mischief=0.0)
    server.version = "2025-06-18"
    async with aclosing(server):
        url = await server.start()
        async with Client(url, times=TIMES, eras=EraMemory(), protocol_version="sessions") as client:
            await until(lambda: "GET" in methods(server.sent))
            server.script.append(resumable("s", retry=1))
            assert await say(client, "cut") == "cut"
            server.sessions.clear()
            assert await say(client, "in the next session") == "in the next session"
        await until(lambda: methods(server.sent)[-1] == "DELETE")
        session = ""
        for one in server.sent:
            if one.message.get("method") == "initialize":
                assert not {"mcp-session-id", "mcp-protocol-version"} & one.headers.keys()
                session = f"session-{int(session[-1:] or 0) + 1}"
            else:
                assert one.headers["mcp-session-id"] == session
                assert one.headers["mcp-protocol-version"] == "2025-06-18", "the negotiated one"
            if one.verb == "GET":
                assert one.headers["accept"] == "text/event-stream"
        assert session == "session-2"


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_every_request_carries_the_token(era: str) -> None:
    async with against(era, auth="secret") as (server, client):
        if era == "sessions":
            await until(lambda: "GET" in methods(server.sent))
        await say(client, "a")
    await until(lambda: era == "sessionless" or methods(server.sent)[-1] == "DELETE")
    assert {one.headers.get("authorization") for one in server.sent} == {"Bearer secret"}


@async_test
async def test_requests_without_a_session_repeat_version_method_and_name_as_headers() -> None:
    async with against("sessionless") as (server, client):
        await say(client, "a")
        await client.request("resources/read", {"uri": "größe://a"})
        await client.request("tasks/get", {"taskId": "t1"})
        await client.request("tasks/cancel", {"taskId": "t1"})
        await client.list_tools()
        names = {
            "tools/call": "echo",
            "resources/read": "=?base64?Z3LDtsOfZTovL2E=?=",
            "tasks/get": "t1",
            "tasks/cancel": "t1",
        }
        assert {*names, "server/discover", "tools/list"} == set(methods(server.sent))
        for one in server.sent:
            method = one.message["method"]
            assert one.headers["mcp-protocol-version"] == MODERN
            assert one.headers["mcp-method"] == method
            assert one.headers.get("mcp-name") == names.get(method)
            assert "mcp-session-id" not in one.headers
            meta = one.message["params"]["_meta"]
            assert meta[f"{PREFIX}protocolVersion"] == MODERN
            assert meta[f"{PREFIX}clientInfo"]["name"] == "limpet"
            assert type(meta[f"{PREFIX}clientCapabilities"]) is dict


# Answers


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_body_and_a_stream_are_both_read(era: str) -> None:
    async with against(era) as (server, client):
        server.script.extend([plain, streamed])
        assert [await say(client, "one"), await say(client, "two")] == ["one", "two"]


def resumable(name: str, *, retry: int) -> Mischief:
    """Send two events with an id, then cut the stream; the answer waits for a resumption after the second event."""

    async def cut(exchange: Exchange) -> None:
        exchange.server.kept[name] = exchange.answer
        await exchange.stream()
        await exchange.write(f"id: before-{name}\nretry: {retry}\ndata:\n\nid: {name}\ndata:\n\n".encode())
        raise Hangup

    return cut


@async_test
async def test_a_stream_is_resumed_with_the_id_of_its_last_event_after_the_time_that_the_server_asked_for() -> (
    None
):
    resumed: list[tuple[str, float]] = []
    async with against("sessions") as (server, client):
        server.on_resume = lambda one: resumed.append((one.headers["last-event-id"], time.monotonic()))
        server.script.append(resumable("s", retry=300))
        began = time.monotonic()  # real time is the subject
        assert await say(client, "cut") == "cut"
        (event, when), *more = resumed
        assert event == "s"
        assert when - began >= 0.3
        assert {event for event, _ in more} <= {"s"}
        assert server.executed["cut"] == 1


@pytest.mark.parametrize("kind", ["strange", 5, None])
@async_test
async def test_a_result_of_an_unknown_kind_is_invalid(kind: object) -> None:
    async with against("sessionless") as (server, client):
        server.script.append(replying({**text("a"), "resultType": kind}))
        with pytest.raises(BadAnswer, match="unknown kind"):
            await say(client, "a")
        without = text("b")
        del without["resultType"]
        server.script.append(replying(without))
        assert await say(client, "b") == "b", "a result without a kind is complete"
        client._profile.capabilities["extensions"] = {"com.example/own": {}}
        server.script.append(replying({**text("c"), "resultType": "strange"}))
        assert (await client.request("tools/call", {"name": "echo"}))["resultType"] == "strange"


@async_test
async def test_only_a_tool_call_may_become_a_task() -> None:
    async with against("sessionless") as (server, client):
        server.listed["prompts/get"] = {"resultType": "task", "taskId": "t", "status": "working"}
        with pytest.raises(BadAnswer, match="unknown kind, 'task'"):
            await client.get_prompt("greet")


@async_test
async def test_a_version_that_the_client_does_not_speak_ends_the_connection() -> None:
    server = Torture(1, is_modern=False, mischief=0.0)
    server.version = "2099-01-01"
    async with aclosing(server):
        with pytest.raises(VersionRefused, match="2099-01-01"):
            await Client(await server.start(), eras=EraMemory(), protocol_version="sessions").__aenter__()
        assert methods(server.sent) == ["initialize"]


@async_test
async def test_a_session_id_is_in_no_error_and_no_repr() -> None:
    async def refused(exchange: Exchange) -> None:
        await exchange.send(403, b"no")

    async with against("sessions") as (server, client):
        server.script.extend([refused, cut_after])
        said = repr(client) + repr(client._connection)
        for _ in range(2):
            with pytest.raises((HttpRefused, McpError)) as failed:
                await say(client, "a")
            said += f"{failed.value!r} {failed.value} {failed.value.__cause__!r}"
        assert "session-1" not in said


# Retries (2026-07-28)


@async_test
async def test_a_retry_returns_the_state_exactly_and_only_with_its_own_call() -> None:
    state = ' {"a":"ü\\n"} \\u0000'
    asks = {"k": {"method": "roots/list", "params": {}}}
    waiting = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await waiting.wait()
        await plain(exchange)

    async def roots() -> list[str]:
        """Answer, while another call begins."""
        other = asyncio.create_task(say(client, "parallel"))
        await until(lambda: len(server.sent) > 2)
        waiting.set()
        await other
        return []

    async with against("sessionless", roots=roots) as (server, client):
        wants = {"resultType": "input_required", "inputRequests": asks}
        server.script.extend([replying({**wants, "requestState": state}), held, replying(wants), plain])
        assert await say(client, "mine") == "mine"
        calls = [one.message for one in server.sent if one.message["method"] == "tools/call"]
        mine = [one for one in calls if one["params"]["arguments"]["token"] == "mine"]
        first, with_state, without = mine
        assert with_state["params"]["requestState"] == state
        assert "requestState" not in first["params"]
        assert "requestState" not in without["params"]
        assert all("inputResponses" in one["params"] for one in (with_state, without))
        for one in calls:
            if one not in mine:
                assert not {"requestState", "inputResponses"} & one["params"].keys()
        assert len({one["id"] for one in calls}) == len(calls)


# Headers that repeat parameters (2026-07-28)


def mirrored(name: str, header: object) -> dict[str, Any]:
    properties = {
        "token": {"type": "string"},
        "region": {"type": "string", "x-mcp-header": header},
        "count": {"type": "integer", "x-mcp-header": "Count"},
    }
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


@async_test
async def test_our_client_repeats_parameters_as_headers() -> None:
    async with against("sessionless") as (server, client):
        server.tools = [mirrored("echo", "Region")]
        await client.list_tools()
        given: list[tuple[dict[str, Any], dict[str, str]]] = [
            ({"region": "eu", "count": 7}, {"mcp-param-region": "eu", "mcp-param-count": "7"}),
            ({"region": "größe"}, {"mcp-param-region": "=?base64?Z3LDtsOfZQ==?="}),
            ({"region": None}, {}),
            ({}, {}),
        ]
        for arguments, headers in given:
            await client.call_tool("echo", {"token": "t", **arguments})
            sent = server.sent[-1].headers
            assert {name: value for name, value in sent.items() if name.startswith("mcp-param-")} == headers


@async_test
async def test_our_client_reads_the_tools_again_when_its_headers_are_refused() -> None:
    async def mismatch(exchange: Exchange) -> None:
        error = {"code": -32020, "message": "Header mismatch"}
        body = {"jsonrpc": "2.0", "id": exchange.message["id"], "error": error}
        await exchange.send(400, json.dumps(body).encode())

    async with against("sessionless") as (server, client):
        await client.list_tools()
        server.tools = [mirrored("echo", "Area")]
        server.script.append(mismatch)
        await client.call_tool("echo", {"token": "t", "region": "eu"})
        assert methods(server.sent)[-3:] == ["tools/call", "tools/list", "tools/call"]
        assert server.sent[-1].headers["mcp-param-area"] == "eu"


@async_test
async def test_a_tool_whose_headers_break_a_rule_is_left_out_with_a_warning() -> None:
    observer = NotingObserver()
    ports = (SystemClock(), SystemRandom(), observer)
    async with against("sessionless", ports=ports) as (server, client):
        server.tools = [mirrored("good", "Region"), mirrored("bad", "no header"), mirrored("twice", "count")]
        assert [tool.name for tool in await client.list_tools()] == ["good"]
        noted = [(note["tool"], str(note["error"])) for note in observer.named("client.tool_left_out")]
        assert [tool for tool, _ in noted] == ["bad", "twice"]
        assert "not a header name" in noted[0][1]


# Times


@async_test
async def test_progress_does_not_extend_the_time_of_a_call() -> None:
    async def busy(exchange: Exchange) -> None:
        token = exchange.message["params"]["_meta"]["progressToken"]
        await exchange.stream()
        number = 0
        while not exchange.server.over.is_set():
            number += 1
            params = {"progressToken": token, "progress": number}
            message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
            await exchange.write(f"data: {json.dumps(message)}\n\n".encode())
            # Real time is the subject: progress that comes more often than the limit of the call.
            await asyncio.sleep(0.02)
        raise Hangup

    seen: list[float] = []
    async with against("sessionless") as (server, client):
        while len(seen) < 2:  # A loaded machine may need the time for less.
            seen.clear()
            server.script.append(busy)
            with pytest.raises(CallTimeout, match=r"0\.3 s"):
                await say(client, "a", timeout=0.3, progress=lambda number, *_rest: seen.append(number))


@async_test
async def test_a_handshake_that_is_given_up_sends_no_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Torture(1, is_modern=False, mischief=0.0)
    async with aclosing(server):
        begun = asyncio.Event()

        async def silent(_exchange: Exchange) -> None:
            begun.set()
            await server.over.wait()
            raise Hangup

        monkeypatch.setattr(server, "_initialize", silent)
        client = Client(await server.start(), times=TIMES, eras=EraMemory(), protocol_version="sessions")
        opening = asyncio.create_task(client.__aenter__())
        await begun.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert methods(server.sent) == ["initialize"]


# Calls that become tasks


def task(status: str, **members: Any) -> dict[str, Any]:
    return {"resultType": "complete", "taskId": "t", "status": status, "pollIntervalMs": 200, **members}


@async_test
async def test_the_client_polls_as_often_as_the_server_says() -> None:
    polls: list[float] = []

    def poll(_params: dict[str, Any]) -> dict[str, Any]:
        polls.append(time.monotonic())  # real time is the subject
        return task("working") if len(polls) < 3 else task("completed", result=text("done"))

    async with against("sessionless") as (server, client):
        server.listed["tasks/get"] = poll
        server.script.append(replying({**task("working"), "resultType": "task"}))
        assert await say(client, "slow") == "done"
        assert len(polls) == 3
        assert all(later - earlier >= 0.2 for earlier, later in itertools.pairwise(polls))


@async_test
async def test_each_question_of_a_task_is_answered_once() -> None:
    asked: list[str] = []

    async def sample(params: Any) -> str:
        asked.append(params.messages[0].content.text)
        return "an answer"

    content = {"type": "text", "text": "a question"}
    question = {"messages": [{"role": "user", "content": content}], "maxTokens": 5}
    wants = {"q": {"method": "sampling/createMessage", "params": question}}
    states = [
        *[task("input_required", inputRequests=wants, pollIntervalMs=50)] * 3,
        task("completed", result=text("done")),
    ]
    async with against("sessionless", sampling=sample) as (server, client):
        server.listed["tasks/get"] = lambda _params: states.pop(0)
        server.script.append(replying({**task("working", pollIntervalMs=50), "resultType": "task"}))
        assert await say(client, "slow") == "done"
        assert asked == ["a question"]
        (update,) = [one.message for one in server.sent if one.message.get("method") == "tasks/update"]
        assert update["params"]["inputResponses"]["q"]["content"] == {"type": "text", "text": "an answer"}
