"""Heads that a connection has sent before: they are not parsed again.

A client sends the same head again and again; only the number in `Content-Length` changes. A proxy that keeps its
connections sends the requests of many clients on each: then the session, the token or the name of the tool changes too.
So a connection remembers its last heads. A read is served without the parser if:

- its head has the lines of a remembered head, in the same order;
- only the values of headers in `_VARYING` differ. No rule of the server reads them before the front has the request,
  and the parser gives them no meaning. If the front has read one of them to accept the first request, it checks the
  other request again (`RawRequest.changed`);
- such a value consists of printable ASCII characters and neither begins nor ends with a space. The parser would
  return it unchanged;
- the head is not longer than the limit;
- exactly as many bytes follow as its length says: a complete request, and nothing behind it.

Everything else goes to the parser. So this module never refuses, and never accepts a request that the parser would
refuse. The memory belongs to the connection, since a head may have a token.
"""

from itertools import compress
from operator import ne
from typing import Final, NamedTuple

from limpet.fronts.http.http1.framing import CHUNKED, LENGTH, Parsed
from limpet.fronts.http.read.request import RawRequest

SHAPES: Final = 4
"""Heads that a connection remembers. Clients of different programs behind one proxy send different lines."""
_LONGEST: Final = 4_096
"""Bytes of the longest head that is remembered."""
_MOST_LINES: Final = 64
"""Lines of such a head."""
_LINE_BYTES: Final = 1_024
"""The memory of a line of a remembered head besides its bytes: in the lines, in their names, and in the headers of
its request."""
_DIGITS: Final = 8
"""Digits of the longest number."""
_VARYING: Final = frozenset({
    LENGTH, b"authorization", b"baggage", b"forwarded", b"last-event-id", b"mcp-method", b"mcp-name", b"mcp-protocol-version",
    b"mcp-session-id", b"traceparent", b"tracestate", b"user-agent", b"x-forwarded-for", b"x-real-ip", b"x-request-id",
})  # fmt: skip
_COPIES: Final = 4
"""How often the bytes of a remembered head are in memory."""
_PRINTABLE: Final = bytes(range(0x20, 0x7F))
_END: Final = b"\r\n\r\n"


class _Line(NamedTuple):
    """A line of a head."""

    at: int
    name: bytes
    """The name of the header, if its value may differ; else empty."""
    before: bytes
    """The bytes before the value."""


class _Cut(NamedTuple):
    """A header whose value has differed: the bytes of the head before its value, from the value before it on."""

    name: bytes
    before: bytes
    size: int


class KnownHead:
    """One of the last heads of a connection, and its request.

    The first time that a header differs, the heads are compared line by line. From then on the head is cut at its
    value: the bytes between two such values are compared at once, and no other line is looked at. Instructions of a
    call (callgrind) with 64 sessions on 32
    connections: 214,000 by lines each time, 182,000 by cuts.
    """

    __slots__ = (
        "_cuts",
        "_head",
        "_length",
        "_lines",
        "_longest",
        "_rest",
        "_size",
        "_values",
        "cost",
        "parsed",
        "request",
    )

    def __init__(self, head: bytes, length: int, request: RawRequest, parsed: Parsed, longest: int) -> None:
        self._head = head
        self._length = length
        self._size = len(head) + length
        """Bytes of the whole request."""
        self._longest = longest
        self._lines: list[_Line] = []
        """Empty until another head is compared: most connections of a single client never need them."""
        self._cuts: list[_Cut] = []
        self._rest = head
        """The bytes behind the last cut."""
        self._values: dict[bytes, bytes] = {}
        """The last value of each cut, by its name."""
        self.request: RawRequest = request
        """The request that was matched last."""
        self.parsed: Parsed = parsed
        self.cost: int = _COPIES * len(head) + _LINE_BYTES * head.count(b"\n")
        """The memory that it takes."""

    def match(self, data: bytes) -> int:
        """Return where the body begins, if a read is this head and a whole body; 0: the parser must read it."""
        if len(data) == self._size and data.startswith(self._head):
            return len(self._head)
        at, known = 0, self._values
        changed: dict[bytes, bytes] = {}
        for name, before, size in self._cuts:
            if not data.startswith(before, at):
                return self._compare(data)
            at += size
            end = data.find(b"\r", at, self._longest)
            if end < 0:
                return 0
            value = data[at:end]
            if value != known[name]:
                if not (value.isalnum() or _is_plain(value)):
                    return 0
                changed[name] = value
            at = end
        if not data.startswith(self._rest, at):
            return self._compare(data)
        return self._take(data, at + len(self._rest), changed)

    def _take(self, data: bytes, start: int, changed: dict[bytes, bytes]) -> int:
        """Take a head with other values, if exactly its body follows at `start`; return `start`, or 0."""
        length = self._length
        if LENGTH in changed:
            digits = changed[LENGTH]
            if not digits.isdigit() or len(digits) > _DIGITS:
                return 0
            length = int(digits)
        size = len(data)
        if size - start != length or start > self._longest:
            return 0
        self._head, self._length, self._size = data[:start], length, size
        self._values |= changed
        self.request = self.request.changed(changed)
        return start

    def _compare(self, data: bytes) -> int:
        """Match line by line, and cut the head at the values that differ."""
        end = data.find(_END, 0, self._longest)
        if end < 0:
            return 0
        known = self._head[: -len(_END)].split(b"\r\n")
        if not self._lines:
            self._lines = _lines(known, self.request)
        text = data[:end].split(b"\r\n")
        if len(text) != len(self._lines):
            return 0
        changed: dict[bytes, bytes] = {}
        for at, name, before in compress(self._lines, map(ne, text, known)):
            line = text[at]
            value = line[len(before) :]
            if not name or not line.startswith(before) or not _is_plain(value):
                return 0
            changed[name] = value
        start = self._take(data, end + len(_END), changed)
        if start:
            self._cut(text)
        return start

    def _cut(self, text: list[bytes]) -> None:
        """Cut the head at the values that have differed so far."""
        self._cuts, fixed = [], b""
        for line, (at, name, before) in zip(text, self._lines, strict=True):
            start = fixed + b"\r\n" if at else b""
            if name in self._values:
                self._values[name] = line[len(before) :]
                self._cuts.append(_Cut(name, start + before, len(start) + len(before)))
                fixed = b""
            else:
                fixed = start + line
        self._rest = fixed + _END


def known_head(data: bytes, length: int, request: RawRequest, parsed: Parsed, limit: int) -> KnownHead | None:
    """Return the head of a request that was exactly one read; None if it is not remembered."""
    if parsed.is_last or length == CHUNKED:
        return None
    head = data[: len(data) - length]
    # The parser drops empty lines before and behind a request: then these bytes are not exactly its head.
    if head.find(_END) + len(_END) != len(head) or len(head) > _LONGEST or head.count(b"\n") > _MOST_LINES:
        return None
    return KnownHead(head, length, request, parsed, min(limit, _LONGEST))


def _lines(text: list[bytes], request: RawRequest) -> list[_Line]:
    """Return the lines of a head. A header that was sent twice does not vary: its values are joined."""
    names = [name for name, _ in request.head.lines]
    found = [_Line(0, b"", b"")]
    for at, line in enumerate(text[1:], 1):
        name = line.partition(b":")[0]
        before = name + b": "
        varies = names.count(name.lower()) == 1 and name.lower() in _VARYING and line.startswith(before)
        found.append(_Line(at, name.lower() if varies else b"", before))
    return found


def _is_plain(value: bytes) -> bool:
    return bool(value) and value.strip(b" ") == value and not value.translate(None, _PRINTABLE)
