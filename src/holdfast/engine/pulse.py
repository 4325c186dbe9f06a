"""Notices that this process could not run: it was stopped, its host was frozen, or its loop was blocked.

Requests that arrived meanwhile lie in the buffers of their sockets, and some of their clients have given up: they
closed the connection and were answered by another replica. The end of a connection is read after the data before
it, so such a request would start before this process has read that its client left, and its tool would run twice. So a
front that starts a request while `is_waking` first lets the loop read what is there, and looks at the connection.

How it is noticed. The loop beats twice a second. A beat that comes late, and a request that comes long after the
last beat, tell of a pause: timers run before the first step of a task that was made from what the same turn of
the loop has read, and where they do not (the loop's clock stands still while a host is suspended) the request's
own look at the time tells. From then on the process is waking until a beat comes in time.
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
    """The beat of one event loop. `now` should go on while the host is suspended."""

    __slots__ = ("_beat_at", "_now", "_timer", "_trusted_until")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._beat_at = now()
        self._trusted_until = inf
        """A request before this moment needs no look at its connection. Before the first beat nothing is known."""
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
        return self._now() > self._trusted_until
