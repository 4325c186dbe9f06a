"""HTTP for clients: send a request, read the response as it arrives. This layer moves bytes and decides nothing.

The caller handles statuses, redirects and retries. This layer makes one distinction that the caller cannot make: a
failed request certainly reached no server (`NotSent`), or it may have reached one (`Broken`).
"""

import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import aiohttp
from msgspec import Struct

from holdfast.errors import INVALID_REQUEST, Broken, ConfigError, NotSent, WireError

IDLE_SECONDS: Final = 3.0
"""How long an unused connection is kept open. Common servers close it after 5 s; closing earlier means that a request
seldom uses a connection that the server is just closing."""
PROBES: Final = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))
"""TCP keep-alive: a peer that has disappeared is noticed within about forty seconds, also on a silent stream."""
CODINGS: Final = ("", "identity")


class HttpOptions(Struct, frozen=True, kw_only=True):
    """How to reach a server."""

    connect_seconds: float = 10.0
    verify: bool = True
    """Check the server's certificate. False is for tests only."""


class HttpAnswer:
    """A response: status, headers and body. Read the body to its end or call `close`, or its connection stays in use."""

    __slots__ = ("_response", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status: int = response.status

    def __repr__(self) -> str:
        return f"<HttpAnswer {self.status} {self.header('content-type')}>"

    def header(self, name: str) -> str:
        """Return the first value of a header; an empty string if it is missing."""
        return self._response.headers.get(name, "")

    def headers(self) -> dict[str, tuple[str, ...]]:
        """Return every header by its lower-case name."""
        found: dict[str, tuple[str, ...]] = {}
        for name, value in self._response.headers.items():
            found[name.lower()] = (*found.get(name.lower(), ()), value)
        return found

    async def chunk(self) -> bytes:
        """Return the next bytes of the body; b"" at its end.

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
                raise WireError(INVALID_REQUEST, f"the response is over {limit} bytes")
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Stop reading. The connection is closed unless the body was read to its end."""
        self._response.close()


class HttpTransport:
    """A pool of connections without a limit: with a limit, open streams could block requests."""

    def __init__(self, options: HttpOptions = HttpOptions()) -> None:  # noqa: B008 - frozen
        self._options = options
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"<HttpTransport {'open' if self._session else 'unused'}>"

    async def open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpAnswer:
        """Send a request and return the response when its head has arrived.

        Raises:
            NotSent: no connection could be opened.
            Broken: the connection ended before the response.
            ConfigError: the URL is not valid.
        """
        session = self._session or self._start()
        try:
            response = await session.request(method, url, headers=headers, data=body, allow_redirects=False)
        except Exception as error:
            raise _failed(error, url) from error
        if response.headers.get("content-encoding", "") not in CODINGS:
            response.close()
            raise Broken("the server compressed its response although the request forbids it")
        return HttpAnswer(response)

    async def aclose(self) -> None:
        """Close every connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _start(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=IDLE_SECONDS, ssl=self._options.verify, socket_factory=_socket
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            # The size of compressed content cannot be limited before it is decompressed.
            auto_decompress=False,
            headers={"accept-encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._options.connect_seconds),
        )
        return self._session


def _socket(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)  # noqa: FBT003 - the signature of the standard library
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
