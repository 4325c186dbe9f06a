"""The echo tool in `mcp` 2. As a program it serves by its own HTTP server on $PORT; Holdfast hosts the object `mcp`."""

import os

from mcp.server.mcpserver import MCPServer

mcp = MCPServer("bench", log_level="ERROR")


@mcp.tool()
async def echo(text: str) -> str:
    """Return the text."""
    return text


if __name__ == "__main__":
    mcp.run("streamable-http", port=int(os.environ["PORT"]), json_response=True)
