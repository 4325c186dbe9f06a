"""Streams of closed sessions that had a reader: kept for some seconds, so that it can read to the end.

They are bounded in bytes, because a client can open and close sessions faster than the seconds pass.
"""

from collections.abc import Callable

from holdfast.core.stream import Log
from holdfast.stores.base import LINGER_SECONDS


class Lingering:
    """Logs by session and stream, oldest first."""

    def __init__(self, now: Callable[[], float], most: int) -> None:
        self._now = now
        self._most = most
        self._bytes = 0
        self._logs: dict[tuple[str, str], tuple[float, Log]] = {}

    def __repr__(self) -> str:
        return f"<Lingering {len(self._logs)} streams>"

    def keep(self, key: str, stream: str, log: Log) -> None:
        """Keep a complete stream; beyond the bound the oldest go."""
        self._logs[key, stream] = self._now() + LINGER_SECONDS, log
        self._bytes += log.bytes
        while self._bytes > self._most:
            self._drop_oldest()

    def get(self, key: str, stream: str) -> Log | None:
        """Return a stream that is still kept."""
        until, log = self._logs.get((key, stream), (0.0, None))
        return log if until > self._now() else None

    def sweep(self) -> None:
        """Forget what was kept long enough."""
        now = self._now()
        while self._logs and next(iter(self._logs.values()))[0] <= now:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = next(iter(self._logs))
        _, log = self._logs.pop(oldest)
        self._bytes -= log.bytes

    def clear(self) -> None:
        """Forget everything."""
        self._logs.clear()
        self._bytes = 0
