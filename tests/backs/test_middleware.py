"""Middleware around the requests of a server behind: the same functions as around those of a `Server`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from limpet import Client, Principal, Server
from limpet.backs.components import ComponentTable
from limpet.backs.proxy.scopes import ScopeTable
from limpet.errors import McpError
from limpet.middleware import CallNext, Hooks, Middleware, MiddlewareRequest
from limpet.protocol.types import CallToolResult, ListToolsResult, Result, TextContent
from limpet.server.proxy import Proxy, ProxyArguments
from tests.backs.behind import Behind
from tests.backs.test_components import BACKS, Desk, answer, both, everywhere, user
from tests.support import virtual_test


class Hidden(Proxy):
    """A server of this process, behind a proxy."""

    summary = "in front of a server of this process"

    def __init__(self, server: Server, version: str, **given: Any) -> None:
        arguments: ProxyArguments = given  # type: ignore[assignment]
        super().__init__(Behind(server, version), arguments)


@asynccontextmanager
async def around(
    chain: list[Middleware], back: str, version: str, components: ComponentTable | None = None
) -> AsyncIterator[Client]:
    desk = Desk()
    server: Server | Proxy = desk if back == "native" else Hidden(desk, back)
    for one in chain:
        server.middleware(one)
    server.components = components
    async with Client(server, protocol_version=version, elicitation=user) as client:
        yield client


@everywhere
@both
@virtual_test
async def test_a_middleware_sees_each_request_and_may_change_params_and_result(
    back: str, version: str
) -> None:
    seen: list[str] = []

    async def outer(request: MiddlewareRequest, call_next: CallNext) -> Result:
        seen.append(request.method)
        return await call_next(request)

    class Louder(Hooks):
        async def on_call_tool(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
            if request.params["name"] != "search":
                return await call_next(request)
            arguments = {"word": request.params["arguments"]["word"].upper()}
            result = await call_next(replace(request, params={**request.params, "arguments": arguments}))
            assert isinstance(result, CallToolResult)
            return replace(result, content=[*result.content, TextContent(text="!")])

        async def on_list_tools(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
            result = await call_next(request)
            assert isinstance(result, ListToolsResult)
            return replace(result, tools=[tool for tool in result.tools if tool.name != "find"])

    table = ComponentTable(rename_tools={"search": "look"})
    async with around([outer, Louder()], back, version, table) as client:
        assert (await client.call_tool("look", {"word": "x"})).text == "found X\n!"
        # An ask goes through the middleware too, and its call is parked once.
        assert (await client.call_tool("get_answer")).text == "accept Ada"
        names = {tool.name for tool in await client.list_tools()}
        assert "look" in names
        assert "find" not in names
        assert seen.count("tools/call") == 2
        assert "tools/list" in seen


@everywhere
@both
@virtual_test
async def test_a_middleware_may_answer_itself_and_may_refuse(back: str, version: str) -> None:
    async def guard(request: MiddlewareRequest, call_next: CallNext) -> Result:
        if request.method == "tools/call" and request.params["name"] == "get_one":
            return CallToolResult(content=[TextContent(text="ours")])
        if request.method == "tools/call":
            raise ValueError("not today")
        if request.method == "prompts/list":
            raise McpError(-32001, "no prompts", {"why": "closed"})
        return await call_next(request)

    async with around([guard], back, version) as client:
        assert (await client.call_tool("get_one")).text == "ours"
        refused = await client.call_tool("search", {"word": "x"}, raise_on_error=False)
        assert refused.is_error
        assert "not today" in refused.text
        assert await answer(client, "prompts/list", {}) == "-32001 no prompts {'why': 'closed'}"


@pytest.mark.parametrize("back", BACKS[1:])
@both
@virtual_test
async def test_what_no_revision_defines_passes_a_middleware(back: str, version: str) -> None:
    class Odd(Server):
        """A server whose results have a member of an extension."""

    odd = Odd("odd")

    @odd.tool
    def one() -> CallToolResult:
        return CallToolResult(content=[TextContent(text="one")], meta={"com.example/extra": 1})

    async def unchanged(request: MiddlewareRequest, call_next: CallNext) -> Result:
        return await call_next(request)

    async def marked(request: MiddlewareRequest, call_next: CallNext) -> Result:
        result = await call_next(request)
        return replace(result, meta={**(result.meta or {}), "com.example/seen": True})

    for chain in ([unchanged], [marked]):
        async with Client(Hidden(odd, back, middleware=chain), protocol_version=version) as client:
            meta = (await client.call_tool("one")).meta or {}
            assert meta["com.example/extra"] == 1
            assert meta.get("com.example/seen", False) is (chain == [marked])


@both
@virtual_test
async def test_a_middleware_cannot_name_a_component_that_its_caller_may_not_see(version: str) -> None:
    async def redirect(request: MiddlewareRequest, call_next: CallNext) -> Result:
        if request.method != "tools/call":
            return await call_next(request)
        given = {**request.params, "name": "get_one", "arguments": {}}
        return await call_next(replace(request, params=given))

    table = ScopeTable(tools={"get_one": ["inner"]}, hidden=["inner"])
    for scopes, is_seen in ((set[str](), False), ({"inner"}, True)):
        server = Hidden(Desk(), "auto", scopes=table)
        server.middleware(redirect)
        ada = Principal(subject="ada", scopes=frozenset(scopes))
        async with Client(server, protocol_version=version, principal=ada) as client:
            if is_seen:
                assert (await client.call_tool("search", {"word": "x"})).text == "one"
                continue
            with pytest.raises(McpError, match="Unknown component"):
                await client.call_tool("search", {"word": "x"})
