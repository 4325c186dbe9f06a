"""The last events of this process, for `limpet sessions show` and `find` and for the list of events on the dashboard.

One ring for the whole process, bounded in events and in bytes: the oldest are dropped first. An entry has a number
that only grows, so a reader asks for the events after the last number that it has seen. Facts are the texts of the
log, without tracebacks; a ring holds no session id, token or payload, because the log does not either.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from heapq import merge, nlargest
from itertools import islice, takewhile
from operator import attrgetter
from typing import Final

from msgspec import Struct

MAX_EVENTS: Final = 5_000
MAX_BYTES: Final = 2 * 1024 * 1024
_MANY: Final = "call.ended"
_MAX_FACT: Final = 500
_EVENT_BYTES: Final = 300
"""About the memory that an entry takes besides its texts."""


class Happened(Struct, frozen=True):
    """One event."""

    number: int
    at: float
    """Seconds since 1970."""
    event: str
    facts: dict[str, str]


class Ring:
    """The last events, the oldest first. Calls that succeeded are many, so they have at most a quarter of the space.

    Events with a correlation id have another quarter: a client that opens many sessions, or whose calls fail, must not
    remove the event that another client asks its operator about.
    """

    __slots__ = ("_calls", "_joined", "_next", "_others")

    def __init__(self, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES) -> None:
        self._calls = _KeptEvents(max_events // 4, max_bytes // 4)
        self._joined = _KeptEvents(max_events // 4, max_bytes // 4)
        self._others = _KeptEvents(max_events // 2, max_bytes // 2)
        self._next = 1

    def add(self, at: float, event: str, facts: Mapping[str, object]) -> None:
        """Keep an event; drop the oldest events for which there is no space."""
        texts = {name[:_MAX_FACT]: _text(value) for name, value in facts.items()}
        kept = Happened(self._next, at, event[:_MAX_FACT], texts)
        self._next += 1
        room = self._calls if event == _MANY else self._joined if "correlation" in facts else self._others
        room.add(kept)

    @property
    def last(self) -> int:
        """The number of the newest event; 0: there was none."""
        return self._next - 1

    def after(self, number: int = 0, *, limit: int = 500) -> list[Happened]:
        """Return the newest events after a number, the oldest first. Calls that succeeded are left out first."""
        others = [*self._others.after(number, limit), *self._joined.after(number, limit)]
        others = nlargest(limit, others, key=_number)
        return sorted([*others, *self._calls.after(number, limit - len(others))], key=_number)

    def of_session(self, name: str) -> Iterator[Happened]:
        """Yield the events of a session, by its short name in the log."""
        return (happened for happened in self._all() if happened.facts.get("session") == name)

    def with_correlation(self, correlation: str) -> Iterator[Happened]:
        """Yield the events of a correlation id that a client received."""
        return (happened for happened in self._all() if happened.facts.get("correlation") == correlation)

    def _all(self) -> Iterator[Happened]:
        return merge(self._others.events, self._joined.events, self._calls.events, key=_number)


class _KeptEvents:
    """Events up to a number and a size, the oldest first."""

    __slots__ = ("_bytes", "_max_bytes", "_max_events", "events")

    def __init__(self, max_events: int, max_bytes: int) -> None:
        self.events: deque[Happened] = deque()
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._bytes = 0

    def add(self, kept: Happened) -> None:
        self.events.append(kept)
        self._bytes += _size(kept)
        while self._bytes > self._max_bytes or len(self.events) > self._max_events:
            self._bytes -= _size(self.events.popleft())

    def after(self, number: int, limit: int) -> list[Happened]:
        """Return the newest events after a number, the newest first."""
        newer = takewhile(lambda happened: happened.number > number, reversed(self.events))
        return list(islice(newer, limit))


_number: Final = attrgetter("number")


def _text(value: object) -> str:
    text = f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value)
    return text[:_MAX_FACT]


def _size(happened: Happened) -> int:
    return (
        _EVENT_BYTES
        + len(happened.event)
        + sum(len(name) + len(text) for name, text in happened.facts.items())
    )
