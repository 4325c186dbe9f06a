"""The admin surface as an HTTP application: a guard that every request passes, and a table of routes.

The guard. The Host must be one of the allowed ones, so that a page of another site cannot reach the surface by a name that it has bound to
this address (DNS rebinding). A request of a browser has an Origin; it must be the surface itself. All routes but the page's own files need the
token, which is compared in constant time. Only POST changes anything, and every change is an event of the audit log.

The page has no secret in it: it asks for the token, keeps it in the tab, and sends it as a header, so there is no cookie that another
site's page could use. Its policy (CSP) lets it load nothing from elsewhere, run no script but its own file, and be in no frame.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct

from holdfast.errors import HoldfastError
from holdfast.fronts.http.request import Channel, Gone, RawRequest
from holdfast.ops.ring import Happened
from holdfast.ops.schema import FleetState, SessionView
from holdfast.ports import Observer

LIVE_SECONDS: Final = 1.0
"""How often a live stream sends the state."""
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = [
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
_PAGE: Final = {
    "/": ("index.html", b"text/html; charset=utf-8"),
    "/style.css": ("style.css", b"text/css; charset=utf-8"),
    "/app.js": ("app.js", b"text/javascript; charset=utf-8"),
}
_JSON: Final = b"application/json"
_UNAUTHORIZED: Final = 401
_DIGITS: Final = 18
"""How long a number in a query may be."""


class Source(Protocol):
    """Where the surface reads the state of the fleet, and what it can do."""

    async def state(self, page: str, after: int) -> FleetState:
        """Return the present state, with one page of sessions and the events after a number."""
        ...

    async def session(self, name: str) -> tuple[SessionView | None, list[Happened]]:
        """Return a session and its last events."""
        ...

    async def find(self, correlation: str) -> list[Happened]:
        """Return the events of a correlation id."""
        ...

    async def close_session(self, name: str) -> bool:
        """Close a session; False: there is none of this name."""
        ...

    async def cancel_call(self, name: str) -> bool:
        """Cancel a call; False: there is none of this name."""
        ...

    async def metrics(self) -> bytes:
        """Return the figures in the text format of Prometheus."""
        ...


class _Refused(Exception):
    """The request gets this status and sentence."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status
        self.error = error


class _Asked(Struct, frozen=True):
    """A request that has passed the guard."""

    surface: "Surface"
    channel: Channel
    name: str
    """The variable part of the path."""
    query: dict[str, str]
    address: str

    def number(self, name: str) -> int:
        """Return a number of the query; 0 if it is absent."""
        text = self.query.get(name, "0")
        if not text.isdecimal() or len(text) > _DIGITS:
            raise _Refused(400, f"{name} must be a number")
        return int(text)


class Surface:
    """Answers requests of operators."""

    def __init__(self, source: Source, token: str, observer: Observer, allowed_hosts: Sequence[str]) -> None:
        self.source: Source = source
        self._token = token.encode()
        self.observer: Observer = observer
        self._hosts = frozenset(host.lower() for host in allowed_hosts)
        self._page = {
            path: ((files(__package__) / "page" / name).read_bytes(), kind)
            for path, (name, kind) in _PAGE.items()
        }

    async def serve(self, request: RawRequest, channel: Channel) -> None:
        """Answer one request."""
        try:
            await self._serve(request, channel)
        except _Refused as refused:
            extra = [(b"www-authenticate", b"Bearer")] if refused.status == _UNAUTHORIZED else []
            await _send(channel, refused.status, msgspec.json.encode({"error": refused.error}), _JSON, extra)
        except HoldfastError as error:
            await _send(channel, 503, msgspec.json.encode({"error": str(error)}), _JSON)
        except (Gone, OSError):
            pass
        finally:
            channel.close()

    async def _serve(self, request: RawRequest, channel: Channel) -> None:
        address = request.client or "local"
        self._check_origin(request, address)
        path = request.path
        if path in self._page:
            if request.method not in {"GET", "HEAD"}:
                raise _Refused(405, "Method not allowed: use GET")
            await _send(channel, 200, *self._page[path])
            return
        given = request.head.text(b"authorization")
        if not hmac.compare_digest(given.encode("latin-1"), b"Bearer " + self._token):
            self.observer.note("audit.admin_refused", address=address)
            raise _Refused(_UNAUTHORIZED, "Unauthorized: send the admin token as a bearer token")
        route, name = _route(request.method, path)
        query = parse_qs(channel.asgi()[0].get("query_string", b"").decode("latin-1"), max_num_fields=8)
        await route(_Asked(self, channel, name, {key: values[-1] for key, values in query.items()}, address))

    def _check_origin(self, request: RawRequest, address: str) -> None:
        """Refuse a Host that is not served here, and a page of another site."""
        head = request.head
        host = head.text(b"host").lower()
        if head.twice:
            raise _Refused(400, f"Bad request: the header {head.twice.decode()} is given twice")
        if host not in self._hosts:
            self.observer.note("audit.host_refused", address=address)
            raise _Refused(421, "Misdirected request: this Host is not served here")
        origin = head.text(b"origin").lower()
        if origin and origin not in {f"http://{host}", f"https://{host}"}:
            self.observer.note("audit.origin_refused", address=address)
            raise _Refused(403, "Forbidden: only the dashboard itself may call here")


