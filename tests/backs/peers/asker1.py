# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
# `mcp` lives in .peers/mcp1, never in our environment.
"""An ordinary server of `mcp` 1.x. Arguments: a port, or nothing for stdio."""

import asyncio
import os
import sys

from mcp import types
from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 0
server = FastMCP("asker", port=PORT or 8000, log_level="ERROR")


class Answer(BaseModel):
    """A form with one field."""

    text: str


@server.tool()
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool()
async def two(ctx: Context) -> str:
    """Ask the user twice."""
    first = await ctx.elicit("first?", Answer)
    second = await ctx.elicit("second?", Answer)
    return f"{first.data.text} {second.data.text}"


@server.tool()
async def count(n: int, ctx: Context) -> str:
    """Report progress n times."""
    for number in range(n):
        await ctx.report_progress(number + 1, n)
        await asyncio.sleep(0.02)
    return "counted"


@server.tool()
async def five(ctx: Context) -> str:
    """Ask the client's model five questions at once."""

    async def one(number: int) -> str:
        asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=str(number)))
        answer = await ctx.session.create_message(
            [asked], max_tokens=10, related_request_id=str(ctx.request_id) if PORT else None
        )
        return str(answer.content.text)

    return ",".join(await asyncio.gather(*(one(number) for number in range(5))))


@server.tool()
async def process() -> int:
    """Return the number of this process."""
    return os.getpid()


@server.tool()
async def die() -> str:
    """End the process in the middle of a call."""
    sys.stderr.write("the disk is full\n")
    sys.stderr.flush()
    os._exit(3)


server.run("streamable-http" if PORT else "stdio")
