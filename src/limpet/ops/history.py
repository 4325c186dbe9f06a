"""How many calls ended and failed in each of the last seconds, and how long they took, for the dashboard."""

from collections import deque
from typing import Final

from limpet.ops.figures import Durations

KEPT_SECONDS: Final = 300
WINDOW_SECONDS: Final = 10
"""A point of the chart is about the calls of so many seconds: in one second there may be none."""
SHORTEST: Final = 0.001
"""The first sample is compared with itself."""

Point = tuple[float, float, float, float, float]
"""Calls per second, median and 95th percentile of their durations in seconds, failed calls and refused requests per
second."""
NO_POINT: Final[Point] = (0.0, 0.0, 0.0, 0.0, 0.0)


class History:
    """A sample each second."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Durations, int, int]] = deque(maxlen=WINDOW_SECONDS + 1)
        self.points: deque[Point] = deque(maxlen=KEPT_SECONDS)

    def sample(self, now: float, calls: Durations, failed: int = 0, refused: int = 0) -> None:
        """Take the calls that have ended, the failed ones and the refused requests so far. Call it once a second."""
        self._samples.append((now, calls, failed, refused))
        began, before, failed_before, refused_before = self._samples[0]
        recent, seconds = calls.since(before), max(now - began, SHORTEST)
        self.points.append(
            (
                recent.count / seconds,
                recent.quantile(0.5),
                recent.quantile(0.95),
                (failed - failed_before) / seconds,
                (refused - refused_before) / seconds,
            )
        )

    @property
    def last(self) -> Point:
        """The newest point."""
        return self.points[-1] if self.points else NO_POINT
