"""A small Holdfast server for the client's tests, in this process or in one of its own."""

import asyncio

from holdfast import Context, Server

server = Server("small")


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
async def fanout(n: int, ctx: Context) -> str:
    """Ask the client's model n questions at once."""
    answers = await asyncio.gather(*(ctx.sample(str(number), max_tokens=10) for number in range(n)))
    return ",".join(answer.text for answer in answers)


@server.tool
async def interrogate(n: int, at_once: int, ctx: Context) -> int:
    """Ask n questions, so many at once, and count the answers."""
    places = asyncio.Semaphore(at_once)

    async def one(number: int) -> int:
        async with places:
            return int((await ctx.sample(str(number), max_tokens=10)).text == "yes")

    return sum(await asyncio.gather(*(one(number) for number in range(n))))
