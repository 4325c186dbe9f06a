"""What this process has written lately, kept so that a failover that lost it can be mended.

Bounded: a tail that is too short to join what the store still has leaves a gap, and a reader is told so.
"""

from collections import OrderedDict, deque
from typing import Final

from holdfast.core.stream import Data, Event, Position

TAIL_BYTES: Final = 256 * 1024
"""Of one stream."""
ALL_BYTES: Final = 32 * 1024 * 1024
"""Of all; beyond, the streams that were not written for longest go without."""


class Tail:
    """The newest events of a stream, and the position before them."""

    __slots__ = ("bytes", "events", "start", "top")

    def __init__(self, start: Position) -> None:
        self.start: Position = start
        self.top: Position = start
        self.events: deque[Event] = deque()
        self.bytes: int = 0

    @property
    def before(self) -> Position:
        """The position that the newest event follows."""
        return self.events[-2].position if len(self.events) > 1 else self.start

    def push(self, tag: int, data: Data) -> Position:
        """Add an event; return its position."""
        self.top = Position(self.top.seq + 1, tag)
        self.events.append(Event(self.top, data))
        self.bytes += len(data)
        while self.bytes > TAIL_BYTES and len(self.events) > 1:
            oldest = self.events.popleft()
            self.start = oldest.position
            self.bytes -= len(oldest.data)
        return self.top


class Tails:
    """The tails of the streams that are written here."""

    def __init__(self) -> None:
        self._tails: OrderedDict[tuple[str, str], Tail] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._tails)

    def begin(self, key: str, stream: str, start: Position) -> None:
        """Remember a stream from its beginning."""
        self._tails.setdefault((key, stream), Tail(start))

    def get(self, key: str, stream: str) -> Tail | None:
        """Return what is remembered of a stream."""
        return self._tails.get((key, stream))

    def push(self, key: str, stream: str, tail: Tail, tag: int, data: bytes) -> Position:
        """Add an event to a stream; forget others where it is too much."""
        before = tail.bytes
        position = tail.push(tag, data)
        self._bytes += tail.bytes - before
        self._tails.move_to_end((key, stream))
        while self._bytes > ALL_BYTES and len(self._tails) > 1:
            _, oldest = self._tails.popitem(last=False)
            self._bytes -= oldest.bytes
        return position

    def forget(self, key: str, stream: str) -> None:
        """Forget a stream that has ended."""
        tail = self._tails.pop((key, stream), None)
        if tail is not None:
            self._bytes -= tail.bytes
