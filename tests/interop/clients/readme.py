# mypy: disable-error-code="import-not-found,attr-defined"
# `mcp` lives in .peers, never in our environment: two generations of it cannot share one.
"""The first steps of a new user with the README's server: list, call twice, read. With the client of either generation of `mcp`."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import mcp

from tests.interop.clients.conversation import config, say, wire


async def main() -> None:
    async with AsyncExitStack() as stack:
        client, version = await connected(stack, config()["url"])
        say("connected", version=version)
        listed = wire(await client.list_tools())
        say("listed", names=[tool["name"] for tool in listed["tools"]])
        for step in ("first", "second"):
            say(step, **wire(await client.call_tool("forecast", {"city": "Oslo", "days": 2})))
        say("read", **wire(await client.read_resource("weather://Oslo")))


async def connected(stack: AsyncExitStack, url: str) -> tuple[Any, str]:
    """Return a client and the version it speaks."""
    if hasattr(mcp, "Client"):
        client = await stack.enter_async_context(mcp.Client(url))
        return client, client.protocol_version
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - only there it is needed

    read, write, *_ = await stack.enter_async_context(streamable_http_client(url))
    session = await stack.enter_async_context(mcp.ClientSession(read, write))
    return session, (await session.initialize()).protocolVersion


asyncio.run(main())
