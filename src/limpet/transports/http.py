"""HTTP for clients: send a request, read the response as it arrives. This layer moves bytes and decides nothing.

The caller handles statuses, redirects and retries. This layer makes one distinction that the caller cannot make: a
failed request certainly reached no server (`NotSent`), or it may have reached one (`Broken`).

Connections are kept open and used again for the same scheme, host and port. There is no limit on their number: with a
limit, open streams could block requests. Redirects, cookies, compression and proxies of the environment are not
supported here; each would let another party decide where credentials go, or how large a response is (decision 6).
"""

import asyncio
import os
import re
import ssl
from base64 import b64encode
from collections.abc import Coroutine, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

from limpet.errors import Broken, ConfigError, NotSent
from limpet.transports.dial import dial
from limpet.transports.http_wire import HttpAnswer, HttpWire

IDLE_SECONDS: Final = 3.0
"""How long an unused connection is kept open. Common servers close it after 5 s; closing earlier means that a request
seldom uses a connection that the server is just closing."""
PORTS: Final = {"http": 80, "https": 443}
_WRITTEN: Final = "!$%&'()*+,-./:;=?@_~"
"""The characters of a URL's path and query that are sent as they are."""

__all__ = ["HttpAnswer", "HttpClientOptions", "HttpTransport", "SameHeaders", "head_of", "place_of", "shown"]


class HttpClientOptions(Struct, frozen=True, kw_only=True):
    """How to reach a server."""

    connect_seconds: float = 10.0
    verify: bool = True
    """Check the server's certificate. False is for tests only."""


Origin = tuple[str, str, int]
"""Scheme, host and port."""


class Place(NamedTuple):
    """A URL, ready to be requested."""

    origin: Origin
    target: str
    """Path and query."""
    headers: Mapping[str, str]
    """The headers of every request to it."""


class SameHeaders(dict[str, str]):
    """The headers of many requests to one place: their lines are made once. Do not change them."""

    __slots__ = ("lines", "place")

    place: Place | None

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(headers)
        self.place = None
        self.lines: str = ""


