"""The server of the pictures in the documents: some tools are quick, one hangs, one asks, one fails."""

import asyncio
import random

from pydantic import BaseModel

from limpet import Context, Server

server = Server("shop", version="1.4.0")


class Trip(BaseModel):
    """The user's answer."""

    city: str


@server.tool
async def search(text: str) -> str:
    """Search the shop."""
    await asyncio.sleep(random.lognormvariate(-4.2, 0.8))
    return text


@server.tool
async def orders(customer: str) -> int:
    """Count orders."""
    return {"ada": 1}[customer]


@server.tool
async def reindex() -> str:
    """Wait for something that never comes."""
    await asyncio.Event().wait()
    return "done"


@server.tool
async def book_trip(ctx: Context) -> str:
    """Ask the user where to go."""
    answer = await ctx.elicit("Where do you want to go?", Trip)
    return str(answer)
