"""The Limpet server of the measurements, as `limpet serve` runs it."""

import asyncio
import os
from typing import TypedDict

from limpet import Context, Server

server = Server("bench", version="1")
ended = 0


class Answer(TypedDict):
    """The form of a question."""

    value: str


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
async def events(count: int, ctx: Context) -> str:
    """Send progress a number of times, then return the number."""
    global ended  # noqa: PLW0603 - one process, one counter
    for number in range(1, count + 1):
        await ctx.progress(number, count)
    ended += 1
    return str(count)


@server.tool
async def finished() -> str:
    """Return how many calls of `events` have ended."""
    return str(ended)


@server.tool
async def asks(count: int, ctx: Context) -> str:
    """Ask the client several questions at the same time, and join its answers."""
    answers = await asyncio.gather(*(ctx.elicit(f"question {number}", Answer) for number in range(count)))
    return ",".join(answer.data["value"] for answer in answers if answer.data)


for number in range(int(os.environ.get("MORE_TOOLS", "0"))):
    server.tool(echo, name=f"echo_{number}")
