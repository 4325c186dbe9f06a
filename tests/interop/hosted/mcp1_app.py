# mypy: disable-error-code="import-not-found,untyped-decorator"
# `mcp` lives in .peers, never in our environment.
"""Objects of `mcp` 1.x: an ordinary server, one with its own sign-in, one with an HTTP route, a low-level one."""

from typing import Any

from mcp import types
from mcp.server.auth.settings import AuthSettings
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.lowlevel import Server
from pydantic import AnyHttpUrl

from tests.interop.hosted.parts import Verifier, define_tools, lifespan

mcp = FastMCP("hosted", lifespan=lifespan)
define_tools(mcp, Context, types)


auth = AuthSettings(
    issuer_url=AnyHttpUrl("https://a.example"), resource_server_url=AnyHttpUrl("https://b.example")
)
signed_in = FastMCP("signed in", token_verifier=Verifier(), auth=auth)
routed = FastMCP("routed")


@routed.custom_route("/health", methods=["GET"])
async def health(_request: Any) -> Any:
    raise NotImplementedError


low = Server("low")


@low.list_tools()
async def list_tools() -> list[types.Tool]:
    return [types.Tool(name="add", inputSchema={"type": "object"})]


@low.call_tool()
async def call_tool(_name: str, arguments: dict[str, Any]) -> list[types.TextContent]:
    return [types.TextContent(type="text", text=str(arguments["a"] + arguments["b"]))]
