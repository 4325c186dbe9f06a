# mypy: disable-error-code="import-not-found"
# The clients live in .peers, never in our environment.
"""Calls `interview` of the everything server with a client of `mcp` 2.x or of fastmcp, and prints the result.

python interview.py mcp2|fastmcp URL MODE...
"""

import asyncio
import json
import sys
from typing import Any

import mcp_types as types

ANSWERS = {"name": "Ada", "color": "green"}
asked: list[str] = []


async def sample(*_given: Any) -> Any:
    asked.append("sampling")
    text = types.TextContent(type="text", text="a line")
    return types.CreateMessageResult(role="assistant", content=text, model="m")


async def elicit(_context: Any, params: Any) -> Any:
    asked.append("elicitation")
    (field,) = params.requested_schema["properties"]
    return types.ElicitResult(action="accept", content={field: ANSWERS[field]})


async def with_mcp(url: str, mode: str) -> tuple[str, Any]:
    from mcp import Client  # noqa: PLC0415 - only where it is installed

    async with Client(url, mode=mode, sampling_callback=sample, elicitation_callback=elicit) as client:
        result = await client.call_tool("interview", {})
        return client.protocol_version, result.structured_content


async def with_fastmcp(url: str, mode: str) -> tuple[str, Any]:
    from fastmcp import Client  # noqa: PLC0415 - only where it is installed
    from fastmcp.client.elicitation import ElicitResult  # noqa: PLC0415

    async def fill_in(_message: str, _shape: Any, params: Any, _context: Any) -> Any:
        answer = await elicit(None, params)
        return ElicitResult(action="accept", content=answer.content)

    async def say(_messages: Any, _params: Any, _context: Any) -> str:
        asked.append("sampling")
        return "a line"

    async with Client(url, mode=mode, sampling_handler=say, elicitation_handler=fill_in) as client:
        result = await client.call_tool("interview", {})
        return str(getattr(client, "protocol_version", "")), result.structured_content


async def main() -> None:
    peer, url, *modes = sys.argv[1:]
    for mode in modes:
        asked.clear()
        version, result = await {"mcp2": with_mcp, "fastmcp": with_fastmcp}[peer](url, mode)
        print(json.dumps({"version": version, "result": result, "asked": asked}))


asyncio.run(main())
