"""A rate limit for the log: a burst for each event name, then a steady rate, and a count of the dropped events. Pure.

If an attacker can write any number of lines to a log, its reader cannot use it, and the disk becomes full. The table is
bounded: when it is full, it forgets the names that have their whole burst. These are almost all, because a name that
was logged has its whole burst again after ten seconds, and all names together log few lines in that time.
"""

from collections.abc import Hashable
from typing import Final

from limpet.core.token_bucket import TokenBucket

BURST: Final = 10
PER_SECOND: Final = 1.0
"""Events of one name that are logged in a second, after the burst."""
TOTAL: Final = 10
"""All names together may log this many times the burst and the rate of one name, unless another number is given."""
NAMES: Final = 1_024


class _Name(TokenBucket):
    """The rest of a name's burst, and the number of its events dropped since the last one that was logged."""

    __slots__ = ("held",)

    def __init__(self, now: float) -> None:
        super().__init__(BURST, BURST / PER_SECOND, now)
        self.held = 0


class LogRates:
    """Decides which events are logged. Time is passed in."""

    __slots__ = ("_all", "_names")

    def __init__(self, now: float, total: int = TOTAL) -> None:
        """Begin with full bursts. All names together have `total` times the burst and the rate of one name."""
        self._all = TokenBucket(BURST * total, BURST / PER_SECOND, now)
        self._names: dict[Hashable, _Name] = {}

    def admit(self, name: Hashable, now: float) -> int | None:
        """Return the number of events of this name that were dropped before this one; None: this one is dropped too."""
        bucket = self._named(name, now)
        bucket.refill(now)
        self._all.refill(now)
        if min(bucket.left, self._all.left) < 1:
            bucket.held += 1
            return None
        bucket.left -= 1
        self._all.left -= 1
        held, bucket.held = bucket.held, 0
        return held

    def _named(self, name: Hashable, now: float) -> _Name:
        known = self._names.get(name)
        if known is None:
            if len(self._names) >= NAMES:
                self._forget_idle(now)
            known = self._names[name] = _Name(now)
        return known

    def _forget_idle(self, now: float) -> None:
        for bucket in self._names.values():
            bucket.refill(now)
        self._names = {name: bucket for name, bucket in self._names.items() if not bucket.is_full}
