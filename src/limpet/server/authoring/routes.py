"""Custom HTTP routes next to the endpoint: a path, its methods, a function from request to response.

They are for small things: health checks, a landing page, the page of a URL elicitation. To use a web framework,
mount the endpoint in its application.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from msgspec import Struct

from limpet.auth import Principal
from limpet.errors import ConfigError
from limpet.wire.jsonrpc import encode


class HttpRequest(Struct, frozen=True, kw_only=True):
    """A request to a custom route with its complete body. The names of headers are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    client: str | None = None
    """The address of the client."""
    principal: Principal | None = None
    """The sender of the request, if the route demands a principal."""


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
    scopes: frozenset[str] | None = None
    """The scopes that a caller needs; None: the route is public."""
    is_open: bool = False
    """The rules of the endpoint for Host and Origin do not apply: pages of all sites may read it."""

    def __post_init__(self) -> None:
        if not self.path.startswith("/"):
            raise ConfigError(f"a route's path begins with a slash: {self.path!r}")


def check_public(routes: Iterable[Route]) -> None:
    """Refuse routes that demand a principal, for a server without a verifier.

    Raises:
        ConfigError: a route demands a principal.
    """
    for route in routes:
        if route.scopes is not None:
            raise ConfigError(
                f"the route {route.path} demands a principal, and this server has no verifier: give it one "
                "(verifier=…, --verifier FILE:NAME)"
            )
