"""The echo tool in `mcp` 1. As a program it serves by its own HTTP server on $PORT; Holdfast hosts the object `mcp`."""

import os

from mcp.server.fastmcp import FastMCP

mcp = FastMCP("bench", port=int(os.environ["PORT"]), log_level="ERROR", json_response=True)


@mcp.tool()
async def echo(text: str) -> str:
    """Return the text."""
    return text


if __name__ == "__main__":
    mcp.run("streamable-http")
