"""Measures how late the event loop is: a timer runs once a second and compares the time with the time it was set to.

A function that blocks the loop for three seconds delays a timer that was due meanwhile, so the delay is seen as soon
as the loop runs again. A shorter block may fall between two timers; the share of such blocks that is seen is their
length in seconds.
"""

import asyncio
from collections import deque
from typing import Final

from limpet.ops.figures import Durations

SECONDS: Final = 1.0
KEPT: Final = 60
"""Number of delays for `largest`."""


class LoopDelay:
    """The delays of one event loop."""

    __slots__ = ("_recent", "_timer", "durations")

    def __init__(self) -> None:
        self.durations: Durations = Durations()
        """All delays since the start."""
        self._recent: deque[float] = deque(maxlen=KEPT)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def last(self) -> float:
        """The newest delay in seconds; 0 if there is none."""
        return self._recent[-1] if self._recent else 0.0

    @property
    def largest(self) -> float:
        """The largest delay of the last minute in seconds."""
        return max(self._recent, default=0.0)

    def start(self) -> None:
        """Measure until stopped, on the running loop."""
        self.stop()
        self._set(asyncio.get_running_loop())

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(SECONDS, self._measure, loop, loop.time() + SECONDS)

    def _measure(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        delay = max(0.0, loop.time() - due)
        self._recent.append(delay)
        self.durations.add(delay)
        self._set(loop)
