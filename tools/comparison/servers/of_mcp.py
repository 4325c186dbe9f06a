# mypy: disable-error-code="import-not-found,untyped-decorator,misc,no-redef,attr-defined"
# `mcp` lives in .peers, never in our environment.
"""The server of the comparison in `mcp` 1 and `mcp` 2, on $PORT, with an event store in memory: the package has none.

`of_mcp.py stdio` speaks on stdio instead.
"""

import asyncio
import os
import sys
from itertools import count
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.streamable_http import EventMessage, EventStore
from pydantic import BaseModel

try:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp_types import ToolAnnotations
except ImportError:
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as MCPServer
    from mcp.types import ToolAnnotations


class Events(EventStore):
    """All events, by their ids; a stream is replayed after the event that the client received last."""

    def __init__(self) -> None:
        self._next = count(1)
        self._events: dict[str, tuple[str, Any]] = {}

    async def store_event(self, stream_id: str, message: Any) -> str:
        event_id = f"e{next(self._next)}"
        self._events[event_id] = (stream_id, message)
        return event_id

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        if last_event_id not in self._events:
            return None
        stream, _ = self._events[last_event_id]
        after = list(self._events)[list(self._events).index(last_event_id) + 1 :]
        for event_id in after:
            of, message = self._events[event_id]
            if of == stream and message is not None:
                await send_callback(EventMessage(message, event_id))
        return stream


class Name(BaseModel):
    name: str


IS_MCP1 = MCPServer.__name__ == "FastMCP"
mcp = MCPServer("compared", log_level="CRITICAL", **({"event_store": Events()} if IS_MCP1 else {}))
runs = count(1)


@mcp.tool(annotations=ToolAnnotations(readOnlyHint=True))
async def look(ctx: Context) -> str:
    """Look around, in four steps."""
    for step in range(4):
        await ctx.report_progress(step + 1, 4)
        await asyncio.sleep(0.05)
    return "seen"


@mcp.tool()
async def slow() -> str:
    """Return how often this tool was started."""
    number = next(runs)
    await asyncio.sleep(0.8)
    return f"run {number}"


def note(nonce: str) -> None:
    with Path(os.environ["RUNS"]).open("a") as runs_of_steps:
        runs_of_steps.write(f"{nonce}\n")


@mcp.tool()
async def steps(nonce: str, ctx: Context) -> str:
    """Take five steps, and note the start of the run."""
    note(nonce)
    for step in range(5):
        await ctx.report_progress(step + 1, 5)
        await asyncio.sleep(0.05)
    return nonce


@mcp.tool()
async def ask(ctx: Context) -> str:
    """Ask the user for a name."""
    answer = await ctx.elicit("Your name?", Name)
    return f"hello {answer.data.name}"


if "stdio" in sys.argv:
    mcp.run()
    sys.exit()
app = mcp.streamable_http_app(**({} if IS_MCP1 else {"event_store": Events()}))
uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="critical")
