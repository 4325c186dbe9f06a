# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
# `mcp` lives in .peers/mcp2, never in our environment.
"""A server of `mcp` 2.x that asks its client many questions at once. Arguments: a port, or nothing for stdio."""

import asyncio
import sys

import mcp_types as types
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 0
server = MCPServer("fanout")


@server.tool()
async def fanout(n: int, ctx: Context) -> str:
    """Ask the client's model n questions at once."""

    async def one(number: int) -> str:
        asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=str(number)))
        answer = await ctx.session.create_message([asked], max_tokens=10, related_request_id=ctx.request_id)
        return str(answer.content.text)

    return ",".join(await asyncio.gather(*(one(number) for number in range(n))))


@server.tool()
async def echo(text: str) -> str:
    """Return the text."""
    return text


if PORT:
    server.run("streamable-http", port=PORT)
else:
    server.run("stdio")
