"""The server of the demo with a fault for each act."""

import asyncio

from limpet import Context, Server, Settings, Times
from limpet.cli.demo.ours import LEASE_SECONDS

server = Server(
    "broken", settings=Settings(times=Times(lease=LEASE_SECONDS, lease_renewal=LEASE_SECONDS / 8))
)
texts: list[str] = []


@server.tool
async def echo(text: str, seconds: float = 0.0) -> str:
    """Return the text of the call that began last, as a server that mixes its answers up."""
    texts.append(text)
    await asyncio.sleep(seconds)
    return texts[-1]


@server.tool
async def steps(text: str, count: int, seconds: float, ctx: Context) -> str:
    """Leave the third step out, and return nothing of the text."""
    for step in range(1, count + 1):
        if step != 3:
            await ctx.progress(step, count)
        await asyncio.sleep(seconds)
    return "?"


@server.tool
async def started() -> str:
    """Return nothing."""
    return ""


@server.tool
async def bump() -> str:
    """Count nothing."""
    return "1"
