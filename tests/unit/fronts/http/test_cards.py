"""Server Cards (SEP-2127), and the catalogue of the cards of a process."""

import json
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from limpet import Server, Servers
from limpet.auth import Principal
from limpet.config import HttpSettings
from limpet.errors import ConfigError
from tests.asgi import Call, Peer
from tests.support import async_test

CATALOG: Final = "/.well-known/ai-catalog.json"
CARD: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["$schema", "name", "version", "description"],
    "properties": {
        "$schema": {"const": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"},
        "name": {
            "type": "string",
            "minLength": 3,
            "maxLength": 200,
            "pattern": r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$",
        },
        "version": {"type": "string", "maxLength": 255},
        "description": {"type": "string", "minLength": 1, "maxLength": 100},
        "title": {"type": "string", "minLength": 1, "maxLength": 100},
        "remotes": {
            "type": "array",
            "items": {
                "required": ["type", "url"],
                "properties": {
                    "type": {"enum": ["streamable-http", "sse"]},
                    "url": {"type": "string", "pattern": r"^https?://\S+$"},
                    "supportedProtocolVersions": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
    },
}
"""The rules of the extension's schema for the members that we write."""


async def get(app: Any, path: str, method: str = "GET", **headers: str) -> Call:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await Peer(app).send(method, path=path, headers={"host": "elsewhere.example", **named}).done()


async def known(token: str) -> Principal | None:
    return Principal(subject="ada") if token == "ada" else None


@async_test
async def test_an_endpoint_publishes_a_card_for_everyone() -> None:
    server = Server("weather", version="2.1.0", title="Weather " * 20, verifier=known)
    server.tool(name="secret_tool")(lambda: "x")
    server.server_card = True
    app = server.asgi(public_url="https://tools.example/weather/mcp")
    answer = await get(app, "/mcp/server-card", origin="https://page.example")
    assert answer.status == 200
    card = json.loads(answer.body)
    Draft202012Validator(CARD).validate(card)
    assert card["name"] == "example.tools/weather"
    assert card["version"] == "2.1.0"
    [remote] = card["remotes"]
    assert remote["url"] == "https://tools.example/weather/mcp"
    assert "2026-07-28" in remote["supportedProtocolVersions"]
    assert remote["headers"] == [{"name": "Authorization", "isRequired": True, "isSecret": True}]
    assert b"secret_tool" not in answer.body
    assert answer.headers["content-type"] == "application/mcp-server-card+json"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["cache-control"] == "public, max-age=3600"
    again = await get(app, "/mcp/server-card", if_none_match=answer.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    preflight = await get(
        app, "/mcp/server-card", "OPTIONS", origin="https://page.example", access_control_request_method="GET"
    )
    assert preflight.status == 204
    assert preflight.headers["access-control-allow-origin"] == "*"
    assert (await get(app, "/mcp/server-card", "POST")).status == 405
    [entry] = json.loads((await get(app, CATALOG)).body)["entries"]
    assert entry == {
        "identifier": "urn:air:tools.example:mcp:weather",
        "type": "application/mcp-server-card+json",
        "url": "https://tools.example/weather/mcp/server-card",
    }


@async_test
async def test_several_servers_have_one_catalogue_and_a_card_each() -> None:
    weather, files = Server("weather"), Server("files")
    weather.server_card = files.server_card = True
    servers = Servers({"/weather/mcp": weather, "/files/mcp": files})
    app = servers.asgi(public_url="https://tools.example")
    catalog = await get(app, CATALOG)
    assert catalog.headers["content-type"] == "application/ai-catalog+json"
    content = json.loads(catalog.body)
    assert content["specVersion"] == "1.0"
    for entry in content["entries"]:
        path = entry["url"].removeprefix("https://tools.example")
        card = json.loads((await get(app, path)).body)
        Draft202012Validator(CARD).validate(card)
        assert f"{card['remotes'][0]['url']}/server-card" == entry["url"]
    assert len(content["entries"]) == 2


@async_test
async def test_without_the_option_there_is_no_card() -> None:
    alone = Server("weather").asgi(public_url="https://tools.example/mcp")
    for app in (alone, Servers({"/a/mcp": Server("a"), "/b/mcp": Server("b")}).asgi()):
        for path in ("/mcp/server-card", "/a/mcp/server-card", CATALOG):
            assert (await get(app, path)).status in {404, 421}
    server = Server("weather")
    server.server_card = True
    with pytest.raises(ConfigError, match="public_url"):
        server.front(HttpSettings())


@async_test
async def test_an_endpoint_that_is_built_twice_is_in_the_catalogue_once() -> None:
    server = Server("weather")
    server.server_card = True
    settings = HttpSettings(public_url="https://tools.example/weather/mcp")
    server.front(settings)
    server.front(settings)
    assert len(server.cards) == 1
