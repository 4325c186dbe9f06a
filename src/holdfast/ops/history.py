"""How many calls ended in each of the last seconds, and how long they took, for the charts of the dashboard."""

from collections import deque
from typing import Final

from holdfast.ops.figures import Durations

KEPT_SECONDS: Final = 300
WINDOW_SECONDS: Final = 10
"""A point of the chart is about the calls of so many seconds: in one second there may be none."""

Point = tuple[float, float, float]
"""Calls per second, median and 95th percentile of their durations in seconds."""


class History:
    """A sample each second."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Durations]] = deque(maxlen=WINDOW_SECONDS + 1)
        self.points: deque[Point] = deque(maxlen=KEPT_SECONDS)

    def __repr__(self) -> str:
        return f"<History of {len(self.points)} s>"

    def sample(self, now: float, calls: Durations) -> None:
        """Take the calls that have ended so far. Call it once a second."""
        self._samples.append((now, calls))
        began, before = self._samples[0]
        recent = calls.since(before)
        rate = recent.count / (now - began) if now > began else 0.0
        self.points.append((rate, recent.quantile(0.5), recent.quantile(0.95)))

    @property
    def last(self) -> Point:
        """The newest point."""
        return self.points[-1] if self.points else (0.0, 0.0, 0.0)
