"""Custom HTTP routes beside the endpoint: a path, its methods, a function from request to response.

They are for small things: health checks, a landing page, the page of a URL elicitation. To use a web framework,
mount the endpoint in its application.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from holdfast.errors import ConfigError
from holdfast.wire.jsonrpc import encode


class HttpRequest(Struct, frozen=True, kw_only=True):
    """A request to a custom route with its complete body. The names of headers are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    client: str | None = None
    """The address of the client."""


class HttpResponse(Struct, frozen=True):
    """The answer of a custom route. A str is sent as text, bytes unchanged, and any other body as JSON."""

    body: Any = b""
    status: int = 200
    headers: dict[str, str] = {}

    def encoded(self) -> tuple[bytes, str]:
        """Return the bytes of the body and its content type."""
        if isinstance(self.body, bytes):
            return self.body, "application/octet-stream"
        if isinstance(self.body, str):
            return self.body.encode(), "text/plain; charset=utf-8"
        return encode(self.body), "application/json"


RouteHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Answers a request to a custom route."""


class Route(Struct, frozen=True):
    """One route."""

    path: str
    methods: tuple[str, ...]
    handler: RouteHandler

    def __post_init__(self) -> None:
        if not self.path.startswith("/"):
            raise ConfigError(f"a route's path begins with a slash: {self.path!r}")
