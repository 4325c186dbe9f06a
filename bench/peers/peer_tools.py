"""The tools of the Python peers. Their packages have the same decorator and the same methods of a context."""

import asyncio
from typing import Any

from pydantic import BaseModel

ended = 0


class Answer(BaseModel):
    """The form of a question."""

    value: str


def add_tools(mcp: Any, context: type) -> None:
    """Register the tools with a server object; `context` is the package's own type, by which it recognises the parameter."""

    @mcp.tool()
    async def echo(text: str) -> str:
        """Return the text."""
        return text

    @mcp.tool()
    async def events(count: int, ctx: context) -> str:
        """Send progress a number of times, then return the number."""
        global ended  # noqa: PLW0603 - one process, one counter
        for number in range(1, count + 1):
            await ctx.report_progress(number, count)
        ended += 1
        return str(count)

    @mcp.tool()
    async def finished() -> str:
        """Return how many calls of `events` have ended."""
        return str(ended)

    @mcp.tool()
    async def asks(count: int, ctx: context) -> str:
        """Ask the client several questions at the same time, and join its answers."""
        answers = await asyncio.gather(*(ctx.elicit(f"question {number}", Answer) for number in range(count)))
        return ",".join(answer.data.value for answer in answers)
