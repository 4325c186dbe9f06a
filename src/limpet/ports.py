"""The small interfaces that are passed in: time, randomness, and an observer of events.

No other module reads a clock or makes a random number, so a whole server can run in virtual time from a seed (law 14).
"""

import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, NamedTuple, Protocol


class Clock(Protocol):
    """Time in seconds."""

    def now(self) -> float:
        """Return seconds that never go back; only differences have a meaning."""

    def wall(self) -> float:
        """Return seconds since 1970, for expiry dates of others. It may jump, so it is never used for waiting."""


class Random(Protocol):
    """Source of ids, tags and jitter."""

    def token(self, size: int) -> str:
        """Return `size` unguessable random bytes as letters and digits."""

    def tag(self) -> int:
        """Return 64 random bits for the tag of a position; not a secret."""

    def uniform(self, low: float, high: float) -> float:
        """Return a number between two others, for jitter."""


class IncomingRequest(Protocol):
    """A request of a client, as far as its span shows it."""

    @property
    def id(self) -> object:
        """The id that the client chose."""

    @property
    def method(self) -> str:
        """The method."""

    @property
    def params(self) -> Mapping[str, Any]:
        """The params, with the context of the request in `_meta`."""


class CallSpan(Protocol):
    """The span of a request, and the spans of its call: of its handler, its questions, its further requests."""

    @property
    def mark(self) -> str:
        """The context of the span as text, from which later work links to it."""

    def describe(self, **facts: str) -> None:
        """Add facts: `version`, `session`, `replica`."""

    def link(self, name: str) -> None:
        """Link to an earlier request: by its mark, or by the name of a stream that has it.

        Do nothing if the name has none.
        """

    def bind(self) -> None:
        """Let the call end the span: the request has become a call."""

    def join(self, later: "CallSpan") -> None:
        """Let the call end the span of a later request too, which waits for it."""

    def handler(self, request: IncomingRequest) -> AbstractContextManager[Callable[[bytes], None]]:
        """Make a span for the handler; give its result to the function that the block gets."""

    def ask(self, method: str) -> AbstractContextManager[object]:
        """Make a span for a question to the client."""

    def settling(self, error: Exception | None, result: bytes) -> AbstractContextManager[object]:
        """Store the end of the call in the block; end the spans after it."""

    def end(self, error: BaseException | None = None, result: bytes = b"") -> None:
        """End the spans of the requests so far, unless they have ended.

        A parked call continues with a later request.
        """


class Spans(Protocol):
    """Makes the spans of traces (`tracing/observer.py`).

    Requests and calls have them; what an engine does on its own has none.
    """

    def request(
        self, request: IncomingRequest, headers: Mapping[str, str], version: str = ""
    ) -> AbstractContextManager[CallSpan]:
        """Make a span for a request that arrives. It ends with the block, unless the request has become a call."""

    def forwarded(self, request: IncomingRequest, headers: Mapping[str, str], stream: str) -> CallSpan:
        """Begin the span of a request that another replica has forwarded, under the name of its stream."""

    def resume(self, stream: str) -> AbstractContextManager[CallSpan] | None:
        """Make a span for a request that resumes a stream; None if the stream began without one."""

    def command(
        self, system: str, name: str, call: Callable[..., Awaitable[Any]]
    ) -> Callable[..., Awaitable[Any]]:
        """Return a command of a store that has a span when it runs within a request."""

    async def send(
        self,
        method: str,
        params: dict[str, Any],
        send: Callable[[dict[str, Any]], Awaitable[Any]],
        *,
        version: str,
        origin: str,
    ) -> Any:
        """Send a request to another server within its own span, whose context goes with it; return the result.

        `origin` is the origin of the server's URL; empty: the server is at the end of a pipe.
        """


class Observer(Protocol):
    """Receives events for operators. It never receives a session id, payload or token.

    An observer that also makes spans has them as its member `spans` (`spans_of`).
    """

    def note(self, event: str, /, **facts: object) -> None:
        """Record that `event` happened. Must not raise and must not wait."""


def spans_of(observer: Observer) -> Spans | None:
    """Return the part of an observer that makes spans; None: nothing is traced.

    Parts read it once, so that it costs nothing.
    """
    return getattr(observer, "spans", None)


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
