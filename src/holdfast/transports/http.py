"""HTTP as a client sees it: a request out, its answer in as it comes. Bytes moved, nothing decided.

Statuses, redirects and retries are the caller's. What this layer adds is one distinction the
caller cannot make by itself: whether a failed request may have reached anybody (`Broken`) or
certainly has not (`NotSent`).
"""

import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import aiohttp
from msgspec import Struct

from holdfast.errors import INVALID_REQUEST, Broken, ConfigError, NotSent, WireError

IDLE_SECONDS: Final = 3.0
"""How long an unused connection is kept: below the 5 s at which common servers hang up, so that a
request seldom meets a connection that is just being closed."""
PROBES: Final = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))
"""A peer that vanished without a word is noticed within about forty seconds, however silent the stream."""
CODINGS: Final = ("", "identity")


class HttpOptions(Struct, frozen=True, kw_only=True):
    """How to reach a server."""

    connect_seconds: float = 10.0
    verify: bool = True
    """Check the server's certificate. False is for tests only."""


class HttpAnswer:
    """A status, headers, and a body that is read or closed: nothing else gives its connection back."""

    __slots__ = ("_response", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status: int = response.status

    def __repr__(self) -> str:
        return f"<HttpAnswer {self.status} {self.header('content-type')}>"

    def header(self, name: str) -> str:
        """Return a header's first value, or nothing."""
        return self._response.headers.get(name, "")

    def headers(self) -> dict[str, tuple[str, ...]]:
        """Return every header by its lower-case name."""
        found: dict[str, tuple[str, ...]] = {}
        for name, value in self._response.headers.items():
            found[name.lower()] = (*found.get(name.lower(), ()), value)
        return found

    async def chunk(self) -> bytes:
        """Return the next bytes of the body, in whatever cut; b"" at its proper end.

        Raises:
            Broken: the connection ended before the body did.
        """
        try:
            return await self._response.content.readany()
        except Exception as error:
            self.close()
            raise _broken(error) from error

    async def body(self, limit: int) -> bytes:
        """Return the whole body.

        Raises:
            Broken: the connection ended before the body did.
            WireError: it is over the limit.
        """
        parts: list[bytes] = []
        size = 0
        while part := await self.chunk():
            size += len(part)
            if size > limit:
                self.close()
                raise WireError(INVALID_REQUEST, f"the answer is over {limit} bytes")
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Read no more. Its connection is dropped unless the body was read to its end."""
        self._response.close()


class HttpTransport:
    """One client's connections, as many as it has requests under way: a limit here would let streams block calls."""

    def __init__(self, options: HttpOptions = HttpOptions()) -> None:  # noqa: B008 - frozen
        self._options = options
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"<HttpTransport {'open' if self._session else 'unused'}>"

    async def open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpAnswer:
        """Send a request and return its answer once the answer's head is there.

        Raises:
            NotSent: no connection could be made.
            Broken: the connection ended before there was an answer.
            ConfigError: the URL is none.
        """
        session = self._session or self._start()
        try:
            response = await session.request(method, url, headers=headers, data=body, allow_redirects=False)
        except Exception as error:
            raise _failed(error, url) from error
        if response.headers.get("content-encoding", "") not in CODINGS:
            response.close()
            raise Broken("the server compressed its answer though it was asked not to")
        return HttpAnswer(response)

    async def aclose(self) -> None:
        """Drop every connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _start(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=IDLE_SECONDS, ssl=self._options.verify, socket_factory=_socket
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            # What is compressed has no bound that can be checked before it is unpacked.
            auto_decompress=False,
            headers={"accept-encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._options.connect_seconds),
        )
        return self._session


def _socket(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)  # noqa: FBT003 - the standard library's
    with suppress(OSError):
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in PROBES:
            if hasattr(socket, name):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


def _failed(error: Exception, url: str) -> Exception:
    match error:
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return NotSent(f"cannot connect to {url}: {error}")
        case aiohttp.InvalidURL():
            return ConfigError(f"not a URL: {url}")
        case _:
            return _broken(error)


def _broken(error: Exception) -> Exception:
    if isinstance(error, aiohttp.ClientError | OSError):
        return Broken(f"the connection broke: {str(error) or type(error).__name__}")
    return error
