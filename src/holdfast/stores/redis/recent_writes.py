"""The last events that this process wrote to each stream, so that it can restore them after a failover that lost them.

They are bounded in bytes. If they begin after the last event in the store, there is a gap, and readers receive it.
"""

from collections import OrderedDict, deque
from typing import Final

from holdfast.core.stream import Event, NewEvents, Position

STREAM_BYTES: Final = 256 * 1024
"""Of one stream. The events of its newest append are always remembered."""
ALL_BYTES: Final = 32 * 1024 * 1024
"""Of all streams. Beyond it, those that were not written for the longest time are forgotten, and could not be restored."""


class StreamWrites:
    """The newest events of a stream, and the position before them."""

    __slots__ = ("before", "bytes", "events", "start", "stored", "top")

    def __init__(self, start: Position) -> None:
        self.start: Position = start
        self.before: Position = start
        """The position that the newest append follows."""
        self.top: Position = start
        self.stored: int = start.seq
        """The number of the last event that the store has acknowledged."""
        self.events: deque[Event] = deque()
        self.bytes: int = 0

    def push(self, events: NewEvents) -> None:
        """Add the events of one append."""
        self.before = self.top
        for tag, data in events:
            self.top = Position(self.top.seq + 1, tag)
            self.events.append(Event(self.top, data))
            self.bytes += len(data)
        while self.bytes > STREAM_BYTES and self.start.seq < self.before.seq:
            oldest = self.events.popleft()
            self.start = oldest.position
            self.bytes -= len(oldest.data)


class RecentWrites:
    """The recent writes of the streams that are written here."""

    def __init__(self) -> None:
        self._recent: OrderedDict[tuple[str, str], StreamWrites] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._recent)

    def begin(self, key: str, stream: str, start: Position) -> None:
        """Remember a stream from its beginning."""
        self._recent.setdefault((key, stream), StreamWrites(start))

    def get(self, key: str, stream: str) -> StreamWrites | None:
        """Return the remembered events of a stream."""
        return self._recent.get((key, stream))

    def push(self, key: str, stream: str, recent: StreamWrites, events: NewEvents) -> None:
        """Add the events of one append to a stream; forget others if there are too many."""
        before = recent.bytes
        recent.push(events)
        self._bytes += recent.bytes - before
        self._recent.move_to_end((key, stream))
        while self._bytes > ALL_BYTES and len(self._recent) > 1:
            _, oldest = self._recent.popitem(last=False)
            self._bytes -= oldest.bytes

    def forget(self, key: str, stream: str) -> None:
        """Forget a stream that has ended."""
        recent = self._recent.pop((key, stream), None)
        if recent is not None:
            self._bytes -= recent.bytes
