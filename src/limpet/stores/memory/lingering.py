"""Streams of closed sessions that had a reader. They are kept for some seconds, so that the reader can read to the end.

Their total bytes are limited, because a client can close sessions faster than the streams expire.
"""

from collections.abc import Callable

from limpet.core.ledger import Charge
from limpet.core.stream import Log
from limpet.stores.base import LINGER_SECONDS


class Lingering:
    """Logs by session and stream, oldest first."""

    def __init__(self, now: Callable[[], float], most: int) -> None:
        self._now = now
        self._most = most
        self._bytes = 0
        self._logs: dict[tuple[str, str], tuple[float, Log, Charge | None]] = {}

    def __repr__(self) -> str:
        return f"<Lingering {len(self._logs)} streams>"

    def keep(self, key: str, stream: str, log: Log, charge: Charge | None = None) -> None:
        """Keep a complete stream; delete the oldest ones while the total is above the limit.

        The streams of a session share a charge.
        """
        self._logs[key, stream] = self._now() + LINGER_SECONDS, log, charge
        self._bytes += log.bytes
        while self._bytes > self._most:
            self._drop_oldest()

    def get(self, key: str, stream: str) -> Log | None:
        """Return a stream; None if it is unknown or its time is over."""
        until, log, _ = self._logs.get((key, stream), (0.0, None, None))
        return log if until > self._now() else None

    def sweep(self) -> None:
        """Delete the streams whose time is over."""
        now = self._now()
        while self._logs and next(iter(self._logs.values()))[0] <= now:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = next(iter(self._logs))
        _, log, _ = self._logs.pop(oldest)
        self._bytes -= log.bytes

    def clear(self) -> None:
        """Delete all streams."""
        self._logs.clear()
        self._bytes = 0
