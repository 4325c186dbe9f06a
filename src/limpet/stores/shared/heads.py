"""The head of a log: positions and sizes, without the data of its events, which the backend keeps."""

from collections import deque
from collections.abc import Sequence

from typing_extensions import override

from limpet.core.stream import Data, Event, NewEvents, Position
from limpet.core.stream import Log as WholeLog


class NeedsIndex(Exception):
    """A rule needs the tags or sizes of the events of a stream, which are not known here."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.stream = stream


class HeadLog(WholeLog):
    """A log whose events are elsewhere.

    It notes the events that a rule adds, and up to which number it forgets some.
    """

    __slots__ = ("index", "name", "new")

    low: Position
    top: Position
    bytes: int
    closed: bool

    def __init__(self, start: Position) -> None:
        super().__init__(start)
        self.name: str = ""
        self.index: deque[tuple[int, int]] | None = deque()
        """Tag and size of each retained event, oldest first; None: unknown."""
        self.new: list[Event] = []
        """Events that are not stored yet."""

    @property
    def first(self) -> int:
        """The number before the first event that ever was."""
        return self._first

    def copied(self, name: str) -> "HeadLog":
        """Return a log that a rule may change. Both use one index: if the change is undone, that is forgotten."""
        log = HeadLog.__new__(HeadLog)
        log._first, log.low, log.top, log.delivered = self._first, self.low, self.top, self.delivered
        log.events, log.bytes, log.closed, log.name = self.events, self.bytes, self.closed, name
        log.index = self.index
        log.new = []
        return log

    def set_index(self, sizes: Sequence[tuple[int, int, int]]) -> bool:
        """Take number, tag and size of each event. False if they do not belong to this head."""
        if not sizes or sizes[0][0] != self.low.seq + 1 or sizes[-1][:2] != self.top:
            return False
        self.index = deque((tag, size) for _, tag, size in sizes)
        return True

    def same_as(self, other: "HeadLog") -> bool:
        """Return True if both heads are equal."""
        return (
            self.top == other.top
            and self.low == other.low
            and self.delivered == other.delivered
            and self.bytes == other.bytes
            and self.closed == other.closed
        )

    @override
    def append(self, tag: int, data: Data, *, final: bool = False) -> Event:
        self.extend([(tag, data)], final=final)
        return self.new[-1]

    @override
    def extend(self, events: NewEvents, *, final: bool = False) -> None:
        new = [Event(Position(seq, tag), data) for seq, (tag, data) in enumerate(events, self.top.seq + 1)]
        if self.index is not None:
            self.index.extend([(tag, len(data)) for tag, data in events])
        self.new += new
        self.top = new[-1].position
        self.bytes += sum([len(data) for _, data in events])
        self.closed = final

    @override
    def skip_to(self, position: Position) -> None:
        super().skip_to(position)
        self.index = deque()

    @override
    def pack(self) -> None:
        """Do nothing: there are no events here."""

    @override
    def trim(self, max_events: int, max_bytes: int) -> int:
        freed = 0
        while (count := self.top.seq - self.low.seq) > 1 and (
            count > max_events or self.bytes - freed > max_bytes
        ):
            if self.index is None:
                raise NeedsIndex(self.name)
            tag, size = self.index.popleft()
            self.low = Position(self.low.seq + 1, tag)
            freed += size
        self.bytes -= freed
        return freed

    @override
    def proves(self, cursor: Position) -> bool:
        low, top = self.low, self.top
        if cursor.seq == top.seq:
            return cursor.tag == top.tag
        if not low.seq < cursor.seq < top.seq:
            return super().proves(cursor)
        if self.index is None:
            raise NeedsIndex(self.name)
        return self.index[cursor.seq - low.seq - 1][0] == cursor.tag
