"""The deadlines of all connections of a server.

One sweep checks them; a request costs a few attribute writes, and no timer.

Time in which this process could not check (stopped, or its loop blocked) is not counted: the bytes that its clients
sent meanwhile are not read yet, and the clients are not late.
"""

from typing import Final

from limpet.config import Limits

KEEP_ALIVE: Final = 75
"""Seconds for which an idle connection stays open: longer than the 60 s of balancers, so that they close first."""
_LATE: Final = 2
"""A sweep that is late by so many intervals counts as too late."""


class Deadlines:
    """The time of the last sweep, and the limits."""

    __slots__ = ("_looked", "_was_late", "is_hurried", "limits", "now", "stall")

    def __init__(self, limits: Limits, stall: float, *, hurried: bool = False) -> None:
        self.limits: Limits = limits
        self.is_hurried: bool = hurried
        """When all connections are in use, one without a complete request makes room at once, and not only after a
        sweep. For a server with few connections, which a flood of new ones fills between two sweeps."""
        self.stall: float = stall
        """Seconds after which a client is dropped that takes none of the bytes for it."""
        self.now: float = 0.0
        """Counted by sweeps, each for an interval at most."""
        self._looked: float | None = None
        self._was_late = False

    def tick(self, time: float) -> bool:
        """Advance the time. False: this sweep is much too late, so end no connection now.

        If two sweeps in a row are too late, the second one may end connections: otherwise a loop that is always late
        would never end any.
        """
        passed = 0.0 if self._looked is None else time - self._looked
        self._looked = time
        self.now += min(passed, self.interval)
        self._was_late = passed > _LATE * self.interval and not self._was_late
        return not self._was_late

    def is_long_ago(self, moment: float) -> bool:
        """True if more than one sweep has come since, or if connections without a request have no time."""
        return self.is_hurried or self.now - moment > self.interval

    @property
    def interval(self) -> float:
        """How often to check: every second, or often enough for a short limit."""
        return min(1.0, self.limits.header_seconds / 4, self.limits.body_seconds / 4, self.stall / 4)
