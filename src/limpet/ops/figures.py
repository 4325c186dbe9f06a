"""The figures of one process: calls with their durations, sessions, and events, as plain numbers. No dependency.

Calls and events are counted when they happen, which must cost little: one dictionary lookup, one bisection, one
addition. Everything else (how many sessions are open, how many calls run) is read from the live objects when an
operator asks.

Labels are bounded, because clients choose names. A tool or prompt gets its own row when the server has listed it, or
after its first success; at most `NAMES` names have one, and all others share the name `other`, as unknown methods do.
The names of events and outcomes come from our code. So the size of the figures does not depend on clients.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal

from limpet.protocol.methods import METHODS

BOUNDS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
)
"""Upper bounds of the ranges of a duration, in seconds. From 0.01 on they are those of the MCP conventions of
OpenTelemetry."""
NAMES: Final = 200
OTHER: Final = "other"


CallOutcome = Literal["ok", "tool_error", "error", "failed", "cancelled"]
"""How a call ended: with a result, with a result that says `isError`, with an error that the handler chose, with an
exception that its client does not see, or by a cancellation."""
ERRORS: Final[frozenset[CallOutcome]] = frozenset({"tool_error", "error", "failed"})
"""The outcomes that count as errors. A call that its client has cancelled does not."""


Era = Literal["session", "sessionless"]


class Durations:
    """How many durations fell into each range, and their sum."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts: list[int] = [0] * (len(BOUNDS) + 1)
        self.seconds: float = 0.0

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.counts)

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds

    def quantile(self, share: float) -> float:
        """Return about the duration that this share of the calls does not exceed; 0 if there are no calls."""
        wanted, seen, low = share * self.count, 0, 0.0
        for bound, count in zip((*BOUNDS, BOUNDS[-1]), self.counts, strict=True):
            if count and seen + count >= wanted:
                return low + (bound - low) * (wanted - seen) / count
            seen, low = seen + count, bound
        return 0.0

    def since(self, before: "Durations") -> "Durations":
        """Return the durations that were added after an earlier copy."""
        added = Durations()
        added.counts = [now - then for now, then in zip(self.counts, before.counts, strict=True)]
        added.seconds = self.seconds - before.seconds
        return added

    def merge(self, other: "Durations") -> None:
        """Add all of another one."""
        self.counts = [one + two for one, two in zip(self.counts, other.counts, strict=True)]
        self.seconds += other.seconds


class StoreFigures:
    """The counts and durations of one store."""

    __slots__ = ("answers", "asks", "bytes", "durations", "errors", "events", "gaps", "resumes", "streams")

    def __init__(self) -> None:
        self.durations: dict[str, Durations] = {}
        """By part of the contract; empty for a store in memory."""
        self.errors: Counter[tuple[str, str]] = Counter()
        """By part and kind of the error."""
        self.streams: int = 0
        self.events: int = 0
        self.bytes: int = 0
        self.resumes: int = 0
        self.gaps: int = 0
        self.asks: int = 0
        self.answers: int = 0


CallLabels = tuple[str, str, Era, CallOutcome]
"""Method, name of the tool or prompt (may be empty), era, outcome."""


class Figures:
    """All counts that are made when something happens."""

    __slots__ = ("_calls", "_names", "_sessions", "events", "store", "successes")

    def __init__(self) -> None:
        self._calls: dict[CallLabels, Durations] = {}
        self._names: set[str] = set()
        self.successes: dict[Era, dict[str, Durations]] = {"session": {}, "sessionless": {}}
        """By era and tool: the durations of calls that succeeded, for code that runs for each call. Only known names
        are here."""
        self._sessions = Durations()
        self.events: Counter[str] = Counter()
        """How often each event of the log happened, also those whose lines were left out."""
        self.store: StoreFigures = StoreFigures()

    def call(self, method: str, name: str, era: Era, outcome: CallOutcome, seconds: float) -> None:
        """Count a call that has ended."""
        if outcome == "ok":
            self.know(name)
        is_known = method in METHODS and (not name or name in self._names)
        labels = method if method in METHODS else OTHER, name if is_known or not name else OTHER, era, outcome
        row = self._calls.get(labels)
        if row is None:
            row = self._calls[labels] = Durations()
        if is_known and method == "tools/call" and outcome == "ok":
            self.successes[era][name] = row
        row.add(seconds)

    def know(self, name: str) -> None:
        """Give a tool or prompt its own row: the server has listed it, or has answered for it."""
        if name and len(self._names) < NAMES:
            self._names.add(name)

    def session(self, seconds: float) -> None:
        """Count a session that was closed after this time."""
        self._sessions.add(seconds)

    @property
    def sessions(self) -> Durations:
        """How long closed sessions were open."""
        return self._sessions

    def all_calls(self) -> Durations:
        """Return the durations of all calls."""
        every = Durations()
        for one in self._calls.values():
            every.merge(one)
        return every

    def errors(self) -> int:
        """Return how many calls have failed."""
        return sum(row.count for labels, row in self._calls.items() if labels[-1] in ERRORS)

    def calls(self) -> Iterator[tuple[CallLabels, Durations]]:
        """Yield the durations of calls by their labels."""
        yield from self._calls.items()
