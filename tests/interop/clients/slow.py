# ruff: noqa: PLC0415 - each environment has only one of these packages
# mypy: disable-error-code="import-not-found"
# The clients live in .peers, never in our environment.
"""Calls slow tools with a Python client, and collects their results, as a model does. Prints one line of JSON for each mode.

python slow.py mcp1|mcp2|fastmcp COMMAND...
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from typing import Any

KIND, COMMAND, *ARGS = sys.argv[1:]


@asynccontextmanager
async def opened(mode: str) -> Any:
    """Connect a client of this kind."""
    if KIND == "mcp1":
        from mcp import ClientSession, StdioServerParameters
        from mcp.client.stdio import stdio_client

        async with (
            stdio_client(StdioServerParameters(command=COMMAND, args=ARGS)) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            yield session
    elif KIND == "mcp2":
        from mcp import Client, StdioServerParameters

        async with Client(StdioServerParameters(command=COMMAND, args=ARGS), mode=mode) as client:
            yield client
    else:
        from fastmcp import Client
        from fastmcp.client.transports import StdioTransport

        async with Client(StdioTransport(command=COMMAND, args=ARGS), mode=mode) as client:
            yield client


def structured(result: Any) -> Any:
    """Return the structured content, by the name of this generation."""
    found = getattr(result, "structured_content", None)
    return found if found is not None else result.structuredContent


async def main() -> None:
    for mode in ["legacy"] if KIND == "mcp1" else ["legacy", "auto"]:
        found: dict[str, Any] = {}
        async with opened(mode) as client:
            await client.list_tools()
            for tool in ("tree", "word"):
                result = await client.call_tool(tool, {})
                found[f"{tool} first"] = sorted(structured(result))
                while "ticket" in structured(result):
                    result = await client.call_tool("collect", {"ticket": structured(result)["ticket"]})
                found[tool] = structured(result)
        print(json.dumps({mode: found}))


asyncio.run(main())
