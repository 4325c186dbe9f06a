"""One request on a connection: its body as it arrives, and its response with back-pressure.

Nearly every request is complete when it is served, and its answer is one write. Two calls wait: `read` for a part of
the body, `flow` for a client that does not take the written bytes.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from limpet.fronts.http.http1.acknowledged import acknowledged_bytes, is_acknowledged
from limpet.fronts.http.http1.answers import CLOSE, EVENT_LINES, JSON_LINES, STATUS_LINES, lines
from limpet.fronts.http.http1.asgi import Messages, scope_of
from limpet.fronts.http.http1.framing import Parsed
from limpet.fronts.http.read.head import RawHeaders
from limpet.fronts.http.read.request import AT_ONCE, Gone, RawRequest, Receive, Scope, Send

if TYPE_CHECKING:
    from limpet.fronts.http.http1.connection import HttpConnection

HIGH_WATER: Final = 65_536
"""When more bytes of a body wait to be read, the connection is not read."""
_ACKNOWLEDGED_SECONDS: Final = (0.005, 0.25)
"""The first and the longest pause between two looks at the acknowledged bytes, which no event reports."""
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_PROCESSING: Final = b"HTTP/1.1 102 Processing\r\n\r\n"
_EMPTY_LINE: Final = b"1\r\n\n\r\n"
"""A chunk with an empty line. Between two events of a stream it has no meaning."""
_STREAM: Final = (b"content-type", b"text/event-stream")
_BODILESS: Final = frozenset({204, 304})


def bytes_taken(transport: asyncio.Transport) -> int:
    """Return a number that grows when the client takes bytes: acknowledged ones, or else those out of our buffer."""
    acknowledged = acknowledged_bytes(transport.get_extra_info("socket"))
    return -transport.get_write_buffer_size() if acknowledged is None else acknowledged


class SocketChannel(Struct, eq=False, weakref=True):
    """A request that our server has received, and its response."""

    connection: "HttpConnection"
    parsed: Parsed
    request: RawRequest
    _transport: asyncio.Transport
    is_last: bool = False
    """The connection is closed after this response."""
    expects: bool = False
    """The client waits for "100 Continue" before it sends the body."""
    _body: bytes | bytearray = b""
    has_all: bool = False
    """The whole body has arrived."""
    has_read_all: bool = False
    """`read` or `take_body` has returned the end of the body."""
    is_begun: bool = False
    """The response has begun."""
    is_complete: bool = False
    """The response is complete."""
    is_lost: bool = False
    """The connection was lost before the response was complete."""
    is_bodiless: bool = False
    """The response has no body, also if its headers name a length."""
    _is_chunked: bool = False
    _is_stream: bool = False
    """The response is a stream of events."""
    _end: int = 0
    """With TLS: the acknowledged bytes at which the client has all of the long parts that were written."""
    _was_last: bool = False
    """The response was written, and the connection was closed after it."""
    _waiter: asyncio.Future[None] | None = None
    _on_gone: Callable[[], None] | None = None
    task: asyncio.Task[None] | None = None

    # Called by the connection

    def came(self, part: bytes) -> None:
        """Take a part of the body. Nearly every body is one part, and is never copied."""
        if not self._body:
            self._body = part
        else:
            if type(self._body) is bytes:
                self._body = bytearray(self._body)
            self._body += part
        if self._waiter is not None:
            self._wake()

    @property
    def has_much(self) -> bool:
        """True if too many bytes of the body wait to be read."""
        return len(self._body) > HIGH_WATER and not self.is_complete

    @property
    def held(self) -> int:
        """The bytes of the body that wait to be read."""
        return len(self._body)

    def ended(self) -> None:
        """Take the end of the body."""
        self.has_all = True
        self._wake()

    def lost(self) -> None:
        """Note that the client has disconnected."""
        if self.is_complete or self.is_lost:
            return
        self.is_lost = True
        self._wake()
        if self._on_gone is not None:
            self._on_gone()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _news(self) -> None:
        """Wait for a part of the body, the end of the connection, or the end of the response."""
        self._waiter = self.connection.members.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    @property
    def harmless(self) -> bytes:
        """Bytes without a meaning that a client may get now; empty: no bytes are allowed now."""
        if not self.is_begun:
            return _PROCESSING if self.parsed.version != "1.0" else b""
        return _EMPTY_LINE if self._is_stream else b""

    @property
    def is_resumable(self) -> bool:
        """True if the response is the stream of a session that a GET reads: its client can continue it elsewhere."""
        return self._is_stream and self.request.method == "GET" and bool(self.request.session_id)

    # Reading

    def take_body(self) -> bytes | None:
        """Return the whole body if it has arrived; None: use `read`."""
        if not self.has_all or self.has_read_all or self.is_lost:
            return None
        self.has_read_all = True
        if self.expects:
            self.expects = False
        body, self._body = self._body, b""
        return body if type(body) is bytes else bytes(body)

    async def read(self) -> tuple[bytes, bool]:
        """Return the next part of the body, and whether more follows.

        Raises:
            Gone: the client has disconnected.
        """
        if self.expects and not (self._body or self.has_all or self._transport.is_closing()):
            self._transport.write(_CONTINUE)
        self.expects = False
        while not (self._body or self.has_all or self.is_lost):
            self.connection.read_on()
            await self._news()
        if self.is_lost:
            raise Gone
        body, self._body = self._body, b""
        self.has_read_all = self.has_all
        self.connection.read_on()
        return bytes(body), not self.has_all

    async def until_over(self) -> None:
        """Wait until the response is complete or the connection is lost."""
        self.connection.read_on()
        while not (self.is_lost or self.is_complete):
            await self._news()

    # Answering

    def answer_ok(self, body: bytes, *, is_event: bool) -> bool:
        """Write a body with status 200 at once; False, with nothing written, if it cannot be done this way."""
        connection = self.connection
        members = connection.members
        if (
            self.is_begun
            or self.is_lost
            or self.is_last
            or self.expects
            or connection.is_full
            or members.leaving
            or len(body) > AT_ONCE
        ):
            return self._answer((EVENT_LINES if is_event else JSON_LINES) % len(body), body)
        # Nearly every answer is sent here: its head is known, and the connection serves the next request.
        heads = members.event_heads if is_event else members.json_heads
        self._transport.write(heads[len(body)] + body)
        self.is_begun = self.is_complete = True
        if self._waiter is not None:
            self._wake()
        connection.completed(self)
        return True

    def answer(self, status: int, headers: RawHeaders, body: bytes) -> bool:
        """Write a whole answer at once; False, with nothing written, if it cannot be done this way.

        A HEAD request gets no body: its client would read the body as the beginning of the next answer.
        """
        return self._answer(STATUS_LINES[status] + lines(headers), b"" if self.is_bodiless else body)

    def _answer(self, head: bytes, body: bytes) -> bool:
        connection = self.connection
        if self.is_lost or self.is_begun or connection.is_full or len(body) > AT_ONCE:
            return False
        self._write_whole(head, body)
        self._complete()
        return True

    def _write_whole(self, head: bytes, body: bytes) -> None:
        self.is_begun = True
        if len(body) > AT_ONCE:
            # Not in one piece: that would be a second copy of a long body.
            self._owe(len(body))
            self._transport.write(b"".join((head, self.connection.members.common, self._head_end())))
            self._transport.write(body)
        else:
            self._transport.write(b"".join((head, self.connection.members.common, self._head_end(), body)))

    def _head_end(self) -> bytes:
        """Return the end of a head; decide whether the connection serves another request."""
        if self.expects and not self.has_all:
            # A client that is answered before its body may or may not send the body: no request can follow on this
            # connection.
            self.is_last = True
        # A server that stops only asks for another connection: requests that were sent on this one are still answered.
        return CLOSE if self.is_last or self.connection.members.leaving else b"\r\n"

    def _complete(self) -> None:
        self.is_complete = True
        if self._waiter is not None:
            self._wake()
        if self.is_last:
            self._was_last = not self.is_closing()
        self.connection.completed(self)

    async def send(self, status: int, headers: RawHeaders, body: bytes) -> None:
        """Send a whole answer, if necessary after the client has taken earlier ones.

        Return when it has taken most of this one.

        Raises:
            OSError: the client has disconnected before.
        """
        await self.flow()
        if self.answer(status, headers, body):
            return
        if self.is_begun:
            raise ConnectionResetError
        self._write_whole(STATUS_LINES[status] + lines(headers), body)
        await self.flow()
        self._complete()

    async def start(self, status: int, headers: RawHeaders) -> None:
        """Begin a response. Without a length in its headers the body is sent in chunks, or ends with the connection."""
        await self.flow()
        self.is_begun = True
        self.is_bodiless |= status in _BODILESS
        head = STATUS_LINES.get(status, b"HTTP/1.1 %d \r\n" % status) + lines(headers)
        if not (self.is_bodiless or any(name == b"content-length" for name, _ in headers)):
            self._is_chunked = self.parsed.version != "1.0"
            self._is_stream = self._is_chunked and _STREAM in headers
            head += b"transfer-encoding: chunked\r\n" if self._is_chunked else b""
        self._transport.write(head + self.connection.members.common + self._head_end())

    async def write(self, part: bytes) -> None:
        """Send a part of the body."""
        await self.flow()
        self.write_nowait(part)

    def write_nowait(self, part: bytes) -> bool:
        """Send a part of the body if it need not wait; False, with nothing written: use `write`."""
        if self.is_lost or self.connection.is_full or (self._end and not self.is_flowing()):
            return False
        if part and not self.is_bodiless:
            if len(part) > AT_ONCE:
                self._owe(len(part))
            self._transport.write(b"%x\r\n%b\r\n" % (len(part), part) if self._is_chunked else part)
        return True

    async def end(self) -> None:
        """Complete the body, after the client has taken most of it."""
        await self.flow()
        if self._is_chunked:
            self._transport.write(b"0\r\n\r\n")
        self._complete()

    async def flow(self) -> None:
        """Wait until the client has taken most of the written bytes.

        Raises:
            OSError: the client has disconnected.
        """
        connection = self.connection
        pause, longest = _ACKNOWLEDGED_SECONDS
        while not self.is_lost:
            if connection.is_full:
                await connection.room()
            elif self._end and self.owed > AT_ONCE:
                await asyncio.sleep(pause)
                pause = min(2 * pause, longest)
            else:
                return
        raise ConnectionResetError

    def is_flowing(self) -> bool:
        """True if the next part is written without waiting."""
        return not self.connection.is_full and not (self._end and self.owed > AT_ONCE)

    def _owe(self, size: int) -> None:
        """Note a long part before it is written with TLS: the transport encrypts it at once, and counts none of it."""
        if self.connection.scheme == "https":
            acknowledged = acknowledged_bytes(self._transport.get_extra_info("socket"))
            if acknowledged is not None:
                self._end = max(self._end, acknowledged) + size

    @property
    def owed(self) -> int:
        """With TLS: the bytes of long parts that the client has not acknowledged.

        Without it, the transport counts its bytes.
        """
        if not self._end:
            return 0
        acknowledged = acknowledged_bytes(self._transport.get_extra_info("socket"))
        return 0 if acknowledged is None else max(0, self._end - acknowledged)

    # The connection

    def watch(self, on_gone: Callable[[], None]) -> None:
        """Call `on_gone` if the client disconnects before the response is complete."""
        self._on_gone = on_gone
        if self.is_lost:
            on_gone()
        else:
            self.connection.read_on()

    def close(self) -> None:
        """Stop watching."""
        self._on_gone = None

    def is_closing(self) -> bool:
        """True if the connection is gone. False if it was closed after this response."""
        return not self._was_last and self._transport.is_closing()

    def may_be_gone(self) -> bool:
        """True if the client is gone, or has closed its side."""
        return self.connection.half_closed is not None or (
            not self._was_last and self._transport.is_closing()
        )

    def abort(self) -> None:
        """Close the connection and drop its buffered bytes."""
        self._transport.abort()

    def is_taken(self) -> bool | None:
        """True if the other side has acknowledged all written bytes; None: it cannot be known."""
        if self._transport.get_write_buffer_size():
            return False
        return is_acknowledged(self._transport.get_extra_info("socket"))

    def taken(self) -> int | None:
        """Return a number that grows while the client takes bytes; None: no write has to wait."""
        return bytes_taken(self._transport) if self.connection.is_full or self._end else None

    def asgi(self) -> tuple[Scope, Receive, Send]:
        """Return the request in the form of ASGI."""
        messages = Messages(self)
        return scope_of(self), messages.receive, messages.send
