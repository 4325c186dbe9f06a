"""A server that keeps something for each session. It runs behind Limpet: on stdio, or over HTTP."""

import asyncio
from typing import Any

from limpet import Context, Server
from limpet.context import SessionView

server = Server("keeper", eras="sessions")
FORM: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


@server.tool
async def bump(ctx: Context) -> int:
    """Count in the session."""
    return await ctx.state.incr("n")


@server.tool
async def ask(ctx: Context) -> str:
    """Ask the user."""
    answer = await ctx.elicit("name?", FORM)
    return "" if answer.data is None else str(answer.data["text"])


@server.tool
async def steps(ctx: Context, n: int, seconds: float) -> int:
    """Report progress n times."""
    try:
        for step in range(1, n + 1):
            await asyncio.sleep(seconds)
            await ctx.progress(step, n)
    except asyncio.CancelledError:
        await ctx.state.incr("cancelled")
        raise
    return n


@server.tool
async def cancelled(ctx: Context) -> int:
    """Return how many calls of the session were cancelled."""
    return int(await ctx.state.get("cancelled", 0))


@server.on_roots_changed
async def changed(session: SessionView) -> None:
    """Record it."""
    await session.state.incr("roots")


@server.tool
async def roots_changed(ctx: Context) -> int:
    """Return how often the client has reported a change of its roots."""
    return int(await ctx.state.get("roots", 0))


if __name__ == "__main__":
    server.run()
