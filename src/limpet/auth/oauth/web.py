"""HTTP requests to hosts that a server named: limited in size and time, without redirects and cookies."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlencode

from msgspec import Struct

from limpet.auth.oauth.metadata import ErrorAnswer, read
from limpet.auth.urls import check_trusted
from limpet.errors import AuthorizationFailed, Broken, NotSent, WireError
from limpet.transports.http import HttpClientOptions, HttpTransport

OK: Final = 200
SERVER_FAULTS: Final = 500
TOO_MANY: Final = 429
FORM: Final = "application/x-www-form-urlencoded"


class Bounds(Struct, frozen=True, kw_only=True):
    """Limits of one authorization."""

    document: int = 256 * 1024
    """Bytes of a metadata document or a token response."""
    seconds: float = 10.0
    """Seconds for one request, from connecting to the last byte."""
    browser: float = 300.0
    """Seconds for the user to agree."""


class Reply(Struct, frozen=True):
    """A complete response."""

    status: int
    body: bytes
    nonce: str = ""
    """The nonce that the next proof for this server must contain (RFC 9449)."""

    @property
    def is_temporary(self) -> bool:
        """True if the same request may succeed later."""
        return self.status >= SERVER_FAULTS or self.status == TOO_MANY


def refusal(reply: Reply, text: str) -> AuthorizationFailed:
    """Return the error for a response that is not the requested document: `text`, and the error in its body."""
    answer = read(reply.body, ErrorAnswer) or ErrorAnswer(f"HTTP {reply.status}")
    return AuthorizationFailed(f"{text}: {answer}", error=answer.error)


class Web:
    """Requests to URLs that a server or its authorization server named; `near` is the server's URL."""

    def __init__(self, http: HttpTransport, near: str, bounds: Bounds) -> None:
        self._http = http
        self._near = near
        self._bounds = bounds

    def check(self, url: str) -> str:
        """Return the URL if it may be used.

        Raises:
            AuthorizationFailed: it may not be used.
        """
        return check_trusted(url, near=self._near)

    def near(self, url: str) -> "Web":
        """Return a `Web` for URLs that another host names. It shares the connections."""
        return Web(self._http, url, self._bounds)

    async def get(self, url: str) -> Reply:
        """Fetch a document.

        Raises:
            NotSent: the host did not answer in time.
            AuthorizationFailed: the URL may not be used, or the response is too large.
        """
        return await self._send("GET", url, {}, None)

    async def post(self, url: str, fields: Mapping[str, str], headers: Mapping[str, str]) -> Reply:
        """Send a form; raises as `get` does."""
        return await self.send(url, urlencode(fields).encode(), {"content-type": FORM, **headers})

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Send a body; raises as `get` does."""
        return await self._send("POST", url, headers, body)

    async def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        self.check(url)
        try:
            async with asyncio.timeout(self._bounds.seconds):
                answer = await self._http.open(method, url, {"accept": "application/json", **headers}, body)
                try:
                    content = await answer.body(self._bounds.document)
                finally:
                    answer.close()
        except TimeoutError:
            raise NotSent(f"no response from {url} within {self._bounds.seconds:g} seconds") from None
        except Broken as error:
            raise NotSent(f"no complete response from {url}: {error}") from None
        except WireError as error:
            raise AuthorizationFailed(f"the response from {url} cannot be read: {error}") from None
        return Reply(answer.status, content, answer.header("dpop-nonce"))


@asynccontextmanager
async def open_web(near: str, bounds: Bounds) -> AsyncIterator[Web]:
    """Open connections for one authorization."""
    http = HttpTransport(HttpClientOptions(connect_seconds=bounds.seconds))
    try:
        yield Web(http, near, bounds)
    finally:
        await http.aclose()
