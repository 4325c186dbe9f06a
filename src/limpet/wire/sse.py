"""Server-sent events: the bytes of an event, a comment and a retry hint; and a parser for received streams.

Our payloads are JSON on one line, so an event that we send has exactly one `data` line. A received stream may be cut
into chunks at any byte. A line or an event over its limit ends the stream.
"""

from typing import Final, NamedTuple

from limpet.errors import INVALID_REQUEST, WireError

KEEP_ALIVE: Final = b": keep-alive\n\n"


def event(data: bytes, event_id: str = "") -> bytes:
    """Return one message event; with an id, a client can resume after it."""
    if event_id:
        return b"event: message\nid: %b\ndata: %b\n\n" % (event_id.encode(), data)
    return b"event: message\ndata: %b\n\n" % data


def priming(event_id: str, retry_ms: int, data: bytes = b"") -> bytes:
    """Return the first event, which gives a client a position to resume from. `data` is for clients that need some."""
    kind = b"event: message\n" if data else b""
    return b"%bid: %b\nretry: %d\ndata: %b\n\n" % (kind, event_id.encode(), retry_ms, data)


def retry(milliseconds: int) -> bytes:
    """Return the reconnection delay for a client."""
    return b"retry: %d\n\n" % milliseconds


def comment(text: str) -> bytes:
    """Return a comment line: clients ignore it, people can read it."""
    return b": %b\n\n" % text.encode()


class ReceivedEvent(NamedTuple):
    """One received event. `id` and `retry` are None if it has none."""

    data: bytes
    id: str | None
    retry: int | None
    """Milliseconds."""
    kind: str = ""
    """The name of the event; empty for a message."""


_BOM: Final = b"\xef\xbb\xbf"
# CPython finds a number in bytes five times as fast as bytes in bytes.
_CR: Final = ord("\r")
_NUL: Final = 0


class EventParser:
    """Parses chunks of bytes into events. Lines end with CR, LF or both, as the standard says."""

    __slots__ = (
        "_data",
        "_event_limit",
        "_id",
        "_kind",
        "_limit",
        "_line",
        "_retry",
        "_size",
        "_started",
        "_was_cr",
    )

    def __init__(self, limit: int, event_limit: int | None = None) -> None:
        self._limit = limit
        self._event_limit = limit if event_limit is None else event_limit
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._id: str | None = None
        self._retry: int | None = None
        self._kind = ""
        self._was_cr = False
        self._started = False

    @property
    def kept(self) -> int:
        """The bytes of the event that is not complete."""
        return self._size + len(self._line)

    def feed(self, chunk: bytes) -> list[ReceivedEvent]:
        """Add a chunk and return the events that it completes, also those with only an id or a delay.

        Raises:
            WireError: a line or an event is over its limit; the stream cannot be read further.
        """
        events: list[ReceivedEvent] = []
        # The LF of a CR LF that was cut into two chunks.
        if self._was_cr and chunk:
            self._was_cr = False
            chunk = chunk.removeprefix(b"\n")
        if _CR in chunk:
            self._was_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._grow(chunk[start:end])
            line = bytes(self._line)
            self._line.clear()
            self._take(line, events)
            start = end + 1
        self._grow(chunk[start:])
        return events

    def _grow(self, part: bytes) -> None:
        if len(self._line) + len(part) > self._limit:
            raise WireError(INVALID_REQUEST, f"a line of the event stream is over {self._limit} bytes")
        self._line += part

    def _take(self, line: bytes, events: list[ReceivedEvent]) -> None:
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._size += len(value) + 1
            if self._size > self._event_limit:
                raise WireError(INVALID_REQUEST, f"an event of the stream is over {self._event_limit} bytes")
            self._data.append(value)
        elif name == b"id" and _NUL not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"event":
            self._kind = "" if value == b"message" else value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self._retry = int(value[:9])

    def _dispatch(self, events: list[ReceivedEvent]) -> None:
        if self._data or self._id is not None or self._retry is not None:
            events.append(ReceivedEvent(b"\n".join(self._data), self._id, self._retry, self._kind))
        self._data.clear()
        self._size = 0
        self._id = self._retry = None
        self._kind = ""
