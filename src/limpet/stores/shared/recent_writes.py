"""The last events that this process wrote to each stream of an exchange that runs here.

It can restore them after a failover that lost them. If they begin after the last event in the store, there is a gap,
and readers receive it. Readers of this process receive them from here: nearly every read is for the events that were
just written. Only the owner of an exchange writes its stream, so what it has written is all there is, unless another
replica has declared it dead (`CommandRounds.woken`).

They are bounded in bytes.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from limpet.core.rules.restore import Writes
from limpet.core.stream import Event, Position

STREAM_BYTES: Final = 256 * 1024
"""Of one stream. The events of its newest append are always remembered."""
ALL_BYTES: Final = 32 * 1024 * 1024
"""Of all streams. Beyond it, those that were not written for the longest time are forgotten, and could not be
restored."""


class _Recent:
    """The newest events of a stream, and the position before them."""

    __slots__ = ("before", "bytes", "events")

    def __init__(self, before: Position) -> None:
        self.before = before
        self.events: list[Event] = []
        self.bytes: int = 0

    @property
    def end(self) -> Position:
        """The position after the newest one."""
        return self.events[-1].position if self.events else self.before

    def cut(self, newest: int) -> int:
        """Forget the oldest events while there are too many bytes, but none of so many newest ones.

        Return the freed bytes.
        """
        freed = count = 0
        while self.bytes - freed > STREAM_BYTES and len(self.events) - count > newest:
            freed += len(self.events[count].data)
            count += 1
        if count:
            self.before = self.events[count - 1].position
            self.bytes -= freed
            del self.events[:count]
        return freed


class RecentWrites:
    """The recent writes of the streams that are written here, by session and stream."""

    def __init__(self) -> None:
        self._recent: OrderedDict[tuple[str, str], _Recent] = OrderedDict()
        self.bytes: int = 0
        """Of all remembered events."""

    def __len__(self) -> int:
        return len(self._recent)

    def push(self, key: str, stream: str, before: Position, events: Sequence[Event]) -> None:
        """Add the events of one append to a stream, which begin after this position.

        Forget others if there are too many.
        """
        recent = self._recent.get((key, stream))
        if recent is None or recent.end != before:
            self.forget(key, stream)
            recent = self._recent[key, stream] = _Recent(before)
        recent.events += events
        size = sum([len(event.data) for event in events])
        recent.bytes += size
        self.bytes += size
        self._recent.move_to_end((key, stream))
        if recent.bytes > STREAM_BYTES:
            self.bytes -= recent.cut(len(events))
        while self.bytes > ALL_BYTES and len(self._recent) > 1:
            _, oldest = self._recent.popitem(last=False)
            self.bytes -= oldest.bytes

    def get(self, key: str, stream: str) -> Writes | None:
        """Return the remembered events of a stream."""
        recent = self._recent.get((key, stream))
        return None if recent is None else Writes(recent.before, recent.events[:])

    def after(
        self, key: str, stream: str, seq: int, top: Position, max_events: int, max_bytes: int
    ) -> tuple[int, list[Event]] | None:
        """Return the tag of the event with this number, and the events after it: at least one, within the limits.

        None if not all of them up to the position `top` are remembered.
        """
        recent = self._recent.get((key, stream))
        if (
            recent is None
            or recent.end != top
            or not 0 <= (skipped := seq - recent.before.seq) <= len(recent.events)
        ):
            return None
        tag = recent.events[skipped - 1].position.tag if skipped else recent.before.tag
        found = recent.events[skipped : skipped + max_events]
        if recent.bytes > max_bytes:
            sizes = accumulate(len(event.data) for event in found)
            del found[max(1, sum(size <= max_bytes for size in sizes)) :]
        return tag, found

    def forget(self, key: str, stream: str) -> None:
        """Forget a stream that has ended."""
        recent = self._recent.pop((key, stream), None)
        if recent is not None:
            self.bytes -= recent.bytes
