# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
# `mcp` lives in .peers, never in our environment.
"""The server behind the replicas, of `mcp` 2.3: a program on stdio, `behind.py PORT` over HTTP, or an object in the process of a replica.

Each start and end of a tool is first written to a journal of this process, as replicas do.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("behind", log_level="ERROR")
_NAME = f"behind-{os.getpid()}"
_file = os.open(
    Path(os.environ["CHAOS_JOURNALS"]) / f"{_NAME}.journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
)


def _write(what: str, nonce: str) -> None:
    entry = {"kind": "entry", "at": time.time(), "replica": _NAME, "what": what, "nonce": nonce}
    os.write(_file, json.dumps(entry).encode() + b"\n")


@server.tool()
async def ticks(nonce: str, n: int, interval: float, ctx: Context) -> str:
    """Report progress n times."""
    _write("start", nonce)
    for step in range(1, n + 1):
        await asyncio.sleep(interval)
        await ctx.report_progress(step, n, f"{nonce}/{step}")
    _write("end", nonce)
    return nonce


@server.tool()
async def quick(nonce: str) -> str:
    """Answer at once."""
    _write("start", nonce)
    _write("end", nonce)
    return nonce


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
