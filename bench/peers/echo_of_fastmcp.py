"""The echo tool in fastmcp. As a program it serves by its own HTTP server on $PORT; Holdfast hosts the object `mcp`."""

import os

from fastmcp import FastMCP

mcp = FastMCP("bench")


@mcp.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


if __name__ == "__main__":
    mcp.run(
        transport="http",
        port=int(os.environ["PORT"]),
        log_level="ERROR",
        show_banner=False,
        json_response=True,
    )
