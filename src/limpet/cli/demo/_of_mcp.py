# mypy: disable-error-code="import-not-found,untyped-decorator,misc,no-any-unimported,unused-ignore"
# The SDK is not a dependency: this module runs only where it is installed.
"""The server of the demo for the official SDK, 1.x or 2.x, with the tools of `ours.py`.

The SDK resumes streams if it is given an event store, and has none of its own. It gets one here, in memory.
"""

import asyncio
import contextlib
import socket
import sys
from collections import Counter
from typing import Any, Final

import uvicorn
from mcp.server.streamable_http import EventMessage, EventStore

try:
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver import MCPServer as Framework

    IS_FIRST = False
except ImportError:
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as Framework

    IS_FIRST = True


class Events(EventStore):
    """Keeps every event of the process in one list. The id of an event is its place."""

    def __init__(self) -> None:
        self._events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Keep an event and return its id."""
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        """Send the later events of the same stream."""
        place = int(last_event_id)
        stream = self._events[place - 1][0]
        for number, (of, message) in enumerate(self._events[place:], place + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


_events: Final = Events()
mcp: Final = Framework("demo", log_level="ERROR", **({"event_store": _events} if IS_FIRST else {}))
_started: Final[list[str]] = []
_counts: Final = Counter[int]()


@mcp.tool()
async def echo(text: str, seconds: float = 0.0) -> str:
    """Return the text after some time."""
    await asyncio.sleep(seconds)
    return text


@mcp.tool()
async def steps(text: str, count: int, seconds: float, ctx: Context) -> str:
    """Report progress several times, then return the text."""
    _started.append(text)
    for step in range(1, count + 1):
        await ctx.report_progress(step, count)
        await asyncio.sleep(seconds)
    return text


@mcp.tool()
async def started() -> str:
    """Return the texts of the calls of `steps` that ran in this process."""
    return " ".join(_started)


@mcp.tool()
async def bump(ctx: Context) -> str:
    """Add one to a counter of the session, and return it."""
    _counts[id(ctx.session)] += 1
    return str(_counts[id(ctx.session)])


def serve() -> None:
    """Serve on a free port and print the URL, as `limpet serve` does."""
    app = mcp.streamable_http_app(**({} if IS_FIRST else {"event_store": _events}))
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as sock:
        sys.stderr.write(f"serving http://127.0.0.1:{sock.getsockname()[1]}/mcp\n")
        sys.stderr.flush()
        running = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(running.serve(sockets=[sock]))
