"""The tools in `mcp` 2. As a program it serves by its own HTTP server on $PORT; Holdfast hosts the object `mcp`."""

import asyncio
import os

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

mcp = MCPServer("bench", log_level="ERROR")


class Answer(BaseModel):
    """The form of a question."""

    value: str


@mcp.tool()
async def echo(text: str) -> str:
    """Return the text."""
    return text


@mcp.tool()
async def events(count: int, ctx: Context) -> str:
    """Send progress a number of times, then return the number."""
    for number in range(1, count + 1):
        await ctx.report_progress(number, count)
    return str(count)


@mcp.tool()
async def asks(count: int, ctx: Context) -> str:
    """Ask the client several questions at the same time, and join its answers."""
    answers = await asyncio.gather(*(ctx.elicit(f"question {number}", Answer) for number in range(count)))
    return ",".join(answer.data.value for answer in answers)


if __name__ == "__main__":
    mcp.run(
        "streamable-http",
        port=int(os.environ["PORT"]),
        json_response=os.environ.get("MODE") != "sse",
        max_sessions=None,
    )
