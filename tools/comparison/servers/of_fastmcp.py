# mypy: disable-error-code="import-not-found,untyped-decorator"
# fastmcp lives in .peers, never in our environment.
"""The server of the comparison in FastMCP, on $PORT, with the package's own event store in memory."""

import asyncio
import os
from itertools import count
from pathlib import Path

import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.server.event_store import EventStore

mcp = FastMCP("compared")
runs = count(1)


@mcp.tool(annotations={"readOnlyHint": True})
async def look(ctx: Context) -> str:
    """Look around, in four steps."""
    for step in range(4):
        await ctx.report_progress(step + 1, 4)
        await asyncio.sleep(0.05)
    return "seen"


@mcp.tool
async def slow() -> str:
    """Return how often this tool was started."""
    number = next(runs)
    await asyncio.sleep(0.8)
    return f"run {number}"


def note(nonce: str) -> None:
    with Path(os.environ["RUNS"]).open("a") as runs_of_steps:
        runs_of_steps.write(f"{nonce}\n")


@mcp.tool
async def steps(nonce: str, ctx: Context) -> str:
    """Take five steps, and note the start of the run."""
    note(nonce)
    for step in range(5):
        await ctx.report_progress(step + 1, 5)
        await asyncio.sleep(0.05)
    return nonce


@mcp.tool
async def ask(ctx: Context) -> str:
    """Ask the user for a name."""
    answer = await ctx.elicit("Your name?", str)
    return f"hello {answer.data}"


app = mcp.http_app(event_store=EventStore(), host_origin_protection="auto")
uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="critical")
