# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
# `mcp` lives in .peers/mcp1, never in our environment.
"""A server of `mcp` 1.x that asks its client many questions at once. Arguments: a port, or nothing for stdio."""

import asyncio
import sys

from mcp import types
from mcp.server.fastmcp import Context, FastMCP

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 0
server = FastMCP("fanout", port=PORT or 8000, log_level="ERROR")


@server.tool()
async def fanout(n: int, ctx: Context) -> str:
    """Ask the client's model n questions at once."""

    async def one(number: int) -> str:
        asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=str(number)))
        answer = await ctx.session.create_message(
            [asked], max_tokens=10, related_request_id=str(ctx.request_id) if PORT else None
        )
        return str(answer.content.text)

    return ",".join(await asyncio.gather(*(one(number) for number in range(n))))


@server.tool()
async def echo(text: str) -> str:
    """Return the text."""
    return text


server.run("streamable-http" if PORT else "stdio")
