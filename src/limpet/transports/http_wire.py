"""One HTTP/1.1 connection of a client: a request is written, its response is parsed as it arrives (by httptools).

    HttpTransport ──send──▶ HttpWire ──bytes──▶ server
                               │ parser
    caller ◀──chunk── HttpAnswer ◀──┘

A connection carries one request at a time. After the last byte of a response it is free for the next request, unless
the server asks to close it, or has sent bytes that were not requested.

Limits. The head of a response is at most HEAD_BYTES, and so are the bytes between two parts of its body or after the
last one. The body is buffered up to PAUSE_BYTES; then the connection is not
read until the caller has taken them, so a fast server cannot fill the memory.

The end of a body is its length, its last chunk, or, if the head names neither of them, the end of the connection. A
connection that ends earlier is `Broken`: the response is incomplete.
"""

import asyncio
import select
from collections.abc import Callable
from typing import Final, cast

import httptools

from limpet.errors import INVALID_REQUEST, Broken, WireError

HEAD_BYTES: Final = 64 * 1024
PAUSE_BYTES: Final = 256 * 1024
_JOINED_BYTES: Final = 64 * 1024
"""Shorter bodies are written together with the head, in one packet where possible."""
_FINAL: Final = 200
"""Statuses below are interim responses: the response itself follows."""
_FRAMED: Final = (b"content-length", b"transfer-encoding")

_CODINGS: Final = ([b""], [b"identity"])
Headers = dict[bytes, list[bytes]]
"""The values of each header by its name in lower case."""


