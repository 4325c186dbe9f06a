"""A server with faults on demand, for operators to recognise."""

import asyncio

from limpet import Context, Limits, Server, Settings, Times

server = Server(
    "faults",
    settings=Settings(
        times=Times(
            report_after=1.0, lease=5.0, lease_renewal=0.5, stream_after=0.05, drain=0.5, write_stall=60.0
        ),
        limits=Limits(running=2, queued=1),
    ),
)


@server.tool
async def hang() -> str:
    """Wait forever."""
    await asyncio.Event().wait()
    return ""


@server.tool
async def interview(ctx: Context) -> str:
    """Ask, and wait for the answer."""
    return str(await ctx.elicit("Your name?", {"type": "object", "properties": {"name": {"type": "string"}}}))


@server.tool
async def flood(ctx: Context) -> str:
    """Send until the client takes no more."""
    for number in range(100_000):
        await ctx.progress(number, message="x" * 20_000)
    return ""


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text
