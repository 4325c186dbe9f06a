"""The server of the comparison in Limpet: `limpet serve of_limpet.py --store sqlite:///…`."""

import asyncio
import os
from itertools import count
from pathlib import Path

from limpet import Context, Server, ToolAnnotations

server = Server("compared")
runs = count(1)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def look(ctx: Context) -> str:
    """Look around, in four steps."""
    for step in range(4):
        await ctx.progress(step + 1, 4)
        await asyncio.sleep(0.05)
    return "seen"


@server.tool
async def slow() -> str:
    """Return how often this tool was started."""
    number = next(runs)
    await asyncio.sleep(0.8)
    return f"run {number}"


def note(nonce: str) -> None:
    with Path(os.environ["RUNS"]).open("a") as runs_of_steps:
        runs_of_steps.write(f"{nonce}\n")


@server.tool
async def steps(nonce: str, ctx: Context) -> str:
    """Take five steps, and note the start of the run."""
    note(nonce)
    for step in range(5):
        await ctx.progress(step + 1, 5)
        await asyncio.sleep(0.05)
    return nonce


@server.tool
async def ask(ctx: Context) -> str:
    """Ask the user for a name."""
    answer = await ctx.elicit("Your name?", str)
    return f"hello {answer.data}"
