"""Tools as a client meets them: listing, calling, failing."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from limpet import Context, Depends, Image, McpError, Server, ToolResult
from limpet.config import Limits, Settings
from limpet.content import ResourceLink
from limpet.errors import ConfigError
from tests.support import async_test, virtual_test
from tests.unit.server.peer import connected


def test_decorators_return_the_function_unchanged() -> None:
    server = Server("s")

    async def plain(text: str) -> str:
        return text

    assert server.tool(plain) is plain
    assert server.tool(name="other")(plain) is plain
    assert server.prompt(plain) is plain
    assert server.resource("a://{text}")(plain) is plain
    assert list(server.tools.entries) == ["plain", "other"]


def test_a_name_may_be_given_by_position() -> None:
    server = Server("s")

    @server.tool("first", title="First")
    async def one(text: str) -> str:
        return text

    @server.prompt("hello", title="Hello")
    async def two() -> str:
        return "hi"

    @server.tool()
    async def three() -> str:
        return "3"

    assert {name: entry.listed.title for name, entry in server.tools.entries.items()} == {
        "first": "First",
        "three": None,
    }
    assert [entry.listed.title for entry in server.prompts.entries.values()] == ["Hello"]
    assert server.prompts.entries.keys() == {"hello"}
    with pytest.raises(TypeError, match="two names were given, 'a' and 'b'"):
        server.tool("a", name="b")
    with pytest.raises(ConfigError, match="not a name"):
        server.tool("not a name")(one)


@async_test
async def test_a_tool_is_listed_with_all_it_was_registered_with_and_called() -> None:
    server = Server("s")

    @server.tool(title="Echo", meta={"a": 1})
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    async with connected(server) as peer:
        (listed,) = (await peer.request("tools/list"))["tools"]
        assert listed["title"] == "Echo"
        assert listed["description"] == "Say it again."
        assert listed["_meta"] == {"a": 1}
        result = await peer.call("echo", text="hi")
        assert result["content"] == [{"type": "text", "text": "hi"}]
        assert result["structuredContent"] == {"result": "hi"}


@async_test
async def test_an_unknown_tool_is_invalid_params() -> None:
    server = Server("s")
    async with connected(server) as peer:
        for name in ("nothing", 3, ["a"], None):
            with pytest.raises(McpError) as raised:
                await peer.request("tools/call", {"name": name})
            assert raised.value.code == -32602
            assert raised.value.message == f"Unknown tool: {name}"


@async_test
async def test_bad_arguments_are_a_failed_result_and_arguments_that_are_not_an_object_are_an_error() -> None:
    server = Server("s")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with connected(server) as peer:
        text = await peer.failure("add", a="x", c=1)
        assert "b: missing, but required" in text
        assert "a: " in text
        with pytest.raises(McpError) as raised:
            await peer.request("tools/call", {"name": "add", "arguments": [1]})
        assert raised.value.code == -32602


@virtual_test
async def test_a_timeout_is_a_failed_result_that_names_the_limit() -> None:
    server = Server("s")

    @server.tool(timeout=2)
    async def slow(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    @server.tool(timeout=2)
    async def own() -> str:
        raise TimeoutError("of its own")

    async with connected(server) as peer:
        assert await peer.text("slow", seconds=1) == "done"
        assert await peer.failure("slow", seconds=3) == "slow did not finish within its limit of 2 s"
        assert await peer.failure("own") == "TimeoutError: of its own"


@async_test
async def test_content_structured_results_and_explicit_results_arrive() -> None:
    server = Server("s")

    @server.tool
    async def picture() -> Image:
        return Image(b"\x89PNG")

    @server.tool
    async def explicit() -> ToolResult:
        return ToolResult(content="text", structured={"a": 1}, meta={"m": 1})

    @server.tool
    async def table() -> dict[str, int]:
        return {"a": 1}

    async with connected(server) as peer:
        (block,) = (await peer.call("picture"))["content"]
        assert block["mimeType"] == "image/png"
        result = await peer.call("explicit")
        assert result["structuredContent"] == {"a": 1}
        assert result["_meta"] == {"m": 1}
        assert (await peer.call("table"))["structuredContent"] == {"a": 1}


@async_test
async def test_a_client_of_the_oldest_revision_gets_no_resource_links() -> None:
    server = Server("s")

    @server.tool
    async def link() -> ResourceLink:
        return ResourceLink(uri="a://b", name="b")

    async with connected(server, version="2025-03-26") as peer:
        assert await peer.text("link") == "b: a://b"
    async with connected(Server("t"), version="2025-11-25") as peer:
        peer.server.add_tool(link)
        (block,) = (await peer.call("link"))["content"]
        assert block["type"] == "resource_link"


@async_test
async def test_dependencies_get_the_context_and_are_hidden() -> None:
    server = Server("s")

    def whose(ctx: Context) -> Iterator[str]:
        yield str(ctx.request_id)

    @server.tool
    async def ask(word: str, who: str = Depends(whose)) -> str:
        return f"{word} {who}"

    async with connected(server) as peer:
        (listed,) = (await peer.request("tools/list"))["tools"]
        assert list(listed["inputSchema"]["properties"]) == ["word"]
        assert await peer.text("ask", word="id") == "id 2"


@async_test
async def test_lists_come_in_pages_in_the_order_of_registration() -> None:
    server = Server("s", settings=Settings(limits=Limits(page_size=2)))

    async def tool() -> str:
        return ""

    for name in ("d", "a", "c", "b", "e"):
        server.add_tool(tool, name=name)
    async with connected(server) as peer:
        first = await peer.request("tools/list")
        assert [item["name"] for item in first["tools"]] == ["d", "a"]
        assert await peer.names("tools") == ["d", "a", "c", "b", "e"]
        for cursor in ("bogus", 3):
            with pytest.raises(McpError) as raised:
                await peer.request("tools/list", {"cursor": cursor})
            assert raised.value.code == -32602


@pytest.mark.parametrize("options", [{"name": "a b"}, {"name": "x" * 129}, {"timeout": 0}])
def test_a_registration_that_cannot_work_is_refused(options: dict[str, Any]) -> None:
    server = Server("s")

    async def fine() -> str:
        return ""

    with pytest.raises(ConfigError):
        server.add_tool(fine, **options)
    assert len(server.tools) == 0


def test_a_name_is_taken_once() -> None:
    server = Server("s")

    @server.tool
    async def one() -> str:
        return ""

    with pytest.raises(ConfigError, match="registered already"):
        server.add_tool(one)


@async_test
async def test_a_cancelled_call_sees_asyncios_cancellation() -> None:
    server = Server("s")
    running, seen = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.set()
            raise
        return ""

    async with connected(server) as peer:
        call = asyncio.ensure_future(peer.call("wait"))
        await running.wait()
        await peer.notify("notifications/cancelled", {"requestId": 1})
        with pytest.raises(McpError) as raised:
            await call
        assert raised.value.code == -32800
        await seen.wait()
