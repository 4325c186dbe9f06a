# mypy: disable-error-code="import-not-found,untyped-decorator"
# `mcp` lives in .peers, never in our environment.
"""The tools of `slow_front.py`, as a server of `mcp`: python slow_peer.py FOLDER [PORT]; without a port, on stdio.

It is a server of 2.x there. `slow_front.py` also hosts it, in its own process, as an object of 1.x.
"""

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.transport_security import TransportSecuritySettings
from pydantic import BaseModel

try:
    from mcp.server.mcpserver import MCPServer
except ImportError:
    from mcp.server.fastmcp import FastMCP as MCPServer

FOLDER, *PORTS = sys.argv[1:] if __name__ == "__main__" else (os.environ["SLOW_FOLDER"],)
RELEASE = Path(FOLDER) / "handed-over"
mcp = MCPServer("slow")
counts = {"order": 0, "bump": 0}


class Branch(BaseModel):
    """A tree: its schema refers to itself."""

    name: str
    branches: list["Branch"] = []


async def _handed_over() -> None:
    while not RELEASE.exists():
        await asyncio.sleep(0.02)
    RELEASE.unlink()


@mcp.tool()
async def tree() -> Branch:
    """Return a structure."""
    await _handed_over()
    return Branch(name="root", branches=[Branch(name="leaf")])


@mcp.tool()
async def word() -> str:
    """Return a plain value, which is wrapped."""
    await _handed_over()
    return "done"


@mcp.tool()
async def hang() -> str:
    """Work for longer than any test."""
    await asyncio.sleep(3600)
    return "never"


@mcp.tool()
async def work(seconds: float) -> str:
    """Work for so long."""
    await asyncio.sleep(seconds)
    return f"worked {seconds:g} s"


@mcp.tool()
async def order(dish: str) -> str:
    """Order a dish, and say how many were ordered."""
    counts["order"] += 1
    return f"{dish} {counts['order']}"


if PORTS:
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    mcp.run("streamable-http", port=int(PORTS[0]), transport_security=security)
elif __name__ == "__main__":
    mcp.run("stdio")
