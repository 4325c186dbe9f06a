"""The small interfaces that are passed in: time, randomness, and an observer of events.

No other module reads a clock or makes a random number, so a whole server can run in virtual time from a seed (law 14).
"""

import os
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol


class Clock(Protocol):
    """Time in seconds."""

    def now(self) -> float:
        """Return seconds that never go back; only differences have a meaning."""
        ...

    def wall(self) -> float:
        """Return seconds since 1970, for expiry dates of others. It may jump, so it is never used for waiting."""
        ...


class Random(Protocol):
    """Source of ids, tags and jitter."""

    def token(self, size: int) -> str:
        """Return `size` unguessable random bytes as letters and digits."""
        ...

    def tag(self) -> int:
        """Return 64 random bits for the tag of a position; not a secret."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """Return a number between two others, for jitter."""
        ...


class Observer(Protocol):
    """Receives events for operators. It never receives a session id, payload or token."""

    def note(self, event: str, /, **facts: object) -> None:
        """Record that `event` happened. Must not raise and must not wait."""
        ...


class Ports(NamedTuple):
    """All three, for a part that needs them together."""

    clock: Clock
    random: Random
    observer: Observer


uptime: Final[Callable[[], float]] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
"""Returns a moment in seconds, as `Clock.now`. On Linux the time in which the machine was suspended counts."""


class SystemClock:
    """The machine's monotonic clock."""

    now: Final = staticmethod(time.monotonic)
    wall: Final = staticmethod(time.time)


_forks = 0
"""How many forks are between the first process and this one. Reading the process id would be a system call."""


def _forked() -> None:
    global _forks  # noqa: PLW0603 - a fact about the whole process
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class SystemRandom:
    """The operating system's generator for secrets, a fast one for tags and jitter."""

    _POOL = 4_096
    """Bytes that are read at once: a system call for each token would slow down each request."""

    uniform: Final = staticmethod(random.uniform)

    def __init__(self) -> None:
        self._pool = ""
        self._used = 0
        self._forks = _forks

    def token(self, size: int) -> str:
        """Return `size` unguessable bytes in hexadecimal. Each byte is used once."""
        start = self._used
        end = self._used = start + 2 * size
        # A forked child has a copy of the pool and must not return the same bytes.
        if end > len(self._pool) or self._forks != _forks:
            self._pool = os.urandom(max(self._POOL, size)).hex()
            self._forks = _forks
            start, end = 0, 2 * size
            self._used = end
        return self._pool[start:end]

    @staticmethod
    def tag() -> int:
        """Return 64 random bits."""
        return random.getrandbits(64)


class SilentObserver:
    """Ignores every event."""

    def note(self, event: str, /, **facts: object) -> None:
        """Do nothing."""
