# mypy: disable-error-code="import-not-found"
# `mcp` lives in .peers/mcp2, never in our environment.
"""The OAuth client of `mcp` 2.x."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import OAuthClientMetadata

from tests.interop.clients.conversation import wire
from tests.interop.clients.oauth_talk import REDIRECT, Call, agreed, talk


class Storage:
    """Keeps the tokens and the registration in memory."""

    def __init__(self) -> None:
        self._tokens: Any = None
        self._client: Any = None

    async def get_tokens(self) -> Any:
        return self._tokens

    async def set_tokens(self, tokens: Any) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> Any:
        return self._client

    async def set_client_info(self, client_info: Any) -> None:
        self._client = client_info


class User:
    """Opens the page, and has the answer when the client asks for it."""

    def __init__(self) -> None:
        self._answer: dict[str, str] = {}

    async def open_page(self, url: str) -> None:
        self._answer = await agreed(url)

    async def answer(self) -> Any:
        return AuthorizationCodeResult(**{name: self._answer.get(name) for name in ("code", "state", "iss")})


@asynccontextmanager
async def connect(url: str, era: str) -> AsyncIterator[Call]:
    user = User()
    metadata = OAuthClientMetadata(client_name=f"mcp2-{era}", redirect_uris=[REDIRECT])
    provider = OAuthClientProvider(url, metadata, Storage(), user.open_page, user.answer)
    async with (
        create_mcp_http_client(auth=provider) as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as client,
    ):

        async def call(tool: str) -> dict[str, Any]:
            result = wire(await client.call_tool(tool, {}))
            return dict(result.get("structuredContent") or result)

        yield call


asyncio.run(talk(connect))
