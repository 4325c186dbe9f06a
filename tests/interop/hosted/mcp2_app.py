# mypy: disable-error-code="import-not-found,untyped-decorator"
# `mcp` lives in .peers, never in our environment.
"""Objects of `mcp` 2.x: an ordinary server, one with its own sign-in, one with an HTTP route, a low-level one."""

from typing import Any

import mcp_types as types
from mcp.server.auth.settings import AuthSettings
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from pydantic import AnyHttpUrl

from tests.interop.hosted.parts import Verifier, define_tools, lifespan

mcp = MCPServer("hosted", lifespan=lifespan)
define_tools(mcp, Context, types)


@mcp.tool()
async def revision(ctx: Context) -> str:
    return str(ctx.request_context.protocol_version)


auth = AuthSettings(
    issuer_url=AnyHttpUrl("https://a.example"), resource_server_url=AnyHttpUrl("https://b.example")
)
signed_in = MCPServer("signed in", token_verifier=Verifier(), auth=auth)
routed = MCPServer("routed")


@routed.custom_route("/health", methods=["GET"])
async def health(_request: Any) -> Any:
    raise NotImplementedError


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="add", input_schema={"type": "object"})])


async def call_tool(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    given = params.arguments or {}
    return types.CallToolResult(content=[types.TextContent(type="text", text=str(given["a"] + given["b"]))])


low = Server("low", on_list_tools=list_tools, on_call_tool=call_tool)


class Own(Server):  # type: ignore[misc]
    """A server with a `run` of its own."""

    async def run(self, *args: Any, **more: Any) -> None:
        self.ran = True
        await super().run(*args, **more)


async def tell(_ctx: Any, _params: Any) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=str(getattr(own, "ran", False)))]
    )


own = Own("own", on_list_tools=list_tools, on_call_tool=tell)
