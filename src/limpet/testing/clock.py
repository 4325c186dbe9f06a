"""A clock that moves only when a test moves it."""


class VirtualClock:
    """The Clock port for tests. Starts at 1000, so that a time of zero in the code under test shows."""

    def __init__(self, start: float = 1000.0) -> None:
        self._now = start

    def __repr__(self) -> str:
        return f"<VirtualClock {self._now:g}>"

    def now(self) -> float:
        """Return the present moment."""
        return self._now

    def wall(self) -> float:
        """Return the same moment as a date: 1970 and a little."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError(f"time does not go back (by {-seconds:g} s)")
        self._now += seconds

    def set_back(self, seconds: float) -> None:
        """Set the clock to an earlier moment, as the date of a host may be: for stores, which count in dates."""
        self._now -= seconds
