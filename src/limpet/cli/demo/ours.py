"""The server of the demo. `_of_mcp.py` has the same tools, written for the official SDK."""

import asyncio
from typing import Final

from limpet.config import Settings, Times
from limpet.server.app import Server
from limpet.server.context.context import Context

LEASE_SECONDS: Final = 8.0
"""A replica that does not renew its lease for this time is declared dead. A machine under load may pause a process
for several seconds, and a replica that lives must not be declared dead."""

server: Final = Server(
    "demo", settings=Settings(times=Times(lease=LEASE_SECONDS, lease_renewal=LEASE_SECONDS / 8))
)
_started: Final[list[str]] = []


@server.tool
async def echo(text: str, seconds: float = 0.0) -> str:
    """Return the text after some time."""
    await asyncio.sleep(seconds)
    return text


@server.tool
async def steps(text: str, count: int, seconds: float, ctx: Context) -> str:
    """Report progress several times, then return the text."""
    _started.append(text)
    for step in range(1, count + 1):
        await ctx.progress(step, count)
        await asyncio.sleep(seconds)
    return text


@server.tool
async def started() -> str:
    """Return the texts of the calls of `steps` that ran in this process."""
    return " ".join(_started)


@server.tool
async def bump(ctx: Context) -> str:
    """Add one to a counter of the session, and return it."""
    return str(await ctx.state.incr("count"))
