"""The heads of answers, as bytes; and the answers of a connection itself, without the front."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from limpet.engine.audit import Reason
from limpet.fronts.http.http1.framing import RefusedRequest
from limpet.fronts.http.read.head import RawHeaders

STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus
}
JSON_LINES: Final = STATUS_LINES[200] + b"content-type: application/json\r\ncontent-length: %d\r\n"
EVENT_LINES: Final = STATUS_LINES[200] + b"content-type: text/event-stream\r\ncontent-length: %d\r\n"
CLOSE: Final = b"connection: close\r\n\r\n"
_REMEMBERED: Final = 4_096
"""Heads are remembered for bodies that are shorter than this."""


def lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return headers as bytes."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


class Heads(dict[int, bytes]):
    """Whole heads of answers that differ only in their length, by the length.

    They are replaced when the date changes.
    """

    def __init__(self, first: bytes, common: bytes) -> None:
        """Take the lines with the status and the length, and the lines of every answer."""
        super().__init__()
        self._first = first
        self._rest = common + b"\r\n"

    def __missing__(self, length: int) -> bytes:
        head = self._first % length + self._rest
        if length < _REMEMBERED:
            self[length] = head
        return head


# To requests that the connection refuses, and to one that failed

_TEXT: Final = b"Internal Server Error"
FAILED: Final[tuple[int, RawHeaders, bytes]] = (
    500,
    [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(_TEXT))],
    _TEXT,
)
_LINES: Final = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
NO_MEMORY: Final = RefusedRequest(503, "Service unavailable: too much memory is in use; try again later")
FULL: Final = RefusedRequest(503, "Service unavailable: too many connections")
AUDITED: Final[dict[int, Reason]] = {503: "connections", 408: "slow", 431: "too_large"}
"""The reason of a refusal, by its status; of all others: malformed."""


def refusal_bytes(refusal: RefusedRequest, common: bytes) -> bytes:
    """Return the bytes of a refusal, after which the connection ends; `common` are the header lines of every answer."""
    reason = refusal.reason.encode()
    return STATUS_LINES[refusal.status] + _LINES % len(reason) + common + CLOSE + reason
