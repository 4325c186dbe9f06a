# mypy: disable-error-code="import-not-found,untyped-decorator"
# `mcp` lives in .peers, never in our environment.
"""A read-only tool that takes a moment, in `mcp` 2, on $PORT."""

import asyncio
import os

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

mcp = MCPServer("slow", log_level="ERROR")


@mcp.tool(annotations=ToolAnnotations(readOnlyHint=True))
async def look() -> str:
    """Look around."""
    await asyncio.sleep(0.1)
    return "seen"


mcp.run("streamable-http", port=int(os.environ["PORT"]))
