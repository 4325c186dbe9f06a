"""A head that a connection has sent before: it is not parsed again.

Clients of a session send the same head again and again; only the number in `Content-Length` changes. Equal bytes mean the same.
So a read that is this head, with any number, and exactly as many bytes behind it, is a complete request, and nothing follows
it. Everything else goes to the parser. The memory belongs to the connection, since a head may have a token.
"""

import re
from typing import Final

from holdfast.fronts.http.listener.framing import CHUNKED, LENGTH, Parsed
from holdfast.fronts.http.request import RawRequest

_LONGEST: Final = 4_096
"""Bytes of the longest head that is remembered."""
_DIGITS: Final = 8
"""Digits of the longest number."""
_LENGTH_LINE: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)(?=\r\n)", re.IGNORECASE)


class KnownHead:
    """The last head of a connection, and the request that it means."""

    __slots__ = ("_after", "_before", "_digits", "_head", "_size", "parsed")

    def __init__(self, head: bytes, parsed: Parsed) -> None:
        found = _LENGTH_LINE.search(head)
        at, end = found.span(1) if found is not None else (len(head), len(head))
        self._before = head[:at]
        self._digits = head[at:end]
        """The number of the request; empty: its head has no length, and it has no body."""
        self._after = head[end:]
        self._head = head
        self._size = len(head) + parsed.length
        """Bytes of the whole request."""
        self.parsed: Parsed = parsed
        """The request that was matched last."""

    def match(self, data: bytes) -> int:
        """Return where the body begins, if a read is this head and a whole body; 0: the parser must look at it."""
        if len(data) == self._size and data.startswith(self._head):
            return len(self._head)
        if not self._digits or not data.startswith(self._before):
            return 0
        at = len(self._before)
        end = data.find(b"\r", at, at + _DIGITS + 1)
        digits = data[at:end]
        start = end + len(self._after)
        if (
            end < 0
            or not digits.isdigit()
            or len(data) - start != int(digits)
            or not data.startswith(self._after, end)
        ):
            return 0
        self._digits, self._head, self._size = digits, data[:start], len(data)
        self.parsed = _with_length(self.parsed, digits)
        return start


def known_head(data: bytes, parsed: Parsed) -> KnownHead | None:
    """Return the head of a request that was exactly one read; None if it is not remembered."""
    if parsed.is_last or parsed.length == CHUNKED:
        return None
    head = data[: len(data) - parsed.length]
    return KnownHead(head, parsed) if len(head) <= _LONGEST else None


def _with_length(parsed: Parsed, digits: bytes) -> Parsed:
    headers = [(name, digits if name == LENGTH else value) for name, value in parsed.headers]
    before = parsed.request
    request = RawRequest(before.method, before.path, headers, before.client)
    # No rule of a front reads the length.
    request.passed = before.passed
    return parsed._replace(request=request, headers=headers, length=int(digits))