class HttpTransport:
    """A pool of connections."""

    def __init__(self, options: HttpClientOptions = HttpClientOptions()) -> None:  # noqa: B008 - frozen
        self._options = options
        self._wires: dict[HttpWire, Origin] = {}
        """Every open connection and its origin."""
        self._idle: dict[Origin, list[HttpWire]] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._closing: asyncio.Future[None] | None = None
        """For the end of the last connection."""

    def __repr__(self) -> str:
        return f"<HttpTransport {'open' if self._wires else 'unused'}>"

    def open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Coroutine[Any, Any, HttpAnswer]:
        """Send a request and return the response when its head has arrived. Await it at once.

        Raises:
            NotSent: no connection could be opened.
            Broken: the connection ended before the response.
            ConfigError: the URL or a header is not valid.
        """
        place = place_of(url)
        head = head_of(method, place, headers, body)
        wire = self._unused(place.origin)
        if wire is None:
            return self._send_on_new(place.origin, url, head, body)
        return wire.send(head, body) if method != "GET" else self._get(wire, place.origin, url, head, body)

    async def aclose(self) -> None:
        """Close every connection."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        self._idle.clear()
        for wire in list(self._wires):
            wire.abort()
        if self._wires:
            self._closing = asyncio.get_running_loop().create_future()
            await self._closing

    # Connections

    async def _get(
        self, wire: HttpWire, origin: Origin, url: str, head: bytes, body: bytes | None
    ) -> HttpAnswer:
        try:
            return await wire.send(head, body)
        except Broken:
            # The server may have closed it while it was unused; a GET does no harm twice.
            return await self._send_on_new(origin, url, head, body)

    async def _send_on_new(self, origin: Origin, url: str, head: bytes, body: bytes | None) -> HttpAnswer:
        wire = await self._connect(origin, url)
        return await wire.send(head, body)

    def _unused(self, origin: Origin) -> HttpWire | None:
        """Return an open connection to use again; the one that was used last, so that the others may end."""
        idle = self._idle.get(origin)
        while idle:
            wire = idle.pop()
            if wire.is_reusable:
                return wire
            wire.abort()
        return None

    async def _connect(self, origin: Origin, url: str) -> HttpWire:
        scheme, host, port = origin
        seconds = self._options.connect_seconds
        try:
            async with asyncio.timeout(seconds):
                sock = await dial(host, port)
                loop = asyncio.get_running_loop()
                try:
                    _, wire = await loop.create_connection(
                        lambda: HttpWire(self._keep_idle, self._forget),
                        sock=sock,
                        ssl=self._context() if scheme == "https" else None,
                        server_hostname=host if scheme == "https" else None,
                    )
                except BaseException:
                    sock.close()
                    raise
        except TimeoutError:
            raise NotSent(f"cannot connect to {shown(url)}: no connection within {seconds:g} s") from None
        except OSError as error:
            # asyncio says "[Errno 111] Connect call failed ('127.0.0.1', 8000)".
            plain = (
                os.strerror(error.errno) if isinstance(error, ConnectionError) and error.errno else str(error)
            )
            raise NotSent(f"cannot connect to {shown(url)}: {plain or type(error).__name__}") from error
        self._wires[wire] = origin
        return wire

    def _context(self) -> ssl.SSLContext:
        return _tls_context(
            os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"), verify=self._options.verify
        )

    def _keep_idle(self, wire: HttpWire) -> None:
        self._idle.setdefault(self._wires[wire], []).append(wire)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._sweep)

    def _forget(self, wire: HttpWire) -> None:
        origin = self._wires.pop(wire, None)
        if origin is not None and wire in self._idle.get(origin, ()):
            self._idle[origin].remove(wire)
        if not self._wires and self._closing is not None and not self._closing.done():
            self._closing.set_result(None)

    def _sweep(self) -> None:
        """Close the connections that were not used for a while. One timer serves all of them."""
        loop = asyncio.get_running_loop()
        self._sweeping = None
        until = loop.time() - IDLE_SECONDS
        for idle in self._idle.values():
            for wire in idle:
                if wire.idle_since <= until:
                    wire.abort()
        self._idle = {
            origin: kept
            for origin, idle in self._idle.items()
            if (kept := [wire for wire in idle if wire.is_open])
        }
        oldest = min((wire.idle_since for idle in self._idle.values() for wire in idle), default=None)
        if oldest is not None:
            self._sweeping = loop.call_at(oldest + IDLE_SECONDS, self._sweep)


@lru_cache(maxsize=8)
def _tls_context(_file: str | None, _folder: str | None, *, verify: bool) -> ssl.SSLContext:
    """Return the settings of TLS; OpenSSL reads the trusted certificates from these places.

    One object serves all transports: reading the certificates takes 25 ms of the processor, and a client may cause a
    new transport (a token that the authorization server is asked about).
    """
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


# Requests


def shown(url: str) -> str:
    """Return a URL for people: without user, password and query, which may be secrets."""
    return re.sub("//[^/]*@", "//", url.partition("?")[0])


def is_http_url(url: str) -> bool:
    """Return True if a text is an http:// or https:// URL with a host."""
    try:
        parts = urlsplit(url)
        return parts.scheme in PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


@lru_cache(maxsize=256)
def place_of(url: str) -> Place:
    """Return the parts of a URL that a request needs.

    Raises:
        ConfigError: it is not an http or https URL with a host.
    """
    try:
        parts = urlsplit(url)
        # An international name travels in its ASCII form.
        host = parts.hostname or ""
        host = host if host.isascii() else host.encode("idna").decode()
        port = parts.port or PORTS[parts.scheme if host else ""]
    except (ValueError, KeyError):
        raise ConfigError(f"not a URL: {shown(url)}") from None
    target = quote(parts.path or "/", safe=_WRITTEN)
    if parts.query:
        target += "?" + quote(parts.query, safe=_WRITTEN)
    name = f"[{host}]" if ":" in host else host
    headers = {
        "host": name if port == PORTS[parts.scheme] else f"{name}:{port}",
        "accept-encoding": "identity",
        "user-agent": "limpet",
    }
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    return Place((parts.scheme, host, port), target, headers)


def head_of(method: str, place: Place, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Return the head of a request. `headers` have lower-case names and replace those of the place.

    Raises:
        ConfigError: a header contains a line break. It would begin another header, or another request.
    """
    if type(headers) is not SameHeaders:
        lines = _lines({**place.headers, **headers})
    elif headers.place is place:
        lines = headers.lines
    else:
        lines = headers.lines = _lines({**place.headers, **headers})
        headers.place = place
    size = "" if body is None else f"content-length: {len(body)}\r\n"
    return f"{method} {place.target} HTTP/1.1\r\n{lines}{size}\r\n".encode(errors="surrogateescape")


def _lines(headers: Mapping[str, str]) -> str:
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers) or "\0" in lines:
        raise ConfigError("a header of a request contains a line break or a NUL character")
    return lines
