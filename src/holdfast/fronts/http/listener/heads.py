"""The heads of responses, as bytes."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus
}
JSON_LINES: Final = STATUS_LINES[200] + b"content-type: application/json\r\ncontent-length: %d\r\n"
EVENT_LINES: Final = STATUS_LINES[200] + b"content-type: text/event-stream\r\ncontent-length: %d\r\n"
_REMEMBERED: Final = 4_096
"""Heads are remembered for bodies that are shorter than this."""


def lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return headers as bytes."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


class Heads(dict[int, bytes]):
    """Whole heads of answers that differ only in their length, by the length. They are replaced when the date changes."""

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
