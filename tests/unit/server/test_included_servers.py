"""An included server keeps its own middleware, listeners and lifespan, and some settings it cannot keep."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from limpet import Context, McpError, Principal, Server, SessionView, ToolError
from limpet.core.lifecycle import SessionInput
from limpet.errors import ConfigError
from limpet.middleware import CallNext, MiddlewareRequest
from limpet.protocol.types import (
    CallToolResult,
    ReadResourceResult,
    Result,
    TextContent,
    TextResourceContents,
)
from tests.support import async_test
from tests.unit.server.peer import connected, serving
from tests.unit.server.sessionless_client import SessionlessClient

Json = dict[str, Any]
SEEN = list[tuple[str, str, object]]
"""Which server's middleware saw which method, and for which component."""


def noting(server: Server, seen: SEEN) -> Server:
    """Let a server's middleware record its requests."""

    @server.middleware
    async def note(request: MiddlewareRequest, call_next: CallNext) -> Result:
        params = request.params
        asked = params.get("name") or params.get("uri") or params.get("ref")
        if asked is not None:
            seen.append((server.name, request.method, asked))
        assert request.ctx.lifespan == f"{server.name}'s"
        return await call_next(request)

    return server


def living(name: str, lives: list[str] | None = None) -> Server:
    """Make a server with a lifespan of its own."""

    async def life() -> AsyncIterator[str]:
        if lives is not None:
            lives.append(f"{name} in")
        yield f"{name}'s"
        if lives is not None:
            lives.append(f"{name} out")

    return Server(name, lifespan=life)


def stocked(name: str) -> Server:
    """Make a server with one of each."""
    server = living(name)

    @server.tool
    async def tool(ctx: Context, word: str = "") -> str:
        return f"{ctx.lifespan} {word}"

    @server.prompt
    async def prompt(word: str) -> str:
        return word

    @server.resource("r://fixed")
    async def fixed() -> str:
        return "fixed"

    @server.resource("r://t/{word}{?q}")
    async def template(word: str, q: str = "") -> str:
        return word + q

    @server.completion(prompt="prompt", argument="word")
    async def words(value: str) -> list[str]:
        return [f"{value}!"]

    return server


REQUESTS: list[tuple[str, Json, str]] = [
    ("tools/call", {"name": "a_b_tool", "arguments": {"word": "w"}}, "tool"),
    ("prompts/get", {"name": "a_b_prompt", "arguments": {"word": "w"}}, "prompt"),
    ("resources/read", {"uri": "r://a/b/fixed"}, "r://fixed"),
    ("resources/read", {"uri": "r://a/b/t/x?q=1"}, "r://t/x?q=1"),
]


@async_test
async def test_a_request_passes_the_middleware_of_each_server_that_includes_its_component() -> None:
    seen: SEEN = []
    inner = noting(stocked("inner"), seen)
    middle, outer = noting(living("middle"), seen), noting(living("outer"), seen)
    middle.include(inner, prefix="b")
    outer.include(middle, prefix="a")
    async with connected(outer) as peer:
        for client in (peer, SessionlessClient(outer)):
            for method, params, local in REQUESTS:
                seen.clear()
                await client.request(method, params)
                given = params.get("name") or params["uri"]
                between = local.replace("r://", "r://b/") if "r://" in local else f"b_{local}"
                names = [("outer", given), ("middle", between), ("inner", local)]
                assert seen == [(who, method, name) for who, name in names]
            assert await client.text("a_b_tool", word="w") == "inner's w"


@async_test
async def test_completions_and_subscriptions_pass_it_too() -> None:
    seen: SEEN = []
    child, host = noting(stocked("child"), seen), living("host")
    host.include(child, prefix="c")
    ref = {"type": "ref/prompt", "name": "c_prompt"}
    async with connected(host) as peer:
        asked = {"ref": ref, "argument": {"name": "word", "value": "v"}}
        completed = await peer.request("completion/complete", asked)
        assert completed["completion"]["values"] == ["v!"]
        await peer.request("resources/subscribe", {"uri": "r://c/t/x"})
        assert seen == [
            ("child", "completion/complete", {"type": "ref/prompt", "name": "prompt"}),
            ("child", "resources/subscribe", "r://t/x"),
        ]


@async_test
async def test_a_childs_middleware_wraps_its_own_components_only() -> None:
    seen: SEEN = []
    host, first, second = living("host"), noting(stocked("first"), seen), noting(stocked("second"), seen)
    host.include(first, prefix="one")
    host.include(second, prefix="two")
    host.add_tool(lambda: "mine", name="mine")
    async with connected(host) as peer:
        assert await peer.text("mine") == "mine"
        await peer.request("tools/list")
        assert seen == []
        await peer.call("two_tool")
        assert seen == [("second", "tools/call", "tool")]


