"""The tools in fastmcp. As a program it serves by its own HTTP server on $PORT; Holdfast hosts the object `mcp`.

With RESUME=1 it keeps events in its own event store, so that a client can resume.
"""

import asyncio
import os

import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.server.event_store import EventStore

mcp = FastMCP("bench")
ended = 0


@mcp.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


@mcp.tool
async def events(count: int, ctx: Context) -> str:
    """Send progress a number of times, then return the number."""
    global ended  # noqa: PLW0603 - one process, one counter
    for number in range(1, count + 1):
        await ctx.report_progress(number, count)
    ended += 1
    return str(count)


@mcp.tool
async def finished() -> str:
    """Return how many calls of `events` have ended."""
    return str(ended)


@mcp.tool
async def asks(count: int, ctx: Context) -> str:
    """Ask the client several questions at the same time, and join its answers."""
    answers = await asyncio.gather(*(ctx.elicit(f"question {number}", str) for number in range(count)))
    return ",".join(answer.data for answer in answers)


if __name__ == "__main__":
    app = mcp.http_app(
        json_response=os.environ.get("MODE") != "sse",
        event_store=EventStore(max_events_per_stream=2_000) if os.environ.get("RESUME") else None,
    )
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="error", lifespan="on")
