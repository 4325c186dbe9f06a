"""Components that are added, shown and hidden while the server runs, and the notifications of it."""

import asyncio
from typing import Any

import pytest

from limpet import ConfigError, Context, McpError, Principal, Server, SessionView, Settings
from tests.support import async_test
from tests.unit.server.peer import Peer, connect, connected, serving, settle

TOOLS = "notifications/tools/list_changed"
RESOURCES = "notifications/resources/list_changed"
PROMPTS = "notifications/prompts/list_changed"


async def hello() -> str:
    return "hello"


def two_tools() -> Server:
    server = Server("s")
    server.add_tool(hello, name="a")
    server.add_tool(hello, name="b")
    return server


async def is_refused(peer: Peer, tool: str) -> bool:
    answer = await peer.message("tools/call", {"name": tool})
    return bool(answer.get("error", {}).get("message") == f"Unknown tool: {tool}")


@async_test
async def test_every_client_is_notified_of_added_and_removed_tools() -> None:
    server = two_tools()
    async with serving(server):
        one, two = await connect(server), await connect(server)
        server.add_tool(hello, name="c")
        await one.wait_for(TOOLS)
        await two.wait_for(TOOLS)
        assert await one.names("tools") == ["a", "b", "c"]
        server.remove_tool("a")
        await one.wait_for(TOOLS, 2)
        assert await one.names("tools") == ["b", "c"]
        assert await is_refused(one, "a")
        with pytest.raises(KeyError, match="no tool 'a'"):
            server.remove_tool("a")


@async_test
async def test_changes_made_together_are_notified_once() -> None:
    server = two_tools()
    async with connected(server) as peer:
        for number in range(50):
            server.add_tool(hello, name=f"t{number}")
        server.add_prompt(hello)
        await peer.wait_for(PROMPTS)
        await settle()
        assert len(peer.notified(TOOLS)) == 1


@async_test
async def test_a_session_can_have_tools_of_its_own() -> None:
    server = two_tools()
    server.disable_tool("b")

    @server.tool
    async def unlock(ctx: Context) -> str:
        ctx.server.enable_tool("b", session=ctx.session)
        ctx.server.disable_tool("a", session=ctx.session)
        return "unlocked"

    async with serving(server):
        one, two = await connect(server), await connect(server)
        assert await one.names("tools") == ["a", "unlock"]
        assert await is_refused(one, "b")
        await one.call("unlock")
        await one.wait_for(TOOLS)
        await settle()
        assert two.notified(TOOLS) == []
        assert await one.names("tools") == ["b", "unlock"]
        assert await one.text("b") == "hello"
        assert await is_refused(one, "a")
        assert await two.names("tools") == ["a", "unlock"]
        assert await is_refused(two, "b")


@async_test
async def test_a_principal_sees_the_same_in_all_its_sessions() -> None:
    server = two_tools()
    ada, bob = Principal(subject="ada"), Principal(subject="bob")
    async with serving(server):
        first, second = await connect(server, principal=ada), await connect(server, principal=ada)
        other, anonymous = await connect(server, principal=bob), await connect(server)
        server.disable_tool("a", principal=ada)
        await first.wait_for(TOOLS)
        await second.wait_for(TOOLS)
        assert await first.names("tools") == await second.names("tools") == ["b"]
        assert await is_refused(second, "a")
        assert await other.names("tools") == await anonymous.names("tools") == ["a", "b"]
        server.enable_tool("a", principal=ada.key)
        assert await first.names("tools") == ["a", "b"]
        assert await first.text("a") == "hello"
        server.disable_tool("a", session=SessionView(first.session, server))
        assert await is_refused(first, "a")
        assert await second.text("a") == "hello"
        assert other.heard == anonymous.heard == []


@async_test
async def test_a_switch_that_changes_nothing_sends_no_notification() -> None:
    server = two_tools()
    async with connected(server) as peer:
        server.enable_tool("a")
        await settle()
        assert peer.heard == []
        server.disable_tool("a")
        server.disable_tool("a")
        await peer.wait_for(TOOLS)
        with pytest.raises(KeyError):
            server.enable_tool("nothing")


@async_test
async def test_resources_and_prompts_are_hidden_in_the_same_way() -> None:
    server = Server("s")
    server.add_resource("a://b", hello)
    server.add_resource("t://{x}", lambda x: x, name="t")
    server.add_prompt(hello)
    async with connected(server) as peer:
        server.disable_resource("a://b")
        server.disable_resource("t://{x}")
        server.disable_prompt("hello")
        await peer.wait_for(RESOURCES)
        await peer.wait_for(PROMPTS)
        assert await peer.names("resources") == await peer.names("prompts") == []
        for method, params in (
            ("resources/read", {"uri": "a://b"}),
            ("resources/read", {"uri": "t://1"}),
            ("prompts/get", {"name": "hello"}),
        ):
            with pytest.raises(McpError):
                await peer.request(method, params)
        server.enable_resource("a://b")
        server.enable_prompt("hello")
        assert await peer.names("resources") == await peer.names("prompts") == ["hello"]
        server.remove_resource("a://b")
        server.remove_resource("t://{x}")
        server.remove_prompt("hello")
        assert await peer.names("resources") == await peer.names("prompts") == []