class HttpAnswer:
    """A response: status, headers and body.

    Read the body to its end or call `close`, or its connection stays in use.
    """

    __slots__ = ("_ended", "_error", "_headers", "_parts", "_size", "_waiter", "_wire", "status")

    def __init__(self, wire: "HttpWire", status: int, headers: Headers) -> None:
        self.status: int = status
        self._wire: HttpWire | None = wire
        """None when the connection is not needed any more."""
        self._headers = headers
        self._parts: list[bytes] = []
        self._size = 0
        self._ended = False
        self._error: Broken | None = None
        self._waiter: asyncio.Future[None] | None = None

    def header(self, name: str) -> str:
        """Return the first value of a header, by its lower-case name; an empty string if it is missing."""
        values = self._headers.get(name.encode())
        return "" if values is None else values[0].decode(errors="surrogateescape")

    def headers(self) -> dict[str, tuple[str, ...]]:
        """Return every header by its lower-case name."""
        return {
            name.decode(errors="surrogateescape"): tuple(
                value.decode(errors="surrogateescape") for value in values
            )
            for name, values in self._headers.items()
        }

    async def chunk(self) -> bytes:
        """Return the next bytes of the body; b"" at its end.

        Raises:
            Broken: the connection ended before the body did.
        """
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            if self._wire is not None:
                self._wire.resume()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        taken = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        if self._wire is not None:
            self._wire.resume()
        return taken

    async def body(self, limit: int, read: Callable[[int], None] | None = None) -> bytes:
        """Return the whole body. If this raises or is cancelled, the response is closed.

        `read` is called with the number of bytes so far, and may raise to stop the reading.

        Raises:
            Broken: the connection ended before the body did.
            WireError: it is over the limit.
        """
        if self._ended and self._size <= limit:
            # The usual case: it has arrived together with the head.
            whole, self._parts = b"".join(self._parts), []
            return whole
        parts: list[bytes] = []
        size = 0
        try:
            while size <= limit and (part := await self.chunk()):
                size += len(part)
                parts.append(part)
                if read is not None:
                    read(size)
        except BaseException:
            self.close()
            raise
        if size > limit:
            self.close()
            raise WireError(INVALID_REQUEST, f"the response is over {limit} bytes")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def stall(self) -> None:
        """Do not read the connection until the next `chunk`: the server cannot send more than the buffers hold."""
        if self._wire is not None:
            self._wire.pause()

    def close(self) -> None:
        """Stop reading. The connection is closed unless the body has arrived to its end."""
        wire = self._wire
        if wire is not None:
            self.broke(Broken("the response was closed by us"))
            wire.abort()

    # By the connection

    def add(self, data: bytes) -> None:
        """Buffer a part of the body."""
        self._parts.append(data)
        self._size += len(data)
        if self._size > PAUSE_BYTES and self._wire is not None:
            self._wire.pause()
        if self._waiter is not None:
            self._wake()

    def end(self) -> None:
        """Record that the body is complete."""
        self._wire, self._ended = None, True
        if self._waiter is not None:
            self._wake()

    def broke(self, error: Broken) -> None:
        """Record that the rest of the body will not come."""
        if self._wire is not None:
            self._wire, self._error = None, error
            self._wake()

    @property
    def ends_with_connection(self) -> bool:
        """True if only the end of the connection ends the body."""
        return not any(name in self._headers for name in _FRAMED)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class HttpWire(asyncio.Protocol):
    """One connection. `on_free` is called after each response that leaves it usable, `on_lost` once at its end."""

    __slots__ = (
        "_answer",
        "_head_bytes",
        "_headers",
        "_is_complete",
        "_is_paused",
        "_is_usable",
        "_loop",
        "_on_free",
        "_on_lost",
        "_parser",
        "_poll",
        "_transport",
        "_waiter",
        "idle_since",
        "is_open",
    )

    _loop: asyncio.AbstractEventLoop

    def __init__(self, on_free: Callable[["HttpWire"], None], on_lost: Callable[["HttpWire"], None]) -> None:
        self.is_open: bool = False
        self.idle_since: float = 0.0
        """When its last response ended."""
        self._on_free = on_free
        self._on_lost = on_lost
        self._parser = httptools.HttpResponseParser(self)
        self._poll = select.poll()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[HttpAnswer] | None = None
        """For the head of the response."""
        self._answer: HttpAnswer | None = None
        self._headers: Headers = {}
        self._head_bytes = 0
        self._is_complete = False
        self._is_paused = False
        self._is_usable = True

    @property
    def is_reusable(self) -> bool:
        """True if the server has neither closed the unused connection nor sent bytes.

        The socket is asked, because a loop that was busy, or a machine that was suspended, has not noticed it yet.
        """
        return self.is_open and not self._poll.poll(0)

    async def send(self, head: bytes, body: bytes | None) -> HttpAnswer:
        """Write a request and return its response when the head has arrived.

        Raises:
            Broken: the connection ended before that, or the response is not HTTP.
        """
        transport = self._transport
        if transport is None or not self.is_open:
            raise Broken("the connection has ended")
        waiter: asyncio.Future[HttpAnswer] = self._loop.create_future()
        self._waiter = waiter
        self._headers, self._head_bytes, self._is_complete = {}, 0, False
        if body is None or len(body) > _JOINED_BYTES:
            transport.write(head)
            if body is not None:
                transport.write(body)
        else:
            transport.write(head + body)
        try:
            return await waiter
        except asyncio.CancelledError:
            # If the response was complete before, the connection may have another request already.
            if self._waiter is waiter:
                self.abort()
            raise

    def pause(self) -> None:
        """Stop reading until `resume`."""
        if self._transport is not None and not self._is_paused and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again, if reading was paused."""
        if self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None and self.is_open:
            self.is_open = False
            self._transport.abort()

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        self._poll.register(transport.get_extra_info("socket"), select.POLLIN)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        """Parse the received bytes."""
        if self._waiter is None:
            # No request was sent.
            self.abort()
            return
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(Broken(f"the server's response is not HTTP/1.1: {error}"))
            return
        if self._is_complete:
            self._finish()
        elif self._head_bytes > HEAD_BYTES:
            part = "head" if self._answer is None else "trailer"
            self._fail(Broken(f"the {part} of the server's response is over {HEAD_BYTES} bytes"))

    def connection_lost(self, exception: Exception | None) -> None:
        """End the response that was being read."""
        self.is_open = False
        answer = self._answer
        if answer is not None and exception is None and answer.ends_with_connection:
            answer.end()
        else:
            reason = f": {exception}" if exception is not None and str(exception) else ""
            self._fail(Broken(f"the connection broke{reason}"))
        self._on_lost(self)

    def _finish(self) -> None:
        self._waiter = None
        if self._is_paused:
            self.resume()
        if self._is_usable and self.is_open:
            self.idle_since = self._loop.time()
            self._on_free(self)
        else:
            self.abort()

    def _fail(self, error: Broken) -> None:
        if self._answer is not None:
            self._answer.broke(error)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self.abort()

    # The parser

    def on_message_begin(self) -> None:
        """Record a second response in the bytes of the first: the server sends bytes that were not requested."""
        if self._is_complete:
            self._is_usable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header. Headers after the body are not kept."""
        if self._answer is None and not self._is_complete:
            name, headers = name.lower(), self._headers
            if name in headers:
                headers[name].append(value)
            else:
                headers[name] = [value]

    def on_headers_complete(self) -> None:
        """Hand over the response, unless it is an interim one."""
        if self._is_complete:
            return
        status = self._parser.get_status_code()
        if status < _FINAL:
            self._headers = {}
            return
        if self._headers.get(b"content-encoding", _CODINGS[0]) not in _CODINGS:
            # The size of compressed content cannot be limited before it is decompressed.
            self._fail(Broken("the server compressed its response although the request forbids it"))
            return
        self._answer = HttpAnswer(self, status, self._headers)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(self._answer)

    def on_body(self, data: bytes) -> None:
        """Hand over a part of the body."""
        self._head_bytes = 0
        if self._answer is not None:
            self._answer.add(data)

    def on_message_complete(self) -> None:
        """End the response; the connection is free when all bytes that came with it are parsed."""
        answer, self._answer = self._answer, None
        if answer is not None:
            self._is_complete = True
            self._is_usable = self._is_usable and self._parser.should_keep_alive()
            answer.end()
