"""Bytes in, requests out: the parser of one connection, with the bounds that httptools (llhttp) does not have.

It reports to its connection: the head of a request, the parts of its body, its end. Nothing of a request runs inside
these reports. A refused request raises out of `feed`, before the bytes behind its error are parsed.

Limits: the head and the trailers by `Limits.headers`, the overhead of chunks, and the short chunks of one read. A head
may begin in the middle of the fed bytes; how many bytes of it were fed is then known only when it is complete.
"""

from typing import Any, Final, Protocol

import httptools

from limpet.fronts.http.http1.answers import lines
from limpet.fronts.http.http1.framing import (
    CHUNKED,
    EXPECT,
    NOTABLE,
    Parsed,
    RefusedRequest,
    check_host,
    check_start,
    length_of,
    split,
)
from limpet.fronts.http.read.head import RawHeaders
from limpet.fronts.http.read.request import RawRequest

# The expected part. Plain numbers: they are compared several times a request.
IDLE: Final = 0
HEAD: Final = 1
BODY: Final = 2

_PER_HEADER: Final = 4
"""Bytes around a header: colon, space, line end."""
_PER_LINE: Final = 64
"""The limit of a head allows one header for so many bytes. A header of a few bytes costs some hundred bytes of
memory."""
HEADER_BYTES: Final = 176
"""The memory of a header besides its bytes: two objects in a tuple in a list."""
_PER_BYTE: Final = 8
"""Bytes of overhead that are allowed for each byte of a body in chunks, besides those of a head. A chunk of one byte
takes six."""
_USUAL_CHUNK: Final = 32
_SHORT: Final = 8
"""Chunks of one read that are shorter than the usual one may be short by so many times the limit of a head in all:
4,000 of one byte. Each costs as much time as a long one, and a read may bring 40,000 of them."""
_TOO_SMALL: Final = "Bad request: the chunks of the body are too small"
_INVALID: Final = "Bad request: Invalid HTTP request received."


class ParserSink(Protocol):
    """The receiver of the parser's reports."""

    client: str | None

    def head_began(self) -> None:
        """Report the first byte of a request behind another one."""

    def request_came(self, request: RawRequest, parsed: Parsed, *, expects: bool) -> None:
        """Report a complete head; `expects`: the client waits for "100 Continue"."""

    def part_came(self, part: bytes) -> None:
        """Report a part of the body."""

    def request_ended(self) -> None:
        """Report the end of the body."""


