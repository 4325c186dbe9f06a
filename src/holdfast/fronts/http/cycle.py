"""One request on uvicorn's protocol, with two shortcuts around ASGI: `take_body` and `answer`.

ASGI needs three messages, each a dictionary, for a body that has arrived and an answer that is complete. Here that is one
read and one write. If a shortcut is not possible, it does nothing, and the front uses ASGI. Imported only where uvicorn
runs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from holdfast.fronts.http.acknowledged import acknowledged_bytes, is_acknowledged

if TYPE_CHECKING:
    from holdfast.fronts.http.protocol import Flow, GuardedProtocol

Headers = list[tuple[bytes, bytes]]
Application = Callable[[Any, Any, Any], Awaitable[None]]
_CLOSE: Final = b"connection: close\r\n\r\n"
_JSON_HEAD: Final = STATUS_LINE[200] + b"content-type: application/json\r\ncontent-length: %d\r\n"


def lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return headers as they are written."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


class DefaultHeaders:
    """The header lines of every answer (the date), encoded again when the server changes them."""

    __slots__ = ("_lines", "_made_of")

    def __init__(self) -> None:
        self._made_of: Headers | None = None
        self._lines = b""

    def lines(self, headers: Headers) -> bytes:
        """Return the lines as bytes."""
        if headers is not self._made_of:
            self._made_of, self._lines = headers, lines(headers)
        return self._lines


def bytes_taken(transport: asyncio.Transport) -> int:
    """Return a number that grows when the client takes bytes: what it has acknowledged, or else what has left our buffer."""
    acknowledged = acknowledged_bytes(transport.get_extra_info("socket"))
    return -transport.get_write_buffer_size() if acknowledged is None else acknowledged


def _no_callback() -> None:
    """Replace the callback of a finished cycle."""


class Cycle(RequestResponseCycle):
    """A request and its answer. It sets the state of its base class itself, and makes the event only when a task waits."""

    _was_last = False
    """The connection took the answer, and was closed after it."""
    access_log = False
    chunked_encoding: bool | None = None
    expected_content_length = 0

    def __init__(self, protocol: "GuardedProtocol", *, keep_alive: bool, expects: bool) -> None:
        # Not super().__init__(): it takes as long as all other steps before the application.
        self.transport: asyncio.Transport = protocol.transport
        self.flow: Flow = protocol.flow
        self.logger: logging.Logger = protocol.logger
        self.default_headers: list[tuple[bytes, bytes]] = protocol.server_state.default_headers
        self.on_response: Callable[[], None] = protocol.on_response_complete
        self.disconnected: bool = False
        self.keep_alive = keep_alive
        self.waiting_for_100_continue: bool = expects
        self.body: bytes | bytearray = b""  # type: ignore[assignment]
        self.more_body: bool = True
        self.response_started: bool = False
        self.response_complete: bool = False
        self.task: asyncio.Task[None] | None = None
        self._defaults = protocol.defaults
        self._tasks = protocol.tasks
        self._has_news = False
        """A part of the body, or its end, has come since the application last took something."""
        self._event: asyncio.Event | None = None

    @property
    def message_event(self) -> asyncio.Event:  # type: ignore[override]
        """Set while there is something to `receive`. Most requests are answered before a task waits for it."""
        if self._event is None:
            self._event = asyncio.Event()
            if self._has_news:
                self._event.set()
        return self._event

    def came(self, part: bytes) -> None:
        """Take a part of the body. Nearly every body is one part, and is never copied."""
        if not self.body:
            self.body = part
        else:
            if type(self.body) is bytes:
                self.body = bytearray(self.body)
            self.body += part
        self._has_news = True
        if self._event is not None:
            self._event.set()

    def ended(self) -> None:
        """Take the body's end."""
        self.more_body = False
        self._has_news = True
        if self._event is not None:
            self._event.set()

    def lost(self) -> None:
        """Take note that the connection is gone."""
        if not self.response_complete:
            self.disconnected = True
            if self._event is not None:
                self._event.set()

    @override
    async def run_asgi(self, app: Application) -> None:
        """Let the application answer; whatever it does, the connection is left answered or closed."""
        try:
            await app(self.scope, self.receive, self.send)
            if not (self.response_complete or self.disconnected or self.transport.is_closing()):
                raise RuntimeError("the application ended without an answer")  # noqa: TRY301 - answered below
        except BaseException as error:
            self.logger.error("Exception in the application", exc_info=error)  # noqa: TRY400 - also for a cancelled one
            if not self.response_started:
                await self.send_500_response()
            elif not self.response_complete:
                self.transport.close()
        finally:
            # Break the reference cycle so that reference counting frees the request.
            self.on_response = _no_callback
            del self.scope
            if self.task is not None:
                self._tasks.discard(self.task)

    # Past ASGI

    def is_closing(self) -> bool:
        """True if the connection is gone. False for one that was closed after this answer."""
        return not self._was_last and self.transport.is_closing()

    def abort(self) -> None:
        """Close the connection and drop its buffered bytes."""
        self.transport.abort()

    def is_taken(self) -> bool | None:
        """True if the other side has acknowledged all that was written; None: it cannot be known."""
        if self.transport.get_write_buffer_size():
            return False
        return is_acknowledged(self.transport.get_extra_info("socket"))

    def taken(self) -> int | None:
        """Return a number that grows while the client takes bytes; None: no write has to wait."""
        return bytes_taken(self.transport) if self.flow.write_paused else None

    def take_body(self) -> bytes | None:
        """Return the whole body if it has arrived; None: wait for it."""
        if self.more_body or self.disconnected or self.response_complete or self.waiting_for_100_continue:
            return None
        body, self.body = self.body, b""
        self._has_news = False
        if self._event is not None:
            self._event.clear()
        return body if type(body) is bytes else bytes(body)

    def answer_json(self, body: bytes) -> bool:
        """Write a JSON body with status 200 at once; False, with nothing written, if it cannot be done this way."""
        return self._write(_JSON_HEAD % len(body), body)

    def answer(self, status: int, headers: Headers, body: bytes) -> bool:
        """Write a whole answer at once; False, with nothing written, if it cannot be done this way.

        The headers must contain the body's length and come from this package: they are not checked. A HEAD request gets no
        body: its client would read the body as the beginning of the next answer.
        """
        shown = body if self.scope["method"] != "HEAD" else b""
        return self._write(STATUS_LINE[status] + lines(headers), shown)

    def _write(self, head: bytes, body: bytes) -> bool:
        if self.disconnected or self.response_started or self.flow.write_paused:
            return False
        end = b"\r\n" if self.keep_alive else _CLOSE
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.transport.write(b"".join((head, self._defaults.lines(self.default_headers), end, body)))
        if self._event is not None:
            self._event.set()
        if not self.keep_alive:
            self._was_last = not self.transport.is_closing()
            self.transport.close()
        self.on_response()
        return True
