"""Cut a stream of bytes into lines, with a limit for the length of a line."""

from holdfast.errors import INVALID_REQUEST, WireError


class LineBuffer:
    """Cuts chunks into lines. A line over the limit is skipped and reported once."""

    __slots__ = ("_limit", "_partial", "_skipping")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._partial = bytearray()
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes | WireError]:
        """Add a chunk and return the lines that it completes, without empty ones."""
        lines: list[bytes | WireError] = []
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._take(chunk[start:end], lines)
            if not self._skipping and self._partial.strip():
                lines.append(bytes(self._partial))
            self._partial.clear()
            self._skipping = False
            start = end + 1
        self._take(chunk[start:], lines)
        return lines

    def _take(self, part: bytes, lines: list[bytes | WireError]) -> None:
        if self._skipping:
            return
        if len(self._partial) + len(part) > self._limit:
            lines.append(
                WireError(INVALID_REQUEST, f"Invalid request: a message is at most {self._limit} bytes")
            )
            self._partial.clear()
            self._skipping = True
            return
        self._partial += part
