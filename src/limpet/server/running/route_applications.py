"""Custom routes as ASGI applications, which the HTTP front calls."""

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl

from limpet.fronts.http.asgi_host.asgi_channel import AsgiChannel
from limpet.fronts.http.decide.author_routes import PRINCIPAL, RouteApplication
from limpet.fronts.http.read.body import read_body
from limpet.fronts.http.read.request import Receive, Scope, Send
from limpet.server.authoring.routes import HttpRequest, HttpResponse, Route

MAX_BODY: Final = 4 * 1024 * 1024


def applications(routes: Iterable[Route], body_seconds: float) -> Mapping[str, RouteApplication]:
    """Return one ASGI application for each path.

    A handler is called only with a complete body. A body that is cut off, too large or too slow raises exceptions
    that the front answers.
    """
    table: dict[str, dict[str, Route]] = {}
    for route in routes:
        table.setdefault(route.path, {}).update(dict.fromkeys(route.methods, route))
    return {path: _Application(by_method, body_seconds) for path, by_method in table.items()}


class _Application:
    """The routes of one path, by method."""

    def __init__(self, routes: dict[str, Route], body_seconds: float) -> None:
        self._routes = routes
        self.is_open: bool = all(route.is_open for route in routes.values())
        """True if Host and Origin do not matter."""
        self._body_seconds = body_seconds

    def demand(self, method: str) -> frozenset[str] | None:
        """Return the scopes that a request of this method needs; None if it needs no principal."""
        route = self._find(method)
        return route.scopes if route is not None else None

    def _find(self, method: str) -> Route | None:
        return self._routes.get("GET" if method == "HEAD" and "HEAD" not in self._routes else method)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        method = scope["method"]
        route = self._find(method)
        if route is None:
            allowed = {"allow": ", ".join(sorted(self._routes))}
            await _send(HttpResponse("Method not allowed", 405, allowed), send)
            return
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        channel = AsgiChannel(scope, receive, send)
        body = await read_body(channel, MAX_BODY, self._body_seconds, length.decode("latin-1"))
        await _send(await route.handler(_request(scope, body)), send, bodiless=method == "HEAD")


def _request(scope: Scope, body: bytes) -> HttpRequest:
    client = scope.get("client")
    return HttpRequest(
        method=scope["method"],
        path=scope["path"],
        query=dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)),
        headers={name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]},
        body=body,
        client=client[0] if client else None,
        principal=scope.get(PRINCIPAL),
    )


async def _send(response: HttpResponse, send: Send, *, bodiless: bool = False) -> None:
    body, content_type = response.encoded()
    given = {name.lower(): value for name, value in response.headers.items()}
    headers = {"content-type": content_type, **given, "content-length": str(len(body))}
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": raw})
    await send({"type": "http.response.body", "body": b"" if bodiless else body})
