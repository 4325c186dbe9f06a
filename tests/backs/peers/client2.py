# mypy: disable-error-code="import-not-found"
# `mcp` lives in .peers/mcp2, never in our environment.
"""The client of `mcp` 2.x: calls a tool that asks, and prints its result. Arguments: a URL and the tool."""

import asyncio
import sys
from typing import Any

import mcp_types as types
from mcp import Client


async def elicit(_context: Any, params: Any) -> Any:
    return types.ElicitResult(action="accept", content={"text": params.message.upper()})


async def sample(_context: Any, params: Any) -> Any:
    text = f"<{params.messages[0].content.text}>"
    return types.CreateMessageResult(
        role="assistant", model="m", content=types.TextContent(type="text", text=text)
    )


async def main() -> None:
    url, tool = sys.argv[1:]
    async with Client(url, mode="auto", elicitation_callback=elicit, sampling_callback=sample) as client:
        result = await client.call_tool(tool, {})
        print(client.protocol_version, result.content[0].text)


asyncio.run(main())
