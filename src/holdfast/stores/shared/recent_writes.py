"""The last events that this process wrote to each stream, so that it can restore them after a failover that lost them.

They are bounded in bytes. If they begin after the last event in the store, there is a gap, and readers receive it.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final

from holdfast.core.rules.restore import Writes
from holdfast.core.stream import Position

STREAM_BYTES: Final = 256 * 1024
"""Of one stream. The events of its newest append are always remembered."""
ALL_BYTES: Final = 32 * 1024 * 1024
"""Of all streams. Beyond it, those that were not written for the longest time are forgotten, and could not be restored."""


class _Recent:
    """The newest events of a stream, and the position before them."""

    __slots__ = ("before", "bytes", "events")

    def __init__(self, before: Position) -> None:
        self.before = before
        self.events: deque[tuple[int, int, bytes]] = deque()
        self.bytes = 0


class RecentWrites:
    """The recent writes of the streams that are written here, by session and stream."""

    def __init__(self) -> None:
        self._recent: OrderedDict[tuple[str, str], _Recent] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._recent)

    def begin(self, key: str, stream: str, before: Position) -> None:
        """Remember a stream, from this position on."""
        self._recent.setdefault((key, stream), _Recent(before))

    def push(self, key: str, stream: str, events: Sequence[tuple[int, int, bytes]]) -> None:
        """Add the events of one append to a stream; forget others if there are too many."""
        recent = self._recent.get((key, stream))
        if recent is None:
            return
        recent.events += events
        size = sum(len(data) for _, _, data in events)
        recent.bytes += size
        self._bytes += size
        self._recent.move_to_end((key, stream))
        while recent.bytes > STREAM_BYTES and len(recent.events) > len(events):
            seq, tag, data = recent.events.popleft()
            recent.before = Position(seq, tag)
            recent.bytes -= len(data)
            self._bytes -= len(data)
        while self._bytes > ALL_BYTES and len(self._recent) > 1:
            _, oldest = self._recent.popitem(last=False)
            self._bytes -= oldest.bytes

    def get(self, key: str, stream: str) -> Writes | None:
        """Return the remembered events of a stream."""
        recent = self._recent.get((key, stream))
        return None if recent is None else Writes(recent.before, list(recent.events))

    def forget(self, key: str, stream: str) -> None:
        """Forget a stream that has ended."""
        recent = self._recent.pop((key, stream), None)
        if recent is not None:
            self._bytes -= recent.bytes
