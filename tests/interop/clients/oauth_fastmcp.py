# mypy: disable-error-code="import-not-found"
# `fastmcp` lives in .peers/fastmcp, never in our environment.
"""The OAuth client of fastmcp. It opens the system's browser, which is the one that the variable BROWSER names."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Client
from fastmcp.client.auth import OAuth

from tests.interop.clients.conversation import wire
from tests.interop.clients.oauth_talk import Call, talk


@asynccontextmanager
async def connect(url: str, era: str) -> AsyncIterator[Call]:
    async with Client(url, auth=OAuth(client_name=f"fastmcp-{era}"), mode=era) as client:

        async def call(tool: str) -> dict[str, Any]:
            result = wire(await client.call_tool_mcp(tool, {}))
            return dict(result.get("structuredContent") or result)

        yield call


asyncio.run(talk(connect))
