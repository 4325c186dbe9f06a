"""Notices that this process could not run: it was stopped, its host was frozen, or its loop was blocked.

Requests that arrived during the pause wait in the buffers of their sockets. Some of their clients have given up: they
closed the connection and were answered by another replica. The loop reads the request first and the end of the
connection after it. So the request would start before this process knows that its client has left, and its tool would
run twice. Therefore a front checks `is_waking` before it starts a request. If it is true, the front first lets the loop
read all sockets, and then checks whether the connection was closed.

How it is noticed. A timer of the loop runs twice a second (a beat). There was a pause if a beat comes late, or if a
request comes long after the last beat. After a pause the loop runs the late timer before the first step of a new task,
so the beat notices the pause before a request starts. One case is different: while a host is suspended, the loop's
clock may stand still, and the timer is not late. Then the request notices it: `is_waking` compares the time with that
of the last beat. After a pause `is_waking` is true until a beat comes in time.
"""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

_BEAT: Final = 0.5
"""Seconds between two beats."""
_PAUSE: Final = 1.0
"""Seconds without a beat after which this process could not run."""


class Pulse:
    """The beat of one event loop. `now` is a clock that also counts the time while the host is suspended."""

    __slots__ = ("_beat_at", "_now", "_timer", "_trusted_until")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._beat_at = now()
        self._trusted_until = inf
        """Until this time a front need not check a request's connection. Infinite before `start`: pauses are not
        noticed."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Beat until stopped."""
        self._beat_at = self._now()
        self._trusted_until = self._beat_at + _PAUSE
        self._timer = asyncio.get_running_loop().call_later(_BEAT, self._beat)

    def stop(self) -> None:
        """Beat no more."""
        self._trusted_until = inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat(self) -> None:
        now = self._now()
        self._trusted_until = -inf if now - self._beat_at > _PAUSE else now + _PAUSE
        self._beat_at = now
        self._timer = asyncio.get_running_loop().call_later(_BEAT, self._beat)

    def is_waking(self) -> bool:
        """True if this process could not run until a moment ago."""
        # A callable that is an attribute is read first: Python 3.11 calls `self._now()` slowly. So does the whole path
        # of a plain call: 230 instructions less for each.
        now = self._now
        return now() > self._trusted_until
