"""A server that other people's ASGI servers run. Everything here happens at import, before any of them forks."""

import asyncio
import os

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.routing import Mount

from limpet import Context, Server
from limpet.stores.urls import open_store


class Name(BaseModel):
    name: str


_url = os.environ.get("STORE", "memory:")
server = Server("hosted", store=open_store(_url) if os.environ.get("STORE_OBJECT") else _url)


@server.tool
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Who?", Name, key="who")
    return answer.data.name if answer.data else ""


@server.tool
async def work(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "worked"


endpoint = server.asgi()
mounted = Starlette(routes=[Mount("/", app=endpoint)])
"""Without lifespan: the endpoint starts with its first request and receives no shutdown event."""
