# mypy: disable-error-code="import-not-found"
# `fastmcp` lives in .peers/fastmcp, never in our environment.
"""Calls tools with fastmcp's client, and prints their results as that client reads them.

python unwrap.py COMMAND...
"""

import asyncio
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport


async def main() -> None:
    command, *args = sys.argv[1:]
    for mode in ("auto", "legacy"):
        async with Client(StdioTransport(command=command, args=args), mode=mode) as client:
            text = await client.call_tool("echo", {"text": "hi"})
            total = await client.call_tool("add", {"a": 2, "b": 3})
            weather = await client.call_tool("weather", {"city": "Oslo"})
            print(mode, [text.data, total.data, weather.data.degrees])


asyncio.run(main())
