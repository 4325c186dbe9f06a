# mypy: disable-error-code="import-not-found"
# `mcp` lives in .peers/mcp1, never in our environment.
"""The client of `mcp` 1.x: calls tools that ask, and prints their results. Arguments: a URL and the tools."""

import asyncio
import sys
from typing import Any

from mcp import ClientSession, types
from mcp.client.streamable_http import streamablehttp_client


async def elicit(_context: Any, params: Any) -> Any:
    return types.ElicitResult(action="accept", content={"text": params.message.upper()})


async def sample(_context: Any, params: Any) -> Any:
    text = f"<{params.messages[0].content.text}>"
    return types.CreateMessageResult(
        role="assistant", model="m", content=types.TextContent(type="text", text=text)
    )


async def main() -> None:
    url, *tools = sys.argv[1:]
    async with (
        streamablehttp_client(url) as (read, write, _),
        ClientSession(read, write, elicitation_callback=elicit, sampling_callback=sample) as session,
    ):
        agreed = await session.initialize()
        for tool in tools:
            result = await session.call_tool(tool, {})
            print(agreed.protocolVersion, result.content[0].text)


asyncio.run(main())
