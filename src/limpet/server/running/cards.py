"""The Server Card of an endpoint, and the catalogue of all cards of a process (SEP-2127).

    GET <endpoint>/server-card         application/mcp-server-card+json   name, version, URL and versions of one server
    GET /.well-known/ai-catalog.json   application/ai-catalog+json        the URLs of the cards

Both are public: they need no token, and every page may read them. So they are served only if the operator wants it
(`Served.server_card`), and have nothing that the server does not say to everyone: no tool, no scope, no address besides
the public URL. The documents have the form of the extension's repository in July 2026.

The name of a server is the reversed host of its public URL, and the part of its path that names it:
`https://tools.example/weather/mcp` is `example.tools/weather`. It does not change when the server behind says another
name of itself.
"""

import hashlib
import re
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import msgspec

from limpet.auth import Verifier
from limpet.config import HttpSettings, Settings
from limpet.core.eras import supported_versions
from limpet.engine.back import Back
from limpet.errors import ConfigError
from limpet.fronts.http.router import CATALOG
from limpet.server.authoring.routes import HttpRequest, HttpResponse, Route
from limpet.wire.jsonrpc import encode

_SUFFIX: Final = "/server-card"
_CARD_TYPE: Final = "application/mcp-server-card+json"
_CATALOG_TYPE: Final = "application/ai-catalog+json"
_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
_LONGEST: Final = 100
"""Characters of a title and of a description."""
_OTHERS: Final = re.compile(r"[^A-Za-z0-9._-]+")
_METHODS: Final = ("GET", "OPTIONS")
_HEADERS: Final = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET",
    "access-control-allow-headers": "content-type, if-none-match",
    "access-control-expose-headers": "etag",
    "cache-control": "public, max-age=3600",
}


class Published(Protocol):
    """The parts of a server that its card needs."""

    server_card: bool
    cards: list[dict[str, str]]
    settings: Settings
    verifier: Verifier | None

    @property
    def back(self) -> Back:
        """The back, which knows name and version."""


def card_routes(server: Published, settings: HttpSettings) -> list[Route]:
    """Return the routes of the card and of the catalogue; none if the operator does not publish them.

    Raises:
        ConfigError: the URL of the endpoint is not known.
    """
    if not server.server_card:
        return []
    if not settings.public_url:
        raise ConfigError(
            "a Server Card names the URL of the endpoint as clients know it: set public_url (--public-url)"
        )
    card = _Card(server, settings)
    if card.entry not in server.cards:
        server.cards.append(card.entry)

    async def show_card(request: HttpRequest) -> HttpResponse:
        return _document(card.content(), _CARD_TYPE, request)

    async def show_catalog(request: HttpRequest) -> HttpResponse:
        return _document({"specVersion": "1.0", "entries": server.cards}, _CATALOG_TYPE, request)

    return [
        Route(f"{settings.path.rstrip('/')}{_SUFFIX}", _METHODS, show_card, is_open=True),
        Route(CATALOG, _METHODS, show_catalog, is_open=True),
    ]


class _Card:
    """The card of one endpoint."""

    def __init__(self, server: Published, settings: HttpSettings) -> None:
        self._server = server
        self._url = settings.public_url.rstrip("/")
        parts = urlsplit(self._url)
        self._host = parts.hostname or ""
        words = [word for word in parts.path.split("/") if word]
        named = words[:-1] if len(words) > 1 and words[-1] == "mcp" else words
        self._name = _OTHERS.sub("-", "-".join(named) or "mcp")

    @property
    def entry(self) -> dict[str, str]:
        """Its entry in a catalogue."""
        identifier = f"urn:air:{self._host}:mcp:{self._name}"
        return {"identifier": identifier, "type": _CARD_TYPE, "url": f"{self._url}{_SUFFIX}"}

    def content(self) -> dict[str, Any]:
        """Return the card as the server is known now."""
        info: dict[str, Any] = msgspec.to_builtins(self._server.back.server_info)
        said = info.get("title") or info.get("name") or self._name
        card: dict[str, Any] = {
            "$schema": _SCHEMA,
            "name": f"{'.'.join(reversed(self._host.split('.')))}/{self._name}"[:200],
            "version": str(info.get("version") or "unknown")[:255],
            "title": str(said)[:_LONGEST],
            "description": str(info.get("description") or f"The MCP server {said}")[:_LONGEST],
        }
        shown = {name: info[name] for name in ("websiteUrl", "icons") if info.get(name)}
        remote: dict[str, Any] = {
            "type": "streamable-http",
            "url": self._url,
            "supportedProtocolVersions": list(supported_versions(self._server.settings)),
        }
        if self._server.verifier is not None:
            remote["headers"] = [{"name": "Authorization", "isRequired": True, "isSecret": True}]
        return {**card, **shown, "remotes": [remote]}


def _document(content: dict[str, Any], kind: str, request: HttpRequest) -> HttpResponse:
    if request.method == "OPTIONS":
        return HttpResponse(b"", 204, _HEADERS)
    body = encode(content)
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**_HEADERS, "etag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return HttpResponse(b"", 304, headers)
    return HttpResponse(body, 200, {**headers, "content-type": kind})
