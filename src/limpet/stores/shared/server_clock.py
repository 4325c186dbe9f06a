"""The time of a server, as far as it is known here: the local clock and a difference that its replies tell."""

from math import inf
from typing import Final

from limpet.ports import Clock, SystemClock

_JUMP: Final = 0.5
_OLD: Final = 30.0
"""Seconds by which the clock of the server was set back for sure, and after which a measurement is forgotten."""


class ServerClock:
    """The time of a server, in seconds since 1970."""

    def __init__(self, given: Clock | None = None) -> None:
        """With a clock `given`, its time counts: for tests and simulations."""
        self.given: Clock | None = given
        self._local: Clock = SystemClock()
        self._offset = self._local.wall() - self._local.now()
        """What is added to the local time to get that of the server."""
        self._measured = -inf

    def now(self) -> float:
        """Return the time of the server."""
        return self._local.now() + self._offset if self.given is None else self.given.now()

    @property
    def told(self) -> float | None:
        """The time that a command tells the server; None: the server's own time counts."""
        return None if self.given is None else self.given.now()

    def measure(self, now: float) -> None:
        """Compare the local clock with a time that the server has just told.

        Each reply comes late, so of several measurements the largest is the best one. But clocks may be set: an old one
        is forgotten.
        """
        local = self._local.now()
        offset = now - local
        if offset > self._offset or self._offset - offset > _JUMP or local - self._measured > _OLD:
            self._offset, self._measured = offset, local
