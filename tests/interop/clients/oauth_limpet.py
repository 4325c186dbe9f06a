"""The OAuth client of Limpet. It opens the system's browser, which is the one that the variable BROWSER names."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from limpet import Client
from limpet.auth.oauth import MemoryStorage, OAuth
from tests.interop.clients.oauth_talk import Call, talk


@asynccontextmanager
async def connect(url: str, era: str) -> AsyncIterator[Call]:
    oauth = OAuth(client_name=f"limpet-{era}", storage=MemoryStorage())
    async with Client(url, auth=oauth, protocol_version="sessions" if era == "legacy" else "auto") as client:

        async def call(tool: str) -> dict[str, Any]:
            found: dict[str, Any] = (await client.call_tool(tool, {})).data
            return found

        yield call


asyncio.run(talk(connect))