# Routes

Route = Callable[[_Asked], Awaitable[None]]


async def _state(asked: _Asked) -> None:
    await _json(asked, await asked.surface.source.state(asked.query.get("page", ""), asked.number("events")))


async def _live(asked: _Asked) -> None:
    """Send the state once a second, until the client goes."""
    channel, source = asked.channel, asked.surface.source
    page, after = asked.query.get("page", ""), asked.number("events")
    gone = asyncio.Event()
    channel.watch(gone.set)
    await channel.start(200, [(b"content-type", b"text/event-stream"), *_HEADERS])
    while not gone.is_set():
        state = await source.state(page, after)
        after = max((happened.number for happened in state.events), default=after)
        await channel.write(b"data: " + msgspec.json.encode(state) + b"\n\n")
        try:
            await asyncio.wait_for(gone.wait(), LIVE_SECONDS)
        except TimeoutError:
            continue
    await channel.end()


async def _session(asked: _Asked) -> None:
    found, events = await asked.surface.source.session(asked.name)
    if found is None and not events:
        raise _Refused(404, "There is no session of this name")
    await _json(asked, {"session": found, "events": events})


async def _find(asked: _Asked) -> None:
    await _json(asked, {"events": await asked.surface.source.find(asked.name)})


async def _metrics(asked: _Asked) -> None:
    await _send(
        asked.channel, 200, await asked.surface.source.metrics(), b"text/plain; version=0.0.4; charset=utf-8"
    )


async def _close(asked: _Asked) -> None:
    await _changed(asked, "session_closed", done=await asked.surface.source.close_session(asked.name))


async def _cancel(asked: _Asked) -> None:
    await _changed(asked, "call_cancelled", done=await asked.surface.source.cancel_call(asked.name))


async def _changed(asked: _Asked, act: str, *, done: bool) -> None:
    """Report an act of an operator, and answer."""
    if not done:
        raise _Refused(404, "It has ended already, or there is none of this name")
    asked.surface.observer.note(f"audit.{act}", name=asked.name, address=asked.address)
    await _json(asked, {"done": True})


ROUTES: Final[dict[tuple[str, ...], tuple[str, Route]]] = {
    ("metrics",): ("GET", _metrics),
    ("api", "state"): ("GET", _state),
    ("api", "live"): ("GET", _live),
    ("api", "sessions", "*"): ("GET", _session),
    ("api", "find", "*"): ("GET", _find),
    ("api", "sessions", "*", "close"): ("POST", _close),
    ("api", "calls", "*", "cancel"): ("POST", _cancel),
}
"""By path: its method, and the function that answers. All of them need the token. A star stands for a name."""


def _route(method: str, path: str) -> tuple[Route, str]:
    """Return the function of a path, and the name in the path.

    Raises:
        _Refused: there is no such path, or it has another method.
    """
    parts = tuple(path.strip("/").split("/"))
    for form, (wanted, route) in ROUTES.items():
        if len(form) == len(parts) and all(
            one in ("*", other) for one, other in zip(form, parts, strict=True)
        ):
            if method != wanted:
                raise _Refused(405, f"Method not allowed: use {wanted}")
            return route, parts[form.index("*")] if "*" in form else ""
    raise _Refused(404, "Not found")


async def _json(asked: _Asked, value: Any) -> None:
    await _send(asked.channel, 200, msgspec.json.encode(value), _JSON)


async def _send(
    channel: Channel, status: int, body: bytes, kind: bytes, extra: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *_HEADERS, *extra]
    await channel.send(status, headers, body)
