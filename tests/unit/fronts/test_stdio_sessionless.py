"""2026-07-28 over stdio from outside: a real process, real pipes."""

import json
import signal
import time
from typing import Any

from tests.schema import validate
from tests.support import async_test
from tests.unit.fronts.stdio_process import StdioClient, small_server

VERSION = "2026-07-28"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


def call(client: StdioClient, request_id: int | str, tool: str, **arguments: Any) -> None:
    client.sessionless(request_id, "tools/call", name=tool, arguments=arguments)


def text(answer: Any) -> str:
    found: str = answer["result"]["content"][0]["text"]
    return found


@async_test
async def test_a_probe_finds_both_eras_and_an_initialize_may_follow() -> None:
    async with small_server() as client:
        client.sessionless("probe", "server/discover")
        found = await client.answered("probe")
        validate(found, VERSION, answers="server/discover")
        assert {VERSION, "2025-11-25"} <= set(found["result"]["supportedVersions"])
        call(client, 1, "echo", text="alone")
        answer = await client.answered(1)
        validate(answer, VERSION, answers="tools/call")
        assert text(answer) == "alone"
        await client.open()
        client.call(2, "echo", text="in a session")
        assert text(await client.answered(2)) == "in a session"
        call(client, 3, "echo", text="alone again")
        assert text(await client.answered(3)) == "alone again"


@async_test
async def test_a_probe_of_another_version_is_answered_with_the_supported_ones() -> None:
    async with small_server() as client:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2099-01-01",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        client.say("server/discover", 1, _meta=meta)
        refused = await client.answered(1)
        assert refused["error"]["code"] == -32022
        assert VERSION in refused["error"]["data"]["supported"]


@async_test
async def test_two_asks_one_after_the_other_are_two_rounds_of_one_run() -> None:
    async with small_server() as client:
        params: dict[str, Any] = {"name": "twice", "arguments": {}}
        asked: list[str] = []
        client.sessionless(1, "tools/call", **params)
        result = (await client.answered(1))["result"]
        for number in (2, 3):
            assert result["resultType"] == "input_required"
            ((key, request),) = result["inputRequests"].items()
            asked.append(request["params"]["messages"][0]["content"]["text"])
            answer = {"role": "assistant", "model": asked[-1], "content": {"type": "text", "text": "ok"}}
            client.sessionless(
                number,
                "tools/call",
                **params,
                requestState=result["requestState"],
                inputResponses={key: answer},
            )
            result = (await client.answered(number))["result"]
        assert result["content"][0]["text"] == "first,second in 1"
        assert all("method" not in message for message in client.received), "no request of the server's"


@async_test
async def test_a_cancelled_call_is_stopped_and_nothing_is_sent_for_it() -> None:
    async with small_server() as client:
        call(client, 1, "wait", gate="a")
        call(client, 2, "echo", text="running")
        await client.answered(2)
        client.say("notifications/cancelled", requestId=1)
        call(client, 3, "open_gate", gate="a")
        await client.answered(3)
        call(client, 1, "echo", text="free")
        assert text(await client.answered(1)) == "free"
        client.hang_up()
        out, err, status = await client.rest()
    assert (out, status) == ([], 0)
    assert "a cancelled" in err
    assert [message["id"] for message in client.received] == [2, 3, 1]


@async_test
async def test_an_id_in_flight_is_refused() -> None:
    async with small_server() as client:
        call(client, 1, "wait", gate="a")
        call(client, 1, "echo", text="duplicate")
        assert (await client.answered(1))["error"]["code"] == -32600
        call(client, 2, "open_gate", gate="a")
        assert text(await client.answered(1)) == "a opened"


@async_test
async def test_listeners_share_the_channel_with_a_session_and_the_end_of_input_completes_them() -> None:
    async with small_server() as client:
        await client.open()
        client.sessionless("tools", "subscriptions/listen", notifications={"toolsListChanged": True})
        assert (await client.notified(ACKNOWLEDGED))["_meta"] == {SUBSCRIPTION: "tools"}
        wanted = {"resourceSubscriptions": ["note://1"], "promptsListChanged": True}
        client.sessionless(7, "subscriptions/listen", notifications=wanted)
        acknowledged = await client.notified(ACKNOWLEDGED)
        assert acknowledged["notifications"] == {"resourceSubscriptions": ["note://1"]}, "it has no prompts"
        call(client, 1, "grow", name="more")
        told = [await client.next() for _ in range(4)]
        client.hang_up()
        out, _, status = await client.rest()
    marks = {
        (message.get("method"), message.get("params", {}).get("_meta", {}).get(SUBSCRIPTION))
        for message in told
    }
    assert marks == {
        (None, None),
        ("notifications/tools/list_changed", None),
        ("notifications/tools/list_changed", "tools"),
        ("notifications/resources/updated", 7),
    }
    ends = {message["id"]: message for message in out}
    assert status == 0
    assert ends.keys() == {"tools", 7}
    for request_id, message in ends.items():
        validate(message, VERSION, answers="subscriptions/listen")
        assert message["result"] == {"resultType": "complete", "_meta": {SUBSCRIPTION: request_id}}


@async_test
async def test_the_end_of_input_lets_running_calls_finish_and_ends_parked_ones() -> None:
    async with small_server("--drain", "60") as client:
        call(client, 1, "slow", seconds=0.5)
        call(client, 2, "twice")
        assert (await client.answered(2))["result"]["resultType"] == "input_required"
        before = time.monotonic()
        client.hang_up()
        out, err, status = await client.rest()
    assert time.monotonic() - before < 40, "the drain time is not waited for after the end of the call"
    assert status == 0
    assert [text(message) for message in out] == ["slept"]
    assert "lifespan left" in err


@async_test
async def test_a_signal_completes_listeners_and_drains_too() -> None:
    async with small_server() as client:
        client.sessionless(1, "subscriptions/listen", notifications={"toolsListChanged": True})
        await client.notified(ACKNOWLEDGED)
        call(client, 2, "slow", seconds=0.3)
        call(client, 3, "echo", text="running")
        await client.answered(3)
        client.process.send_signal(signal.SIGTERM)
        out, _, status = await client.rest()
    assert status == 0
    assert {message["id"]: json.dumps(message["result"]).count("complete") for message in out} == {1: 1, 2: 1}