class RequestParser:
    """The parser of a connection."""

    __slots__ = (
        "_chunk", "_fed", "_headers", "_is_unsure", "_limit", "_missing", "_notable", "_overhead", "_parser", "_sink", "_target",
        "_trailers", "began", "length", "phase",
    )  # fmt: skip

    def __init__(self, sink: ParserSink, limit: int) -> None:
        self._sink = sink
        self._limit = limit
        self._parser: Any = _new(self)
        self.phase: int = HEAD
        """The expected part. A new connection must send a head; a later one may be idle."""
        self.began: int = 0
        """Requests that began in the last fed bytes."""
        self.length: int = 0
        """Bytes of the body of the last head, or `CHUNKED`."""
        self._target = b""
        self._headers: RawHeaders = []
        self._notable: RawHeaders = []
        self._chunk = 0
        """Bytes that are being fed."""
        self._fed = 0
        """Bytes of the head that were fed before."""
        self._is_unsure = False
        """The head began in the middle of the fed bytes, so `_fed` is too small."""
        self._overhead: int | None = None
        """The overhead of chunks and trailers so far, less the allowed overhead; None: the body is not in chunks."""
        self._missing = 0
        """Bytes that short chunks of the fed bytes have less than usual ones."""
        self._trailers = 0

    @property
    def is_fresh(self) -> bool:
        """True if the next byte is the first one of a request."""
        return self.phase == IDLE or (self.phase == HEAD and not (self._fed or self._is_unsure))

    @property
    def held(self) -> int:
        """The memory of the head that is being parsed, and of the headers before it that httptools has not reported."""
        if self.phase != HEAD:
            return 0
        return self._fed + self._head_size() + len(self._headers) * HEADER_BYTES

    def close(self) -> None:
        """Break the reference cycles with httptools and the connection. Feed nothing after this."""
        self._parser = None
        del self._sink

    def feed(self, data: bytes | memoryview) -> None:
        """Parse bytes, and report.

        Raises:
            Refused: a request is wrong or too large. Feed nothing more.
        """
        before, is_fresh = self.phase, self.is_fresh
        self._chunk, self.began, self._missing = len(data), 0, 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline(memoryview(data)[offer.args[0] :])
        except httptools.HttpParserError as error:
            raise _refusal(error) from None
        if self.phase == HEAD:
            if self.began == is_fresh:
                self._fed += len(data)
            else:
                self._fed, self._is_unsure = 0, True
            if self._fed > self._limit:
                raise self._too_large()
        elif self.phase == before == BODY and self._overhead is not None:
            self._overhead += len(data)
            if self._overhead > self._limit:
                raise RefusedRequest(400, _TOO_SMALL)

    def _decline(self, rest: memoryview) -> None:
        """Continue in HTTP/1.1 with a client that offers another protocol: this server has no other.

        httptools treats the bytes after such a head as the other protocol, even the request's own body. So the head
        is parsed again, without the offer.
        """
        while True:
            start = (self._parser.get_method(), self._target, self._parser.get_http_version().encode())
            head = b"%b %b HTTP/%b\r\n" % start + lines(
                header for header in self._headers if header[0] != b"upgrade"
            )
            self._parser = _new(self)
            try:
                self._parser.feed_data(head + b"\r\n")
                self._parser.feed_data(rest)
            except httptools.HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]
                continue
            except httptools.HttpParserError as error:
                raise _refusal(error) from None
            return

    # Called by httptools

    def on_message_begin(self) -> None:
        """Begin a request."""
        self.began += 1
        if self.phase == IDLE:
            self.phase = HEAD
            self._fed, self._is_unsure = 0, False
            self._sink.head_began()
        self._target = b""
        self._headers = []
        self._notable = []

    def on_url(self, target: bytes) -> None:
        """Take a part of the target."""
        self._target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or drop a trailer: as a header it would reach the application without a check by any proxy."""
        if self.phase == BODY:
            self._trailers += len(name) + len(value) + _PER_HEADER
            if self._trailers > self._limit:
                raise self._too_large()
            return
        name = name.lower()
        self._headers.append((name, value))
        # Here, and not at the end of the head: a client that never ends it would make us keep all of them.
        if len(self._headers) * _PER_LINE > self._limit:
            raise self._too_large()
        if name in NOTABLE:
            self._notable.append((name, value))

    def on_headers_complete(self) -> None:
        """Check the head and report it."""
        parser = self._parser
        # Count exactly only if the received bytes could exceed the limit.
        if (self._is_unsure or self._fed + self._chunk > self._limit) and self._head_size() > self._limit:
            raise self._too_large()
        method, version = parser.get_method(), parser.get_http_version()
        check_start(method, self._target, version)
        if parser.should_upgrade():
            return
        check_host(self._notable, version)
        length = self.length = length_of(self._notable, version)
        self.phase = BODY
        self._trailers, self._overhead = 0, 0 if length == CHUNKED else None
        expects = any(name == EXPECT and value.lower() == b"100-continue" for name, value in self._notable)
        request = RawRequest.of(
            method.decode("ascii"), split(self._target)[0], self._headers, self._sink.client
        )
        is_last = version == "1.0" or not parser.should_keep_alive()
        is_bodiless = method == b"HEAD"
        parsed = Parsed(self._target, version, is_last, is_bodiless)
        self._sink.request_came(request, parsed, expects=expects and version != "1.0")

    def on_body(self, part: bytes) -> None:
        """Take a part of the body."""
        if self._overhead is not None:
            size = len(part)
            self._overhead -= (_PER_BYTE + 1) * size
            if size < _USUAL_CHUNK:
                self._missing += _USUAL_CHUNK - size
                if self._missing > self._limit * _SHORT:
                    raise RefusedRequest(400, _TOO_SMALL)
        self._sink.part_came(part)

    def on_message_complete(self) -> None:
        """End a request."""
        if self.phase == BODY:
            self.phase = IDLE
            self._sink.request_ended()

    def _head_size(self) -> int:
        return len(self._target) + sum(len(name) + len(value) + _PER_HEADER for name, value in self._headers)

    def _too_large(self) -> RefusedRequest:
        limit = f"at most {self._limit} bytes and {self._limit // _PER_LINE} headers"
        return RefusedRequest(431, f"Request header fields too large: {limit}")


def _new(calls: RequestParser) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(calls)
    # Bytes behind a request that closes the connection are dropped; they are no error of that request.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _refusal(error: httptools.HttpParserError) -> RefusedRequest:
    """Return the exception that one of our checks has raised inside httptools, or 400."""
    reason = error.__context__
    return reason if isinstance(reason, RefusedRequest) else RefusedRequest(400, _INVALID)
