"""The calls of each tool in the last minutes: how many, how many failed, and whether that is more than before.

    figures, which only grow ──▶ a copy every 5 s, for 5 minutes ──▶ the difference of two copies

A copy is made by a loop that runs once a second anyway (`attention.py`), so a call pays nothing. The rows are those of
`figures.py`, whose number is bounded; a row that has not changed is the same object in the next copy.
"""

from bisect import bisect_right
from collections import deque
from typing import Final

from msgspec import Struct

from limpet.ops.figures import ERRORS, Durations, Figures

STEP_SECONDS: Final = 5.0
"""Between two copies."""
RECENT_SECONDS: Final = 60.0
KEPT_SECONDS: Final = 300.0

Subject = tuple[str, str]
"""A method, and the name of the tool or prompt; empty for other methods."""


class EndedCalls(Struct, frozen=True, array_like=True):
    """The calls of one tool that have ended so far, or in some time."""

    counts: tuple[int, ...]
    """As in `Durations`."""
    errors: int = 0

    @property
    def calls(self) -> int:
        """How many calls."""
        return sum(self.counts)

    def since(self, before: "EndedCalls | None") -> "EndedCalls":
        """Return the calls after an earlier copy."""
        if before is None:
            return self
        counts = tuple(now - then for now, then in zip(self.counts, before.counts, strict=True))
        return EndedCalls(counts, self.errors - before.errors)

    def plus(self, other: "EndedCalls") -> "EndedCalls":
        """Return the calls of both."""
        counts = tuple(one + two for one, two in zip(self.counts, other.counts, strict=True))
        return EndedCalls(counts, self.errors + other.errors)

    def quantile(self, share: float) -> float:
        """Return about the duration that this share of the calls does not exceed; 0 if there are no calls."""
        durations = Durations()
        durations.counts = list(self.counts)
        return durations.quantile(share)


NO_CALLS: Final = EndedCalls(tuple(Durations().counts))


class Recent(Struct, frozen=True):
    """The calls of one tool in the last minute, and in the four minutes before it."""

    seconds: float = 0.0
    """How long the last minute was: less, if the process has just started."""
    last: EndedCalls = NO_CALLS
    earlier_calls: int = 0
    earlier_errors: int = 0

    def plus(self, other: "Recent") -> "Recent":
        """Return the calls of two tools, or of one tool in two processes."""
        return Recent(
            max(self.seconds, other.seconds),
            self.last.plus(other.last),
            self.earlier_calls + other.earlier_calls,
            self.earlier_errors + other.earlier_errors,
        )


class RecentCalls:
    """The calls of one server by tool."""

    def __init__(self, figures: Figures, now: float) -> None:
        self._figures = figures
        self._copies: deque[tuple[float, dict[Subject, EndedCalls]]] = deque([(now, {})])
        """The oldest first. The first one after the start has no calls."""

    def look(self, now: float) -> bool:
        """Make a copy, if it is time for one; False: it is not."""
        if now - self._copies[-1][0] < STEP_SECONDS:
            return False
        self._copies.append((now, self._copied()))
        while self._copies[1][0] <= now - KEPT_SECONDS:
            self._copies.popleft()
        return True

    def by_subject(self, now: float) -> dict[Subject, Recent]:
        """Return the tools that were called in the last five minutes."""
        times = [at for at, _ in self._copies]
        began, minute_ago = self._copies[max(0, bisect_right(times, now - RECENT_SECONDS) - 1)]
        _, start = self._copies[0]
        found: dict[Subject, Recent] = {}
        for subject, row in self._copied().items():
            last = row.since(minute_ago.get(subject))
            whole = row.since(start.get(subject))
            if whole.calls:
                earlier = whole.calls - last.calls, whole.errors - last.errors
                found[subject] = Recent(now - began, last, *earlier)
        return found

    def _copied(self) -> dict[Subject, EndedCalls]:
        """Return the calls so far. Rows that have not changed are those of the last copy."""
        before = self._copies[-1][1]
        rows: dict[Subject, EndedCalls] = {}
        for (method, name, _, outcome), durations in self._figures.calls():
            row = EndedCalls(tuple(durations.counts), durations.count if outcome in ERRORS else 0)
            known = rows.get((method, name))
            rows[method, name] = row if known is None else known.plus(row)
        return {
            subject: before[subject] if before.get(subject) == row else row for subject, row in rows.items()
        }
