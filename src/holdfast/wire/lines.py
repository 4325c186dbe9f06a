"""Cut a stream of bytes into lines, with a limit for the length of a line."""

from holdfast.errors import LineTooLong
from holdfast.wire.unreadable import EDGE


class LineBuffer:
    """Cuts chunks into lines. A line over the limit is skipped and reported once.

    It is reported at once; with `keeps_edges` when it has ended, with the bytes at its beginning and its end.
    """

    __slots__ = ("_head", "_keeps_edges", "_limit", "_partial", "_skipping", "_tail")

    def __init__(self, limit: int, *, keeps_edges: bool = False) -> None:
        self._limit = limit
        self._keeps_edges = keeps_edges
        self._partial = bytearray()
        self._skipping = False
        self._head = self._tail = b""

    def feed(self, chunk: bytes) -> list[bytes | LineTooLong]:
        """Add a chunk and return the lines that it completes, without empty ones."""
        lines: list[bytes | LineTooLong] = []
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._take(chunk[start:end], lines)
            if self._skipping and self._keeps_edges:
                lines.append(LineTooLong(self._limit, self._head, self._tail))
            elif not self._skipping and self._partial.strip():
                lines.append(bytes(self._partial))
            self._partial.clear()
            self._skipping = False
            start = end + 1
        self._take(chunk[start:], lines)
        return lines

    def _take(self, part: bytes, lines: list[bytes | LineTooLong]) -> None:
        if self._skipping:
            self._tail = (self._tail + part[-EDGE:])[-EDGE:]
            return
        if len(self._partial) + len(part) > self._limit:
            self._head = bytes(self._partial[:EDGE]) + part[: max(0, EDGE - len(self._partial))]
            self._tail = (bytes(self._partial[-EDGE:]) + part[-EDGE:])[-EDGE:]
            if not self._keeps_edges:
                lines.append(LineTooLong(self._limit))
            self._partial.clear()
            self._skipping = True
            return
        self._partial += part
