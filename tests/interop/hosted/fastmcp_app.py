# mypy: disable-error-code="import-not-found,untyped-decorator"
# fastmcp lives in .peers, never in our environment.
"""Objects of fastmcp 4: an ordinary server, one with its own sign-in, one with an HTTP route, a tool that needs a token."""

import json
from typing import Any

import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp.server.auth import StaticTokenVerifier, require_scopes

from tests.interop.hosted.parts import define_tools, lifespan

mcp = FastMCP("hosted", lifespan=lifespan)
define_tools(mcp, Context, types)


@mcp.tool
async def supports(extension: str, ctx: Context) -> str:
    """Look for an extension of the client: in its session, and in this request."""
    known = ctx.client_supports_extension(extension), ctx.client_extension_settings(extension)
    return json.dumps(known)


@mcp.tool(auth=require_scopes("admin"))
async def secret() -> str:
    return "secret"


signed_in = FastMCP("signed in", auth=StaticTokenVerifier(tokens={}))
routed = FastMCP("routed")


@routed.custom_route("/health", methods=["GET"])
async def health(_request: Any) -> Any:
    raise NotImplementedError
