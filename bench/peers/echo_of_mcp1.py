"""The tools in `mcp` 1. As a program it serves by its own HTTP server on $PORT; Limpet hosts the object `mcp`."""

import os

from mcp.server.fastmcp import Context, FastMCP
from peer_tools import add_tools

mcp = FastMCP(
    "bench",
    port=int(os.environ["PORT"]),
    log_level="ERROR",
    json_response=os.environ.get("MODE") != "sse",
    max_sessions=None,
)
add_tools(mcp, Context)

if __name__ == "__main__":
    mcp.run("streamable-http")
