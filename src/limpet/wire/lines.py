"""Cut a stream of bytes into lines, with a limit for the length of a line."""

from collections.abc import Callable
from typing import Final

from limpet.errors import LineTooLong
from limpet.wire.unreadable import EDGE

FREE: Final = 16 * 1024
"""Shorter parts of a line need no room."""
Reserve = Callable[[int], bool]
"""Called with the bytes of a long line that is not complete; with 0 when it has ended. False: there is no memory."""


class LineBuffer:
    """Cuts chunks into lines. A line over the limit is skipped and reported once.

    It is reported at once; with `keeps_edges` when it has ended, with the bytes at its beginning and its end. A line
    for which `reserve` has no memory is skipped too.
    """

    __slots__ = (
        "_fits",
        "_head",
        "_keeps_edges",
        "_limit",
        "_partial",
        "_reserve",
        "_short",
        "_skipping",
        "_tail",
    )

    def __init__(self, limit: int, *, keeps_edges: bool = False, reserve: Reserve | None = None) -> None:
        self._reserve = reserve
        self._fits = True
        """False: there is no memory for the line that is being skipped."""
        self._limit = limit
        self._short = min(limit, FREE)
        self._keeps_edges = keeps_edges
        self._partial = bytearray()
        self._skipping = False
        self._head = self._tail = b""

    def feed(self, chunk: bytes) -> list[bytes | LineTooLong]:
        """Add a chunk and return the lines that it completes, without empty ones."""
        lines: list[bytes | LineTooLong] = []
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            if not (self._partial or self._skipping) and end - start <= self._short:
                # The usual case: a short line that has arrived as a whole.
                line = chunk[start:end]
                if line.strip():
                    lines.append(line)
                start = end + 1
                continue
            self._take(chunk[start:end], lines)
            if self._skipping and self._keeps_edges:
                lines.append(LineTooLong(self._limit, self._head, self._tail, has_room=self._fits))
            elif not self._skipping and self._partial.strip():
                lines.append(bytes(self._partial))
            self._clear()
            self._skipping = False
            start = end + 1
        self._take(chunk[start:], lines)
        return lines

    def _take(self, part: bytes, lines: list[bytes | LineTooLong]) -> None:
        if self._skipping:
            self._tail = (self._tail + part[-EDGE:])[-EDGE:]
            return
        size = len(self._partial) + len(part)
        is_over = size > self._limit
        self._fits = is_over or size <= FREE or self._reserve is None or self._reserve(size)
        if is_over or not self._fits:
            self._head = bytes(self._partial[:EDGE]) + part[: max(0, EDGE - len(self._partial))]
            self._tail = (bytes(self._partial[-EDGE:]) + part[-EDGE:])[-EDGE:]
            if not self._keeps_edges:
                lines.append(LineTooLong(self._limit, has_room=self._fits))
            self._clear()
            self._skipping = True
            return
        self._partial += part

    def _clear(self) -> None:
        if len(self._partial) > FREE and self._reserve is not None:
            self._reserve(0)
        self._partial.clear()
