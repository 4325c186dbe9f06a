"""The server that the memory campaign attacks: tools that hold a call, and tools with large answers."""

import asyncio
from typing import Any

from limpet import Context, Server

server = Server("attacked")


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
async def hold(data: Any = None) -> str:
    """Return after a long time."""
    await asyncio.sleep(600)
    return "held"


@server.tool
async def large(size: int) -> str:
    """Return a large text."""
    return "x" * size


@server.tool
async def chatty(size: int, ctx: Context) -> str:
    """Send an event before a large answer, so that the answer is in a stream."""
    await ctx.progress(0.5, 1.0)
    return "x" * size


@server.tool
async def ask(ctx: Context, data: Any = None) -> str:
    """Ask the client, and wait."""
    return str(await ctx.elicit("?", bool))


@server.tool(task="required")
async def job(size: int, data: Any = None) -> str:
    """Return a large text, as a task."""
    return "x" * size


@server.tool
async def remember(size: int, ctx: Context) -> str:
    """Keep a large text in the state of the session."""
    await ctx.state.set("text", "x" * size)
    return "kept"


@server.resource("note://{name}")
async def note(name: str) -> str:
    """Return the name."""
    return name


@server.tool
async def fail(text: str) -> str:
    """Fail with this text."""
    raise ValueError(text)


@server.tool
async def report(number: int, size: int, ctx: Context) -> str:
    """Report progress often, with a long message."""
    for at in range(number):
        await ctx.progress(at, number, "x" * size)
    return "done"