@async_test
async def test_a_childs_middleware_may_change_answer_refuse_and_come_later() -> None:
    child, host = stocked("child"), living("host")
    host.include(child, prefix="c")

    @child.middleware
    async def guard(request: MiddlewareRequest, call_next: CallNext) -> Result:
        word = request.params.get("arguments", {}).get("word")
        if word == "no":
            raise ToolError("not here")
        if word == "fault":
            raise LookupError("lost")
        if word == "elsewhere":
            return await call_next(
                msgspec.structs.replace(request, params={**request.params, "name": "other"})
            )
        if word == "changed":
            params = {**request.params, "arguments": {"word": "for the better"}}
            return await call_next(msgspec.structs.replace(request, params=params))
        if request.method == "resources/read":
            contents = TextResourceContents(uri="r://c/fixed", text="from the guard")
            return ReadResourceResult(contents=[contents])
        result = await call_next(request)
        if isinstance(result, CallToolResult):
            return msgspec.structs.replace(result, content=[TextContent(text="guarded")])
        return result

    async with connected(host) as peer:
        for client in (peer, SessionlessClient(host)):
            assert await client.text("c_tool") == "guarded"
            assert await client.text("c_tool", word="changed") == "child's for the better"
            assert await client.failure("c_tool", word="no") == "not here"
            assert await client.failure("c_tool", word="fault") == "LookupError: lost"
            with pytest.raises(McpError, match="may change everything else"):
                await client.call("c_tool", word="elsewhere")
            with pytest.raises(McpError, match="not here"):
                await client.request("prompts/get", {"name": "c_prompt", "arguments": {"word": "no"}})
            (read,) = (await client.request("resources/read", {"uri": "r://c/fixed"}))["contents"]
            assert read["text"] == "from the guard"


@async_test
async def test_a_childs_listeners_are_called_once_per_session_even_if_it_is_included_twice() -> None:
    told: list[tuple[str, str]] = []
    host, child, grandchild = Server("host"), Server("child"), Server("grandchild")
    for server in (host, child, grandchild):

        @server.on_opened
        async def opened(session: SessionView, name: str = server.name) -> None:
            told.append((name, f"opened {session.client_info.name}"))

        @server.on_closed
        async def closed(session: SessionView, reason: str, name: str = server.name) -> None:
            told.append((name, reason))

        @server.on_roots_changed
        async def roots(session: SessionView, name: str = server.name) -> None:
            told.append((name, "roots"))

    child.include(grandchild, prefix="g")
    host.include(child, prefix="c")
    host.include(grandchild, prefix="d")
    async with connected(host) as peer:
        await peer.notify("notifications/roots/list_changed")
        await host.engine.sessions.close(peer.session, SessionInput.DELETED)
    for event in ("opened peer", "roots", "deleted"):
        assert [name for name, what in told if what == event] == ["host", "child", "grandchild"]


@async_test
async def test_the_listener_of_a_child_is_called_if_its_host_has_none() -> None:
    opened = asyncio.Event()
    host, child = Server("host"), Server("child")

    @child.on_opened
    async def noticed(_: SessionView) -> None:
        opened.set()

    host.include(child, prefix="c")
    async with connected(host):
        await asyncio.wait_for(opened.wait(), 10)


@async_test
async def test_two_parents_of_one_child_share_its_lifespan_until_the_last_one_stops() -> None:
    lives: list[str] = []
    child = living("child", lives)

    @child.tool
    async def whose(ctx: Context) -> str:
        return str(ctx.lifespan)

    first, second = Server("first"), Server("second")
    for parent in (first, second):
        parent.include(child, prefix="c")
    first.include(child, prefix="again")
    async with serving(second):
        async with serving(first):
            assert await SessionlessClient(first).text("again_whose") == "child's"
        assert lives == ["child in"]
        assert await SessionlessClient(second).text("c_whose") == "child's"
    assert lives == ["child in", "child out"]
    async with serving(first):
        assert await SessionlessClient(first).text("c_whose") == "child's"
    assert lives == ["child in", "child out"] * 2


@async_test
async def test_parents_that_start_at_once_enter_a_lifespan_once_and_fail_together() -> None:
    entering, go = asyncio.Event(), asyncio.Event()
    entered: list[str] = []

    async def slow() -> AsyncIterator[str]:
        entered.append("in")
        entering.set()
        await go.wait()
        if len(entered) > 1:
            raise OSError("no")
        yield "value"

    child = Server("child", lifespan=slow)
    parents = [Server("first"), Server("second")]
    for parent in parents:
        parent.include(child)
    for fails in (False, True):
        starts = [asyncio.create_task(parent.engine.ensure_started()) for parent in parents]
        await entering.wait()
        go.set()
        results = await asyncio.gather(*starts, return_exceptions=True)
        entering.clear()
        go.clear()
        if fails:
            assert [str(result) for result in results] == ["no", "no"]
        else:
            assert (results, child.lifespan_value) == ([None, None], "value")
            for parent in parents:
                await parent.engine.aclose()
    assert entered == ["in", "in"]


@async_test
async def test_a_child_with_a_verifier_is_refused() -> None:
    async def verifier(token: str) -> Principal | None:
        return Principal(subject=token)

    guarded, between, host = Server("guarded", verifier=verifier), Server("between"), Server("host")
    guarded.add_tool(lambda: "secret", name="secret")
    for parent in (host, between):
        with pytest.raises(ConfigError, match="'guarded' has a verifier"):
            parent.include(guarded)
    assert len(host.tools) == 0
    late = Server("late")
    between.include(late)
    host.include(between)
    late.verifier = verifier
    with pytest.raises(ConfigError, match="'late' has a verifier"):
        await host.engine.ensure_started()
