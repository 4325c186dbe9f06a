"""The small interfaces that are passed in: time, randomness, and who is told what happens.

Nothing below or beside this module reads a clock or draws a number by itself, so a
whole server runs in virtual time with a seed (law 14).
"""

import os
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol


class Clock(Protocol):
    """Seconds that only go forward."""

    def now(self) -> float:
        """Return the present moment in seconds; its zero means nothing."""
        ...

    def wall(self) -> float:
        """Return the date as seconds since 1970; for expiry dates other people wrote, never for waiting."""
        ...


class Random(Protocol):
    """Where ids, tags and jitter come from."""

    def token(self, size: int) -> str:
        """Return `size` unguessable random bytes as text of letters and digits."""
        ...

    def tag(self) -> int:
        """Return 64 random bits that prove a position; not a secret."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """Return a number between the two, for jitter."""
        ...


class Observer(Protocol):
    """Told of what operators want to see. Never given a session id, payload or token."""

    def note(self, event: str, /, **facts: object) -> None:
        """Record that `event` happened. Must not raise and must not wait."""
        ...


uptime: Final[Callable[[], float]] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
"""Returns a moment in seconds, as `Clock.now`. On Linux the time in which the machine was suspended counts."""


class SystemClock:
    """The machine's monotonic clock."""

    now: Final = staticmethod(time.monotonic)
    wall: Final = staticmethod(time.time)


_forks = 0
"""How many forks lie between the first process and this one. To ask for the process id is a system call."""


def _forked() -> None:
    global _forks  # noqa: PLW0603 - a fact about the whole process
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class SystemRandom:
    """The operating system's generator for secrets, a fast one for tags and jitter."""

    _POOL = 4_096
    """Bytes fetched at once: a system call for every token would be felt on every request."""

    uniform: Final = staticmethod(random.uniform)

    def __init__(self) -> None:
        self._pool = ""
        self._used = 0
        self._forks = _forks

    def token(self, size: int) -> str:
        """Return `size` unguessable bytes as hexadecimal text. Each byte is handed out once."""
        start = self._used
        end = self._used = start + 2 * size
        # A forked child has its parent's pool and must not hand out the same bytes.
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
    """Tells nobody."""

    def note(self, event: str, /, **facts: object) -> None:
        """Do nothing."""
