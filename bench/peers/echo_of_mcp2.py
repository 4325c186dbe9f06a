"""The tools in `mcp` 2. As a program it serves by its own HTTP server on $PORT; Limpet hosts the object `mcp`."""

import os

from mcp.server.mcpserver import Context, MCPServer
from peer_tools import add_tools

mcp = MCPServer("bench", log_level="ERROR")
add_tools(mcp, Context)

if __name__ == "__main__":
    mcp.run(
        "streamable-http",
        port=int(os.environ["PORT"]),
        json_response=os.environ.get("MODE") != "sse",
        max_sessions=None,
    )
