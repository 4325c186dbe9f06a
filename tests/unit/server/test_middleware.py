"""Middleware with a hook for each method, and the two middlewares that come with the package."""

import asyncio
import logging
from typing import Any

import pytest

from limpet import Context, Image, McpError, Server, ToolError
from limpet.errors import ConfigError
from limpet.middleware import CallNext, Hooks, MiddlewareRequest, RequestLog, ResponseLimit
from limpet.server.authoring.middleware import HOOKS
from limpet.types import Result
from tests.support import async_test, until
from tests.unit.server.peer import connected


def everything() -> Server:
    server = Server("s")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.resource("data://one")
    async def one() -> str:
        return "1"

    @server.prompt
    async def greet() -> str:
        return "hello"

    @server.completion
    async def complete(value: str) -> list[str]:
        return [value + "!"]

    return server


REQUESTS: dict[str, dict[str, Any]] = {
    "tools/call": {"name": "echo", "arguments": {"text": "hi"}},
    "tools/list": {},
    "resources/read": {"uri": "data://one"},
    "resources/list": {},
    "resources/templates/list": {},
    "prompts/get": {"name": "greet"},
    "prompts/list": {},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "greet"},
        "argument": {"name": "a", "value": "x"},
    },
}


@async_test
async def test_each_method_has_its_hook_inside_on_request() -> None:
    seen: list[tuple[str, str]] = []

    def hook(name: str) -> Any:
        async def noted(self: Hooks, request: MiddlewareRequest, call_next: CallNext) -> Result:
            seen.append((name, request.method))
            return await call_next(request)

        return noted

    names = ["on_request", *HOOKS.values()]
    server = everything()
    server.middleware(type("All", (Hooks,), {name: hook(name) for name in names})())
    assert REQUESTS.keys() == HOOKS.keys()
    async with connected(server) as peer:
        for method, params in REQUESTS.items():
            await peer.request(method, params)
            assert seen == [("on_request", method), (HOOKS[method], method)]
            seen.clear()
        await peer.request("ping")
        assert seen == [("on_request", "ping")]


@async_test
async def test_a_method_without_an_overridden_hook_does_not_pass_through_the_object() -> None:
    class OnlyLists(Hooks):
        async def on_list_tools(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
            raise McpError(-32000, "no lists today")

    server = everything()
    plain = server.native.handlers
    server.middleware(OnlyLists())
    changed = {method for method in plain if server.native.handlers[method].__name__ == "surrounded"}
    assert changed == {"tools/list"}
    async with connected(server) as peer:
        assert (await peer.message("tools/list"))["error"]["message"] == "no lists today"
        assert (await peer.call("echo", text="hi"))["content"][0]["text"] == "hi"


@async_test
async def test_hooks_of_an_included_server_see_its_own_names() -> None:
    seen: list[str] = []

    class Names(Hooks):
        async def on_call_tool(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
            seen.append(request.params["name"])
            return await call_next(request)

    inner, outer = everything(), Server("outer")
    inner.middleware(Names())
    outer.include(inner, prefix="in")
    async with connected(outer) as peer:
        assert (await peer.call("in_echo", text="hi"))["content"][0]["text"] == "hi"
    assert seen == ["echo"]


# The log


@async_test
async def test_the_log_has_one_record_for_each_request(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")
    server.middleware(RequestLog("tests.requests"))

    @server.tool
    async def works(secret: str) -> str:
        return secret

    @server.tool
    async def fails() -> str:
        raise ToolError("no")

    caplog.set_level(logging.INFO, "tests.requests")
    async with connected(server) as peer:
        await peer.call("works", secret="s3cret")
        await peer.call("fails")
        await peer.message("prompts/get", {"name": "évil\nname"})
    found = [
        (vars(record)["mcp_method"], vars(record)["mcp_name"], vars(record)["mcp_outcome"], record.levelname)
        for record in caplog.records
        if record.name == "tests.requests"
    ]
    assert found == [
        ("tools/call", "works", "ok", "INFO"),
        ("tools/call", "fails", "failed", "WARNING"),
        ("prompts/get", "\\xe9vil\\nname", "InvalidParams", "WARNING"),
    ]
    assert all(vars(record)["mcp_milliseconds"] >= 0 for record in caplog.records if "mcp" in record.name)
    assert "s3cret" not in caplog.text


@async_test
async def test_the_log_has_a_record_for_a_cancelled_request(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")
    server.middleware(RequestLog("tests.requests"))
    began = asyncio.Event()

    @server.tool
    async def waits(ctx: Context) -> str:
        began.set()
        await asyncio.Event().wait()
        return "never"

    caplog.set_level(logging.INFO, "tests.requests")
    async with connected(server) as peer:
        call = asyncio.create_task(peer.call("waits"))
        await began.wait()
        await peer.notify("notifications/cancelled", {"requestId": 1})
        await until(lambda: "waits: cancelled" in caplog.text)
        call.cancel()


# The limit


def limited(most: int, **options: Any) -> Server:
    server = Server("s")
    server.middleware(ResponseLimit(most, **options))

    @server.tool
    async def text(size: int) -> str:
        return "é" * size

    @server.tool(output_schema=False)
    async def texts(size: int) -> list[Any]:
        return ["short", "x" * size]

    @server.tool
    async def table(size: int) -> dict[str, int]:
        return {str(number): number for number in range(size)}

    @server.tool
    async def picture(size: int) -> Image:
        return Image(b"x" * size)

    return server


@async_test
async def test_a_long_text_is_cut_and_says_so() -> None:
    async with connected(limited(1000)) as peer:
        assert "cut" not in (await peer.call("text", size=50))["content"][-1]["text"]
        result = await peer.call("text", size=100_000)
    first, note = (block["text"] for block in result["content"])
    assert first
    assert set(first) == {"é"}
    assert "the limit is 1,000" in note
    assert result["structuredContent"]["result"] == first + note
    assert not result.get("isError")


@async_test
async def test_a_cut_result_is_as_long_as_the_limit_allows() -> None:
    class Sizes(Hooks):
        async def on_call_tool(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
            from limpet.wire.jsonrpc import encode  # noqa: PLC0415 - only this hook needs it

            result = await call_next(request)
            sizes.append(len(encode(result)))
            return result

    sizes: list[int] = []
    server = Server("outer")
    server.middleware(Sizes())
    server.include(limited(1000))
    async with connected(server) as peer:
        for size in (400, 500, 5_000):
            await peer.call("text", size=size)
            await peer.call("texts", size=size * 3)
    assert all(995 <= size <= 1000 for size in sizes)


@async_test
async def test_a_result_that_cannot_be_cut_fails_with_its_size() -> None:
    async with connected(limited(1000)) as peer:
        for tool in ("table", "picture"):
            result = await peer.call(tool, size=5_000)
            assert result["isError"]
            assert "the limit is 1,000: request a smaller part" in result["content"][0]["text"]
            assert not (await peer.call(tool, size=3)).get("isError")


@async_test
async def test_the_limit_may_be_for_some_tools_only() -> None:
    async with connected(limited(1000, tools={"table"})) as peer:
        assert len((await peer.call("text", size=5_000))["content"][0]["text"]) == 5_000
        assert (await peer.call("table", size=5_000))["isError"]


def test_a_limit_without_room_for_the_note_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 400"):
        ResponseLimit(10)
