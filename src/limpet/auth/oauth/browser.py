"""The user's part of an authorization: a browser shows a page and is then redirected to us.

By default the redirect leads to a listener on this machine, on a free port, which is open as long as the user may take.
A request to it without the right `state` gets 400 and changes nothing.
"""

import asyncio
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, Protocol
from urllib.parse import parse_qs, urlsplit

from limpet.auth.oauth.pkce import Begun
from limpet.auth.urls import is_loopback
from limpet.errors import AuthorizationFailed, ConfigError

OpenBrowser = Callable[[str], Awaitable[str]]
"""Shows the user a URL, and returns the URL that the browser was redirected to at the end."""
HEAD_BYTES: Final = 16 * 1024
HEAD_SECONDS: Final = 10.0
MOST_KNOCKS: Final = 64
"""Connections to the listener at once. A browser opens fewer."""
PAGE: Final = "<!doctype html><title>{0}</title><p>{0}</p>"
DONE: Final = ("200 OK", "You can close this window and go back to the application.")
WRONG: Final = ("400 Bad Request", "This is not the response that the application waits for.")


class Visit(Protocol):
    """One authorization in the browser."""

    @property
    def redirect_uri(self) -> str:
        """The URL that the browser is redirected to at the end."""

    async def go(self, url: str, begun: Begun) -> str:
        """Open a URL in the browser and return the URL that it was redirected to."""


class Browser(Protocol):
    """Shows pages to the user."""

    def visit(self, preferred: str) -> AbstractAsyncContextManager[Visit]:
        """Prepare an authorization. `preferred` is the redirect URI of an earlier one, to be used again if possible."""


class BrowserFunction:
    """A function instead of a listener: it shows the page and returns the URL of the redirect."""

    def __init__(self, open_browser: Callable[[str, Begun], Awaitable[str]], redirect_uri: str) -> None:
        self._open = open_browser
        self.redirect_uri = redirect_uri

    @asynccontextmanager
    async def visit(self, preferred: str) -> AsyncIterator[Visit]:  # noqa: ARG002 - it has one address only
        yield self

    async def go(self, url: str, begun: Begun) -> str:
        return await self._open(url, begun)


class Loopback:
    """The system's browser and a listener on this machine."""

    def __init__(
        self,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        path: str = "/callback",
        launch: Callable[[str], bool] = webbrowser.open,
    ) -> None:
        """Choose where to listen. Port 0 is a free port; some authorization servers accept only a registered one."""
        self._port = port
        self._host = host
        self._path = path
        self._launch = launch

    @classmethod
    def at(cls, redirect_uri: str, *, launch: Callable[[str], bool] = webbrowser.open) -> "Loopback":
        """Return the listener of a redirect URI that was registered by hand. Without a port in it, a free port is used.

        Raises:
            ConfigError: the URI does not lead to this machine.
        """
        parts = urlsplit(redirect_uri)
        if parts.scheme != "http" or not is_loopback(redirect_uri) or parts.query or parts.fragment:
            raise ConfigError(
                f"the redirect URI {redirect_uri[:200]!r} must lead to this machine, such as http://127.0.0.1:8765/callback"
            )
        return cls(port=parts.port or 0, host=parts.hostname or "", path=parts.path or "/", launch=launch)

    def __repr__(self) -> str:
        return f"<Loopback {self._host}:{self._port}{self._path}>"

    @asynccontextmanager
    async def visit(self, preferred: str) -> AsyncIterator[Visit]:
        listener = _Listener(self._path, self._launch)
        server = await self._listen(listener, self._port or urlsplit(preferred).port or 0)
        port = server.sockets[0].getsockname()[1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        listener.redirect_uri = f"http://{host}:{port}{self._path}"
        try:
            yield listener
        finally:
            server.close()
            await listener.aclose()

    async def _listen(self, listener: "_Listener", port: int) -> asyncio.Server:
        # The name has two addresses, which would get two free ports.
        host = "127.0.0.1" if self._host == "localhost" else self._host
        try:
            return await asyncio.start_server(listener.serve, host, port, limit=HEAD_BYTES)
        except OSError as error:
            if self._port or not port:
                raise AuthorizationFailed(
                    f"cannot listen at {self._host}:{port} for the browser: {error}"
                ) from None
            return await asyncio.start_server(listener.serve, host, 0, limit=HEAD_BYTES)


class _Listener:
    """Waits for the request that ends the authorization."""

    def __init__(self, path: str, launch: Callable[[str], bool]) -> None:
        self.redirect_uri = ""
        self._path = path
        self._launch = launch
        self._state = ""
        self._back: asyncio.Future[str] | None = None
        self._knocking: set[asyncio.Task[None]] = set()

    async def go(self, url: str, begun: Begun) -> str:
        self._state = begun.request.state
        self._back = asyncio.get_running_loop().create_future()
        if not await asyncio.to_thread(self._launch, url):
            raise AuthorizationFailed(
                "no browser could be opened; pass `open_browser` to show the page yourself"
            )
        return await self._back

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        task = asyncio.current_task()
        if task is None or len(self._knocking) >= MOST_KNOCKS:
            writer.close()
            return
        self._knocking.add(task)
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_page(*self._judge(head)))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._knocking.discard(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _judge(self, head: bytes) -> tuple[str, str]:
        words = head.partition(b"\r\n")[0].decode("ascii", "replace").split(" ")
        target = words[1] if len(words) == 3 and words[0] == "GET" else ""  # noqa: PLR2004 - method, target, version
        states = parse_qs(urlsplit(target).query).get("state")
        if target.partition("?")[0] != self._path or states != [self._state] or self._back is None:
            return WRONG
        if not self._back.done():
            self._back.set_result(f"{self.redirect_uri}?{target.partition('?')[2]}")
        return DONE

    async def aclose(self) -> None:
        """Wait until the last page is sent, then close."""
        if self._knocking:
            await asyncio.wait(self._knocking, timeout=1)
        for task in self._knocking:
            task.cancel()


def _page(status: str, text: str) -> bytes:
    body = PAGE.format(text).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {len(body)}\r\n"
    return (
        f"{head}cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n".encode()
        + body
    )
