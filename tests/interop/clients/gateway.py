# mypy: disable-error-code="import-not-found"
# The clients live in .peers, never in our environment.
"""Lists the tools of a server until some are there, calls them, and prints the results, with a client of `mcp` 2.x or of fastmcp.

python gateway.py mcp2|fastmcp URL TOOL,TOOL MODE...
"""

import asyncio
import json
import sys
from typing import Any


async def listed(client: Any, peer: str, wanted: set[str]) -> list[str]:
    """Return the names of all tools, as soon as those that are wanted are among them."""
    while True:
        found = await client.list_tools()
        names = [tool.name for tool in (found.tools if peer == "mcp2" else found)]
        if wanted <= set(names):
            return names
        await asyncio.sleep(0.2)


async def main() -> None:
    peer, url, tools, *modes = sys.argv[1:]
    if peer == "mcp2":
        from mcp import Client  # noqa: PLC0415 - only where it is installed
    else:
        from fastmcp import Client  # noqa: PLC0415 - only where it is installed
    wanted = tools.split(",")
    for mode in modes:
        async with Client(url, mode=mode) as client:
            names = await listed(client, peer, set(wanted))
            texts = {}
            for tool in wanted:
                result = await client.call_tool(tool, {})
                texts[tool] = result.content[0].text
            version = str(getattr(client, "protocol_version", ""))
            print(json.dumps({"version": version, "tools": names, "texts": texts}), flush=True)


asyncio.run(main())