@async_test
async def test_completions_of_hidden_components_are_refused_as_if_they_did_not_exist() -> None:
    server = Server("s")
    server.add_prompt(hello)
    server.add_resource("t://{x}", lambda x: x, name="t")

    @server.completion
    def anything() -> list[str]:
        return ["something"]

    async with connected(server) as peer:

        async def values(ref: dict[str, str]) -> object:
            params = {"ref": ref, "argument": {"name": "x", "value": ""}}
            return (await peer.request("completion/complete", params))["completion"]["values"]

        for ref in ({"type": "ref/prompt", "name": "hello"}, {"type": "ref/resource", "uri": "t://{x}"}):
            assert await values(ref) == ["something"]
        server.disable_prompt("hello")
        server.disable_resource("t://{x}")
        for ref in ({"type": "ref/prompt", "name": "hello"}, {"type": "ref/resource", "uri": "t://{x}"}):
            with pytest.raises(McpError, match="Unknown ") as raised:
                await values(ref)
            assert raised.value.code == -32602


@async_test
async def test_plain_functions_change_the_lists_from_their_threads() -> None:
    server = two_tools()

    @server.tool
    def grow() -> str:
        server.add_tool(hello, name="grown")
        server.notify_resources_changed()
        server.notify_prompts_changed()
        server.notify_tools_changed()
        return "grown"

    async with connected(server) as peer:
        await peer.call("grow")
        await peer.wait_for(TOOLS)
        await peer.wait_for(RESOURCES)
        await peer.wait_for(PROMPTS)
        assert "grown" in await peer.names("tools")


def test_changes_before_the_server_runs_send_no_notification() -> None:
    server = two_tools()
    server.notify_tools_changed()
    server.disable_tool("a")
    assert list(server.tools.enabled) == ["b"]


@async_test
async def test_visibility_set_for_a_session_ends_with_it() -> None:
    server = two_tools()
    closed = asyncio.Event()

    @server.on_closed
    async def note(_session: object) -> None:
        closed.set()

    @server.tool
    async def lock(ctx: Context) -> str:
        ctx.server.disable_tool("a", session=ctx.session)
        return ""

    async with serving(server):
        peer = await connect(server)
        await peer.call("lock")
        assert server.tools._choices
        await server.engine.aclose()
        await closed.wait()
        assert not server.tools._choices


@pytest.mark.parametrize("scope", [{"principal": ""}, {"principal": "x", "session": object()}])
def test_an_invalid_scope_is_refused(scope: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="session"):
        two_tools().disable_tool("a", **scope)


@async_test
async def test_a_stateless_server_remembers_nothing_for_a_session() -> None:
    server = Server("s", settings=Settings(stateless=True))

    @server.tool
    async def lock(ctx: Context) -> str:
        with pytest.raises(ConfigError, match="stateless"):
            ctx.server.disable_tool("lock", session=ctx.session)
        return "refused"

    async with connected(server) as peer:
        assert await peer.text("lock") == "refused"


def tagged() -> Server:
    server = Server("s")
    server.add_tool(hello, name="a", tags={"admin", "beta"})
    server.add_tool(hello, name="b", tags={"beta"})
    server.add_tool(hello, name="c")
    server.add_prompt(hello, name="p", tags=["admin"])
    server.add_resource("data://x", hello, tags=("admin",))
    return server


@async_test
async def test_a_tag_shows_and_hides_all_its_components() -> None:
    server = tagged()
    async with connected(server) as peer:
        server.disable(tags={"admin"})
        await peer.wait_for(TOOLS)
        await peer.wait_for(PROMPTS)
        await peer.wait_for(RESOURCES)
        assert await peer.names("tools") == ["b", "c"]
        assert await peer.names("prompts") == []
        assert await peer.names("resources") == []
        assert await is_refused(peer, "a")
        server.enable(tags={"beta", "unused"})
        assert await peer.names("tools") == ["a", "b", "c"]
        assert await peer.names("prompts") == []
        server.enable(tags={"admin"}, only=True)
        assert await peer.names("tools") == ["a"]
        assert await peer.names("prompts") == ["p"]


@async_test
async def test_tags_are_for_one_session_or_principal_too_and_follow_an_included_server() -> None:
    inner, server = tagged(), Server("outer")
    server.include(inner, prefix="in")

    @server.tool(tags={"always"})
    async def limit(ctx: Context) -> str:
        ctx.server.disable(tags={"beta"}, session=ctx.session)
        return "done"

    async with serving(server):
        one, two = await connect(server), await connect(server)
        await one.call("limit")
        assert await one.names("tools") == ["in_c", "limit"]
        assert await two.names("tools") == ["in_a", "in_b", "in_c", "limit"]
        inner.disable(tags={"admin"})
        assert await two.names("tools") == ["in_b", "in_c", "limit"]


@pytest.mark.parametrize("tags", ["admin", [""], [1]])
def test_wrong_tags_are_refused(tags: Any) -> None:
    server = Server("s")
    with pytest.raises(ConfigError, match="tags are texts"):
        server.add_tool(hello, tags=tags)
    with pytest.raises(ConfigError, match="enable: tags are texts"):
        server.enable(tags=tags)
