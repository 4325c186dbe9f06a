"""One stream: an append-only log. Its oldest events may be trimmed, and its last event is the terminal message.

A stream outlives its connections. Replay and live delivery are the same read from a position, so no message can be
lost between them (law 5). A position is a sequence number with a random tag. The tag proves that the client read from
this log, and not from an earlier one that was lost.
"""

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from msgspec import Struct

Data = bytes
"""A message. Inside `Log` the word `bytes` is a count."""


NewEvents = Sequence[tuple[int, Data]]
"""Events that have no position yet: the tag and the data of each."""


class Position(NamedTuple):
    """The position after the event with the number `seq` and the tag `tag`."""

    seq: int
    tag: int


_TAG_BITS: Final = 2**64 - 1


def before_terminal(tag: int) -> Position:
    """Return the start position of a stream whose only event is its terminal message.

    The tag of the position differs from the tag of the message. It is the same if the command is sent again.
    """
    return Position(1, tag ^ _TAG_BITS)


def after_terminal(tag: int) -> Position:
    """Return the end of such a stream."""
    return Position(2, tag)


class Event(NamedTuple):
    """One message of a stream, and the position after it."""

    position: Position
    data: bytes


class Packed:
    """The events of a complete log, in one piece of bytes.

    A complete log is kept for a client that comes back, and few clients do. As objects, the position, the tag and the
    overhead of an event take more memory than its data.
    """

    __slots__ = ("_count", "_first", "_piece")

    _ENTRY: Final = struct.Struct("<QQ")
    """The tag of an event, and where its data ends."""

    def __init__(self, events: "deque[Event]") -> None:
        self._count = len(events)
        self._first = events[0].position.seq
        end = self._count * self._ENTRY.size
        entries, messages = [], []
        for position, data in events:
            end += len(data)
            entries.append(self._ENTRY.pack(position.tag, end))
            messages.append(data)
        self._piece: bytes = b"".join(entries + messages)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Event:
        size = self._ENTRY.size
        tag, end = self._ENTRY.unpack_from(self._piece, index * size)
        begin = self._ENTRY.unpack_from(self._piece, (index - 1) * size)[1] if index else self._count * size
        return Event(Position(self._first + index, tag), self._piece[begin:end])

    def __iter__(self) -> Iterator[Event]:
        return (self[index] for index in range(self._count))


_NO_EVENTS: Final[deque[Event]] = deque()
"""Of every log without an event: an empty deque has 760 bytes."""


class Continuity(Enum):
    """The relation of a reader's position to the log."""

    OK = "ok"
    GAP = "gap"
    FORK = "fork"


class StreamPage(Struct, frozen=True):
    """The result of a read: the events after the cursor."""

    continuity: Continuity
    events: list[Event]
    missed: tuple[int, int] | None
    """With GAP, the first and last sequence number that are gone."""
    finished: bool
    """The log is complete and this page ends with its last event."""


class Log:
    """The retained events of one stream, bounded by count and bytes (law 9).

    `low` is the position before the first retained event. It is kept so that a cursor at exactly this position can
    still be checked.
    """

    __slots__ = ("_first", "bytes", "closed", "delivered", "events", "low", "top")

    def __init__(self, start: Position) -> None:
        self._first = start.seq
        self.low: Position = start
        self.top: Position = start
        self.delivered: Position = start
        """The position that readers have reached. A reader without a cursor starts here."""
        self.events: deque[Event] | Packed = _NO_EVENTS
        self.bytes: int = 0
        self.closed: bool = False

    @property
    def start(self) -> Position:
        """The position before the first event that ever was. Its tag is checked only while that event is retained."""
        return Position(self._first, self.low.tag)

    def append(self, tag: int, data: Data, *, final: bool = False) -> Event:
        """Add an event at the end. A `final` event closes the log."""
        event = Event(Position(self.top.seq + 1, tag), data)
        events = self.events
        if events is _NO_EVENTS or isinstance(events, Packed):
            events = self.events = deque(events)
        events.append(event)
        self.top = event.position
        self.bytes += len(data)
        self.closed = final
        return event

    def extend(self, events: NewEvents, *, final: bool = False) -> None:
        """Add events at the end. If they are `final`, the last one closes the log."""
        for tag, data in events:
            self.append(tag, data, final=final)

    def skip_to(self, position: Position) -> None:
        """Continue after a position that this log has not reached. Readers receive a gap."""
        self.low = self.top = position
        self.events = _NO_EVENTS
        self.bytes = 0

    def pack(self) -> None:
        """Keep the events of a complete log in less memory. It is read as before."""
        if self.closed and self.events and not isinstance(self.events, Packed):
            self.events = Packed(self.events)

    def _loose(self) -> deque[Event]:
        """Return the events as objects."""
        if isinstance(self.events, Packed):
            self.events = deque(self.events)
        return self.events

    def trim(self, max_events: int, max_bytes: int) -> int:
        """Drop the oldest events until the limits hold. Return the number of bytes freed.

        The newest event is always kept, even if it alone is over the limit: otherwise a very large answer could never
        be delivered.
        """
        freed = 0
        while len(self.events) > 1 and (len(self.events) > max_events or self.bytes - freed > max_bytes):
            oldest = self._loose().popleft()
            self.low = oldest.position
            freed += len(oldest.data)
        self.bytes -= freed
        return freed

    def read(self, cursor: Position, max_events: int, max_bytes: int) -> StreamPage:
        """Return the events after `cursor`, up to the limits. If there are events, return at least one.

        If the events after the cursor were trimmed, return the retained events, with GAP. If the cursor is not a
        position of this log, return no events, with FORK.
        """
        if not self.proves(cursor):
            return StreamPage(Continuity.FORK, [], None, finished=False)
        continuity, missed, start = Continuity.OK, None, cursor.seq - self.low.seq
        if start < 0:
            continuity, missed, start = Continuity.GAP, (cursor.seq + 1, self.low.seq), 0
        events: list[Event] = []
        size = 0
        for index in range(start, min(len(self.events), start + max_events)):
            event = self.events[index]
            size += len(event.data)
            if events and size > max_bytes:
                break
            events.append(event)
        end = events[-1].position.seq if events else max(cursor.seq, self.low.seq)
        return StreamPage(continuity, events, missed, finished=self.closed and end == self.top.seq)

    def is_end(self, cursor: Position) -> bool:
        """Return True if the log is complete and this position is its end. The position must belong to this log."""
        return self.closed and cursor.seq == self.top.seq

    def proves(self, cursor: Position) -> bool:
        """Return True if the cursor can be a position of this log.

        Tags below `low` were dropped with their events. A cursor below `low` is accepted without a check of its tag,
        and a read from it returns GAP.
        """
        if cursor.seq == self.low.seq:
            return cursor.tag == self.low.tag
        if cursor.seq < self.low.seq:
            return cursor.seq >= self._first
        if cursor.seq > self.top.seq:
            return False
        return self.events[cursor.seq - self.low.seq - 1].position.tag == cursor.tag
