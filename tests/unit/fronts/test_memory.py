"""The pair in memory: a client without a network."""

import asyncio
from typing import Any

import pytest

from holdfast import Context, Server
from holdfast.errors import McpError
from holdfast.fronts.memory import MemoryPeer
from tests.support import async_test, virtual_test


def make() -> Server:
    server = Server("made")
    server.tool(echo)
    server.tool(fanout)
    server.tool(forever)
    server.tool(count)
    return server


async def echo(text: str) -> str:
    return text


async def forever() -> None:
    await asyncio.Event().wait()


async def fanout(n: int, ctx: Context) -> str:
    answers = await asyncio.gather(*(ctx.sample(str(i), max_tokens=5) for i in range(n)))
    return ",".join(answer.model for answer in answers)


async def count(ctx: Context) -> str:
    for i in range(3):
        await ctx.progress(i, 3)
    return "counted"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def text(result: Any) -> str:
    found: str = result["content"][0]["text"]
    return found


@async_test
async def test_a_request_returns_its_result_and_many_run_at_once() -> None:
    async with MemoryPeer(make().engine) as peer:
        assert peer.server["serverInfo"]["name"] == "made"
        calls = [peer.request("tools/call", call("echo", text=str(i))) for i in range(100)]
        assert [text(result) for result in await asyncio.gather(*calls)] == [str(i) for i in range(100)]


@async_test
async def test_an_error_answer_is_raised_with_its_code() -> None:
    async with MemoryPeer(make().engine) as peer:
        with pytest.raises(McpError, match="nothing/such") as caught:
            await peer.request("nothing/such")
        assert caught.value.code == -32601


@async_test
async def test_asks_are_answered_concurrently() -> None:
    peak, running, all_in = 0, 0, asyncio.Event()

    async def sample(method: str, params: dict[str, Any]) -> object:
        nonlocal peak, running
        running += 1
        peak = max(peak, running)
        if running == 20:
            all_in.set()
        await all_in.wait()
        running -= 1
        asked = params["messages"][0]["content"]["text"]
        return {"role": "assistant", "model": asked, "content": {"type": "text", "text": "ok"}}

    async with MemoryPeer(make().engine, sample) as peer:
        result = await peer.request("tools/call", call("fanout", n=20))
    assert text(result) == ",".join(map(str, range(20)))
    assert peak == 20


@async_test
async def test_a_refusal_of_an_ask_reaches_the_tool() -> None:
    def refuse(method: str, params: dict[str, Any]) -> object:
        raise McpError(-1, "the user said no")

    async with MemoryPeer(make().engine, refuse) as peer:
        result = await peer.request("tools/call", call("fanout", n=1))
    assert result["isError"]
    assert "the user said no" in text(result)


@async_test
async def test_notifications_are_kept_in_order() -> None:
    async with MemoryPeer(make().engine) as peer:
        params = {**call("count"), "_meta": {"progressToken": "t"}}
        assert text(await peer.request("tools/call", params)) == "counted"
        heard = await peer.heard("notifications/progress", 3)
    assert [item.params["progress"] for item in heard] == [0, 1, 2]


@async_test
async def test_of_two_requests_with_one_id_the_later_is_refused() -> None:
    async with MemoryPeer(make().engine) as peer:
        first = asyncio.ensure_future(peer.request("tools/call", call("forever"), request_id=5))
        await asyncio.sleep(0)
        with pytest.raises(McpError, match="already in flight"):
            await peer.request("tools/call", call("echo", text="x"), request_id=5)
        assert not first.done()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first


@async_test
async def test_cancelling_a_request_cancels_its_tool() -> None:
    server = Server("made")
    began, ended = asyncio.Event(), asyncio.Event()

    @server.tool
    async def hold() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with MemoryPeer(server.engine) as peer:
        request = asyncio.ensure_future(peer.request("tools/call", call("hold")))
        await began.wait()
        request.cancel()
        await ended.wait()


@virtual_test
async def test_what_outlasts_the_drain_after_closing_is_answered_as_cancelled() -> None:
    peer = MemoryPeer(make().engine)
    await peer.__aenter__()
    request = asyncio.ensure_future(peer.request("tools/call", call("forever")))
    await asyncio.sleep(0)
    await peer.aclose()
    with pytest.raises(McpError, match="deleted"):
        await request
    with pytest.raises(McpError, match="closed"):
        await peer.request("tools/call", call("echo", text="x"))


@async_test
async def test_without_a_session_asks_are_answered_in_rounds_and_the_body_runs_once() -> None:
    runs: list[str] = []
    server = make()

    @server.tool
    async def twice(ctx: Context) -> str:
        runs.append("begun")
        first = await ctx.sample("one", max_tokens=5)
        answers = await asyncio.gather(*(ctx.sample(str(i), max_tokens=5) for i in range(5)))
        return ",".join(answer.model for answer in (first, *answers))

    async def on_ask(method: str, params: dict[str, Any]) -> object:
        asked = params["messages"][0]["content"]["text"]
        return {"role": "assistant", "model": asked, "content": {"type": "text", "text": "ok"}}

    async with MemoryPeer(server.engine, on_ask, version="2026-07-28") as peer:
        assert "2026-07-28" in peer.server["supportedVersions"]
        result = await peer.request("tools/call", call("twice"))
    assert text(result) == "one,0,1,2,3,4"
    assert runs == ["begun"]


@async_test
async def test_both_eras_hear_of_the_same_change() -> None:
    server = make()
    server.resource("note://1", name="note")(lambda: "text")
    async with (
        MemoryPeer(server.engine) as session,
        MemoryPeer(server.engine, version="2026-07-28") as guest,
    ):
        await session.request("resources/subscribe", {"uri": "note://1"})
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://1", "note://2"]}
        listening = asyncio.ensure_future(guest.request("subscriptions/listen", {"notifications": wanted}))
        (acknowledged,) = await guest.heard("notifications/subscriptions/acknowledged")
        assert acknowledged.params["notifications"] == {**wanted, "resourceSubscriptions": ["note://1"]}
        await server.resource_updated("note://1")
        server.remove_tool("count")
        server.notify_prompts_changed()
        for peer in (session, guest):
            assert len(await peer.heard("notifications/resources/updated")) == 1
            assert len(await peer.heard("notifications/tools/list_changed")) == 1
        await session.heard("notifications/prompts/list_changed")
        methods = [item.method for item in guest.notifications]
        assert "notifications/prompts/list_changed" not in methods
        listening.cancel()
        await asyncio.wait({listening})
        server.notify_tools_changed()
        await session.heard("notifications/tools/list_changed", 2)
        assert [item.method for item in guest.notifications] == methods


@async_test
async def test_a_resource_that_is_hidden_from_a_client_is_not_among_what_it_is_told_of() -> None:
    server = make()
    server.resource("note://{n}", name="notes")(lambda n: n)
    server.resource("secret://1", name="secret", enabled=False)(lambda: "text")
    async with MemoryPeer(server.engine, version="2026-07-28") as peer:
        wanted = {"resourceSubscriptions": ["note://5", "secret://1"]}
        listening = asyncio.ensure_future(peer.request("subscriptions/listen", {"notifications": wanted}))
        (acknowledged,) = await peer.heard("notifications/subscriptions/acknowledged")
    assert acknowledged.params["notifications"] == {"resourceSubscriptions": ["note://5"]}
    result = await listening
    assert result["resultType"] == "complete"
