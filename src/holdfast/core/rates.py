"""A rate limit for the log: a burst for each event name, then a steady rate, and a count of the dropped events. Pure.

If an attacker can write any number of lines to a log, its reader cannot use it, and the disk becomes full. The table is
bounded: names that do not fit into it share one entry.
"""

from collections.abc import Hashable
from typing import Final

BURST: Final = 10
PER_SECOND: Final = 1.0
"""Events of one name that are logged in a second, after the burst."""
TOTAL: Final = 10
"""All names together may log this many times the burst and the rate of one name, unless another number is given."""
NAMES: Final = 1_024


class _Bucket:
    """The rest of a burst, and the number of events dropped since the last one that was logged."""

    __slots__ = ("at", "held", "left", "scale")

    def __init__(self, now: float, scale: int = 1) -> None:
        self.at = now
        self.scale = scale
        self.left: float = BURST * scale
        self.held = 0

    def refill(self, now: float) -> None:
        self.left = min(BURST * self.scale, self.left + (now - self.at) * PER_SECOND * self.scale)
        self.at = now

    @property
    def is_idle(self) -> bool:
        return self.left >= BURST * self.scale


class Rates:
    """Decides which events are logged. Time is passed in."""

    __slots__ = ("_all", "_buckets")

    def __init__(self, now: float, total: int = TOTAL) -> None:
        """Begin with full bursts. All names together have `total` times the burst and the rate of one name."""
        self._all = _Bucket(now, total)
        self._buckets: dict[Hashable, _Bucket] = {}

    def __repr__(self) -> str:
        return f"<Rates {len(self._buckets)}/{NAMES} names>"

    def admit(self, name: Hashable, now: float) -> int | None:
        """Return the number of events of this name that were dropped before this one, or None if this one is dropped too."""
        bucket = self._bucket(name, now)
        for one in (bucket, self._all):
            one.refill(now)
        if min(bucket.left, self._all.left) < 1:
            bucket.held += 1
            return None
        bucket.left -= 1
        self._all.left -= 1
        held, bucket.held = bucket.held, 0
        return held

    def _bucket(self, name: Hashable, now: float) -> _Bucket:
        known = self._buckets.get(name)
        if known is not None:
            return known
        if len(self._buckets) >= NAMES:
            self._forget_idle(now)
        if len(self._buckets) >= NAMES:
            # The table is full: the shared entry replaces the oldest entry.
            name = None
            if (shared := self._buckets.get(name)) is not None:
                return shared
            del self._buckets[next(iter(self._buckets))]
        return self._buckets.setdefault(name, _Bucket(now))

    def _forget_idle(self, now: float) -> None:
        for bucket in self._buckets.values():
            bucket.refill(now)
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if not bucket.is_idle}
