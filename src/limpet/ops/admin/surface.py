"""The admin surface as an HTTP application: a guard for every request, and a table of routes.

All routes except the page's own files need the token. Only POST changes anything, and every change is an event of the
audit log.

The page contains no secret: it asks for the token, keeps it in the tab, and sends it as a header, so there is no
cookie that another site's page could use. Its policy (CSP) allows it to load nothing from elsewhere, to run only its
own scripts, and forbids frames.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct

from limpet.engine.audit import Act
from limpet.errors import LimpetError
from limpet.fronts.http.read.request import Channel, RawRequest
from limpet.ops.admin.admin_guard import AdminGuard, AdminRefusal
from limpet.ops.metrics.samples import Sample
from limpet.ops.metrics.text import CONTENT_TYPE, prometheus_text
from limpet.ops.ring import Happened
from limpet.ops.views import FleetState, ShownSession
from limpet.ports import Clock, Observer, SystemClock

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
_SCRIPTS: Final = ("app", "attention", "charts", "elements", "events", "filter", "tables", "text", "view")
_PAGE: Final = {
    "/": ("index.html", b"text/html; charset=utf-8"),
    "/style.css": ("style.css", b"text/css; charset=utf-8"),
    **{f"/{name}.js": (f"{name}.js", b"text/javascript; charset=utf-8") for name in _SCRIPTS},
}
_JSON: Final = b"application/json"
_FIELDS: Final = 8
_DIGITS: Final = 18
"""How long a number in a query may be."""


class FleetSource(Protocol):
    """The source of the state of the fleet, and the acts of operators."""

    async def state(self, page: str, after: int) -> FleetState:
        """Return the present state, with one page of sessions and the events after a number."""

    async def session(self, name: str) -> tuple[ShownSession | None, list[Happened]]:
        """Return a session and its last events."""

    async def find(self, correlation: str) -> list[Happened]:
        """Return the events of a correlation id."""

    async def close_session(self, name: str) -> bool:
        """Close a session; False: there is no session of this name."""

    async def cancel_call(self, name: str) -> bool:
        """Cancel a call; False: there is no call of this name."""

    async def metrics(self) -> list[Sample]:
        """Return the metrics of this process; in a parent, the sum of its workers."""


class _Asked(Struct, frozen=True):
    """A request that has passed the guard."""

    surface: "Surface"
    request: RawRequest
    channel: Channel
    name: str
    """The variable part of the path."""
    query: dict[str, str]

    def number(self, name: str) -> int:
        """Return a number of the query; 0 if it is absent."""
        text = self.query.get(name, "0")
        if not text.isdecimal() or len(text) > _DIGITS:
            raise AdminRefusal(400, f"{name} must be a number")
        return int(text)


class Surface:
    """Answers requests of operators."""

    def __init__(
        self,
        source: FleetSource,
        token: str,
        observer: Observer,
        allowed_hosts: Sequence[str],
        *,
        clock: Clock | None = None,
    ) -> None:
        self.source: FleetSource = source
        self.guard: AdminGuard = AdminGuard(token, allowed_hosts, clock or SystemClock(), observer)
        self.streams: Streams = Streams()
        self._page = {
            path: ((files(__package__) / "page" / name).read_bytes(), kind)
            for path, (name, kind) in _PAGE.items()
        }

    async def serve(self, request: RawRequest, channel: Channel) -> None:
        """Answer one request."""
        try:
            await self._serve(request, channel)
        except AdminRefusal as refused:
            await _fail(channel, refused.status, refused.error, refused.headers)
        except LimpetError as error:
            await _fail(channel, 503, str(error))
        except OSError:
            pass  # The client has disconnected.
        finally:
            channel.close()

    async def _serve(self, request: RawRequest, channel: Channel) -> None:
        self.guard.check_origin(request)
        path = request.path
        if path in self._page:
            if request.method not in {"GET", "HEAD"}:
                raise AdminRefusal(405, "Method not allowed: use GET", [(b"allow", b"GET, HEAD")])
            await _send(channel, 200, *self._page[path])
            return
        self.guard.check_token(request)
        route, name = _route(request.method, path)
        await route(_Asked(self, request, channel, name, _query(channel)))


class Streams:
    """The live streams of a surface. They end when their client disconnects, or when the process ends."""

    def __init__(self) -> None:
        self._open: set[asyncio.Event] = set()
        self._is_over = False

    def begin(self, channel: Channel) -> asyncio.Event:
        """Return an event that is set when a stream must end."""
        over = asyncio.Event()
        channel.watch(over.set)
        if self._is_over:
            over.set()
        self._open.add(over)
        return over

    def forget(self, over: asyncio.Event) -> None:
        """Forget a stream that has ended."""
        self._open.discard(over)

    def end(self) -> None:
        """End all streams, and later ones at once."""
        self._is_over = True
        for over in self._open:
            over.set()


# Routes

Route = Callable[[_Asked], Awaitable[None]]


async def _state(asked: _Asked) -> None:
    await _json(asked, await asked.surface.source.state(asked.query.get("page", ""), asked.number("events")))


async def _live(asked: _Asked) -> None:
    """Send the state once a second, until the client disconnects or the process ends.

    If there is no state, send `failed`.
    """
    channel, streams = asked.channel, asked.surface.streams
    page, after = asked.query.get("page", ""), asked.number("events")
    over = streams.begin(channel)
    try:
        await channel.start(200, [(b"content-type", b"text/event-stream"), *_HEADERS])
        while not over.is_set():
            try:
                state = await asked.surface.source.state(page, after)
            except LimpetError as error:
                await channel.write(b"event: failed\ndata: " + _problem(str(error)) + b"\n\n")
            else:
                after = max((happened.number for happened in state.events), default=after)
                await channel.write(b"data: " + msgspec.json.encode(state) + b"\n\n")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), LIVE_SECONDS)
        await channel.end()
    finally:
        streams.forget(over)


async def _session(asked: _Asked) -> None:
    found, events = await asked.surface.source.session(asked.name)
    if found is None and not events:
        raise AdminRefusal(404, "There is no session of this name")
    await _json(asked, {"session": found, "events": events})


async def _find(asked: _Asked) -> None:
    await _json(asked, {"events": await asked.surface.source.find(asked.name)})


async def _metrics(asked: _Asked) -> None:
    surface = asked.surface
    text = prometheus_text([*await surface.source.metrics(), *surface.guard.samples()])
    await _send(asked.channel, 200, text, CONTENT_TYPE)


async def _close(asked: _Asked) -> None:
    await _change(asked, asked.surface.source.close_session, "session_closed", session=asked.name)


async def _cancel(asked: _Asked) -> None:
    await _change(asked, asked.surface.source.cancel_call, "call_cancelled", call=asked.name)


async def _change(asked: _Asked, do: Callable[[str], Awaitable[bool]], act: Act, **facts: str) -> None:
    """Do the act of an operator, report it, and answer. An act that fails may have been done: it is reported too."""
    try:
        done = await do(asked.name)
    except LimpetError:
        asked.surface.guard.done(act, asked.request, outcome="unknown", **facts)
        raise
    if not done:
        raise AdminRefusal(404, "It has ended already, or there is none of this name")
    asked.surface.guard.done(act, asked.request, **facts)
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
"""By path: its method, and the function that answers. All of them need the token. A star is a name."""


def _route(method: str, path: str) -> tuple[Route, str]:
    """Return the function of a path, and the name in the path.

    Raises:
        AdminRefusal: there is no such path, or it has another method.
    """
    parts = tuple(path.removeprefix("/").split("/"))
    for form, (wanted, route) in ROUTES.items():
        if len(form) == len(parts) and all(
            one in ("*", other) for one, other in zip(form, parts, strict=True)
        ):
            if method != wanted:
                raise AdminRefusal(405, f"Method not allowed: use {wanted}", [(b"allow", wanted.encode())])
            return route, parts[form.index("*")] if "*" in form else ""
    raise AdminRefusal(404, "Not found")


def _query(channel: Channel) -> dict[str, str]:
    text = channel.asgi()[0].get("query_string", b"").decode("latin-1")
    try:
        parsed = parse_qs(text, max_num_fields=_FIELDS)
    except ValueError:
        raise AdminRefusal(400, f"Bad request: the query has more than {_FIELDS} fields") from None
    return {key: values[-1] for key, values in parsed.items()}


async def _json(asked: _Asked, value: Any) -> None:
    await _send(asked.channel, 200, msgspec.json.encode(value), _JSON)


def _problem(error: str) -> bytes:
    return msgspec.json.encode({"error": error})


async def _fail(channel: Channel, status: int, error: str, extra: Sequence[tuple[bytes, bytes]] = ()) -> None:
    await _send(channel, status, _problem(error), _JSON, extra)


async def _send(
    channel: Channel, status: int, body: bytes, kind: bytes, extra: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *_HEADERS, *extra]
    await channel.send(status, headers, body)
