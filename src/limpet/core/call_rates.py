"""The rates of calls: how many calls each principal, tool and address may still make. Pure.

A rate of N calls in a time T is a token bucket that holds N calls. Each call takes one, and N are added again in each
T, steadily. So N calls may come at once, and in the long run N come in each T.

**Replicas** count separately and compare once a second (`report`, `learn`). A call that another replica reports is
taken from the bucket here too, and the bucket may fall below zero: then no replica admits a call until the bucket is
above zero again. So the rate is exact in the long run. For a short time more calls pass: for each further replica at
most N, which its bucket holds, and two seconds' rate, because a report is up to a second old when it is read, and the
next one comes a second later.

A report has the calls of the last intervals, each with its number. A reader takes each interval once, so that a report
that is read twice counts once, and a lost or late one costs nothing while its intervals are still in the next report.

**Limits.** Keys are short hashes, never a client's text. The table of buckets is bounded: the least recently used
bucket is dropped with its count. A report has a bounded number of keys, those with the most calls first; the others
wait for the next report. As many keys wait as there are buckets; the calls of further keys are not reported.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct

from limpet.config import Rate
from limpet.core.token_bucket import TokenBucket

BUCKETS: Final = 50_000
REPORTED: Final = 1_000
"""Keys in one interval of a report."""
_INTERVALS: Final = 4
"""Intervals in a report: so many reports in a row may be lost."""
_REPLICAS: Final = 1_000
"""Other replicas whose last interval is remembered."""
_ONE: Final = 1 - 1e-9
"""One call, as a number with rounding errors."""

RateOf = Callable[[bytes], Rate | None]
"""Returns the rate of a key; None: this process has no such limit."""


class RateReport(Struct, frozen=True, array_like=True):
    """The calls that one replica has admitted in its last intervals."""

    origin: str
    """A random name of the process: after a restart the numbers begin again."""
    number: int
    """The number of the newest interval."""
    intervals: list[dict[bytes, int]]
    """Calls by key, the newest interval last."""


class _Bucket(TokenBucket):
    __slots__ = ("rate",)

    def __init__(self, rate: Rate, now: float) -> None:
        super().__init__(rate.count, rate.seconds, now)
        self.rate = rate


class CallRates:
    """The calls that one process counts. Time is passed in."""

    __slots__ = ("_buckets", "_intervals", "_number", "_origin", "_reports", "_seen", "_unreported")

    def __init__(self, origin: str, *, reports: bool = True) -> None:
        """`origin` is a random name of the process. `reports`: there may be other replicas, which read reports."""
        self._reports = reports
        self._buckets: OrderedDict[bytes, _Bucket] = OrderedDict()
        self._origin = origin
        self._number = 0
        self._intervals: deque[dict[bytes, int]] = deque(maxlen=_INTERVALS)
        self._unreported: Counter[bytes] = Counter()
        self._seen: OrderedDict[str, int] = OrderedDict()
        """The newest interval of each other process that was counted here."""

    def __repr__(self) -> str:
        return f"<CallRates {len(self)}/{BUCKETS}>"

    def __len__(self) -> int:
        return len(self._buckets)

    def wait(self, key: bytes, rate: Rate, now: float) -> float:
        """Return in how many seconds the next call may come; 0: now."""
        bucket = self._buckets.get(key)
        if bucket is None or bucket.rate != rate:
            return 0.0
        bucket.refill(now)
        return 0.0 if bucket.left >= _ONE else (1 - bucket.left) * rate.seconds / rate.count

    def take(self, key: bytes, rate: Rate, now: float) -> None:
        """Count a call that was admitted here."""
        self._spend(key, rate, now, 1)
        if self._reports and (key in self._unreported or len(self._unreported) < BUCKETS):
            self._unreported[key] += 1

    def _spend(self, key: bytes, rate: Rate, now: float, count: int) -> None:
        bucket = self._buckets.get(key)
        if bucket is None or bucket.rate != rate:
            bucket = self._buckets[key] = _Bucket(rate, now)
            if len(self._buckets) > BUCKETS:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
            bucket.refill(now)
        bucket.left -= count

    # Between replicas

    @property
    def has_news(self) -> bool:
        """True if another replica may not know everything that was admitted here."""
        return bool(self._unreported or any(self._intervals))

    def report(self) -> bytes:
        """Close the interval, and return the admitted calls of the last ones."""
        newest = dict(self._unreported.most_common(REPORTED))
        for key in newest:
            del self._unreported[key]
        self._number += 1
        self._intervals.append(newest)
        return msgspec.msgpack.encode(RateReport(self._origin, self._number, list(self._intervals)))

    def learn(self, reports: list[bytes], rate_of: RateOf, now: float) -> set[bytes]:
        """Count the calls that other replicas report and that were not counted here before; return their keys.

        A report that cannot be read is skipped.
        """
        learned: set[bytes] = set()
        for data in reports:
            try:
                report = _decode(data)
            except msgspec.DecodeError:
                continue
            if report.origin != self._origin:
                learned |= self._learn(report, rate_of, now)
        return learned

    def _learn(self, report: RateReport, rate_of: RateOf, now: float) -> set[bytes]:
        learned: set[bytes] = set()
        seen = self._seen.get(report.origin, 0)
        for number, interval in enumerate(report.intervals, report.number - len(report.intervals) + 1):
            if number > seen:
                for key, count in interval.items():
                    if (rate := rate_of(key)) is not None:
                        self._spend(key, rate, now, count)
                        learned.add(key)
        self._seen[report.origin] = max(seen, report.number)
        self._seen.move_to_end(report.origin)
        if len(self._seen) > _REPLICAS:
            self._seen.popitem(last=False)
        return learned


_decode: Final = msgspec.msgpack.Decoder(RateReport).decode
