# mypy: disable-error-code="import-not-found,untyped-decorator"
# `mcp` lives in .peers, never in our environment.
"""A server of the official Python SDK, as its users write one: the README checks it."""

import asyncio
import os

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ToolAnnotations

mcp = MCPServer("shop", log_level="ERROR")


@mcp.tool(annotations=ToolAnnotations(readOnlyHint=True))
async def look(ctx: Context) -> str:
    """Look around, and report progress."""
    for step in range(3):
        await ctx.report_progress(step + 1, 3)
        await asyncio.sleep(0.05)
    return "seen"


if __name__ == "__main__":
    mcp.run("streamable-http", port=int(os.environ.get("PORT", "8000")))
