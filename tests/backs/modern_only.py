"""A server that speaks 2026-07-28 only. It is served with `limpet serve`."""

import asyncio
from typing import Any

from limpet import Context, Server

server = Server("asker", eras="sessionless")
FORM: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


@server.tool
async def two(ctx: Context) -> str:
    """Ask the user twice."""
    said = [(await ctx.elicit(question, FORM)).data for question in ("first?", "second?")]
    return " ".join(answer["text"] for answer in said if answer is not None)


@server.tool
async def five(ctx: Context) -> str:
    """Ask the client's model five questions at once."""
    answers: list[Any] = await asyncio.gather(
        *(ctx.sample(str(number), max_tokens=10) for number in range(5))
    )
    return ",".join(answer.content.text for answer in answers)
