"""The operators' log: every event is a line of the standard library's logging, and an entry of the ring if there is one.

Logger `holdfast`; events of security (`audit.*`) have the logger `holdfast.audit`, so that they can be sent elsewhere.
No session id, payload or token is ever among the facts; text that a client may have chosen is escaped, so that no
line can look like another and no value like two.
"""

import logging
import traceback
from collections import Counter
from collections.abc import Mapping
from typing import Final

from holdfast.ops.ring import Ring
from holdfast.ports import Clock, Observer, SystemClock

LOGGER: Final = logging.getLogger("holdfast")
AUDIT: Final = logging.getLogger("holdfast.audit")

LEVELS: Final = {
    "handler.failed": logging.ERROR,
    "route.failed": logging.ERROR,
    "verifier.failed": logging.ERROR,
    "listener.failed": logging.ERROR,
    "notification.failed": logging.ERROR,
    "exchange.duplicate": logging.WARNING,
    "exchange.fenced": logging.WARNING,
    "listen.dropped": logging.WARNING,
    "push.dropped": logging.WARNING,
    "changes.merged": logging.WARNING,
    "changes.failed": logging.WARNING,
    "notification.dropped": logging.WARNING,
    "exchange.reaped": logging.WARNING,
    "replica.lease_lost": logging.WARNING,
    "lease.not_renewed": logging.WARNING,
    "process.not_ready": logging.WARNING,
    "process.ready": logging.WARNING,
    "lifespan.ended": logging.ERROR,
    "loop.failed": logging.ERROR,
    "orphan.left": logging.WARNING,
    "request.dropped": logging.WARNING,
    "task.reaped": logging.WARNING,
    "task.unreadable": logging.WARNING,
    "store.evicts": logging.WARNING,
    "store.poisoned": logging.WARNING,
    "store.rebased": logging.WARNING,
    "store.refused": logging.WARNING,
    "store.unreachable": logging.WARNING,
    "forward.unsealed": logging.WARNING,
    "work.failed": logging.ERROR,
    "hosted.lifespan_failed": logging.ERROR,
    "hosted.handler_failed": logging.WARNING,
    "hosted.run_failed": logging.WARNING,
    "hosted.run_lingers": logging.WARNING,
    "upstream.dropped": logging.WARNING,
    "upstream.ended": logging.WARNING,
    "upstream.not_restored": logging.WARNING,
    "upstream.refused": logging.WARNING,
    "upstream.stderr": logging.INFO,
    "upstream.unreachable": logging.WARNING,
    "audit.done": logging.INFO,
    "call.slow": logging.WARNING,
    "call.unknown": logging.WARNING,
    "call.unserved": logging.WARNING,
    "session.unserved": logging.WARNING,
    "handler.fenced": logging.WARNING,
    "ask.unanswered": logging.WARNING,
    "reader.slow": logging.WARNING,
    "answer.cut": logging.WARNING,
    "answer.unread": logging.WARNING,
    "stream.stalled": logging.WARNING,
    "queue.full": logging.WARNING,
    "tool.failing": logging.WARNING,
    "replica.gone": logging.WARNING,
    "replica.left": logging.INFO,
    "call.ended": logging.INFO,
    "call.failed": logging.INFO,
    "session.opened": logging.INFO,
    "session.detached": logging.INFO,
    "session.resumed": logging.INFO,
    "session.closed": logging.INFO,
}
"""Events that are not on this list are for debugging."""
TRACED: Final = frozenset(
    {"handler.failed", "lifespan.ended", "listener.failed", "notification.failed", "route.failed"}
)
"""Events whose cause is an author's code: the traceback helps."""


_SPECIAL: Final = frozenset(' ="\\')
REPEATING: Final = frozenset(
    {
        "changes.failed",
        "changes.merged",
        "lease.not_renewed",
        "loop.failed",
        "orphan.left",
        "store.refused",
        "store.unreachable",
        "upstream.dropped",
        "upstream.refused",
        "upstream.unreachable",
    }
)
"""Events that one cause can repeat very often. Each is logged once in `REPEAT_SECONDS`, with the number of lines left out."""
ATTENTION: Final = frozenset(
    {
        "answer.unread",
        "ask.unanswered",
        "call.slow",
        "call.unknown",
        "call.unserved",
        "handler.fenced",
        "queue.full",
        "reader.slow",
        "session.unserved",
        "stream.stalled",
    }
)
"""Warnings that clients can cause. They share one limit: `ATTENTION_LINES` in `REPEAT_SECONDS`."""
ATTENTION_LINES: Final = 100
REPEAT_SECONDS: Final = 10.0
LINES_PER_SECOND: Final = 100
"""How many lines of level INFO are logged in a second. Clients cause them: a flood of sessions must not fill the disk.

The lines of calls are not among them: they have their own limits (`watch.py`).
"""
FAILURES_PER_SECOND: Final = 1_000
"""How many calls that fail have a line in a second. Enough, unless a client fails on purpose to fill the disk."""
_LIMITED_BEFORE: Final = frozenset({"audit.done", "call.ended", "call.failed"})
"""Events that are limited before they come here."""


class LogObserver:
    """Writes each event with its facts: `handler.failed session=1f0c… method=tools/call …`."""

    def __init__(
        self,
        clock: Clock | None = None,
        ring: Ring | None = None,
        counts: Counter[str] | None = None,
        *,
        instead: Observer | None = None,
    ) -> None:
        """`instead`: an author's observer, which receives every event; then nothing is logged."""
        self._clock = clock or SystemClock()
        self._ring = ring
        self._counts = counts
        """How often each event happened, also those that have no line."""
        self._instead = instead
        self._limits: dict[tuple[str, object], LineLimit] = {}
        """By event and loop."""

    def note(self, event: str, /, **facts: object) -> None:
        """Log one line, and the traceback if an author's code failed."""
        logger, level = LOGGER, LEVELS.get(event, logging.DEBUG)
        if event.startswith("audit."):
            logger, level = AUDIT, LEVELS.get(event, logging.WARNING)
        if self._counts is not None:
            self._counts[event] += 1
        if self._instead is not None:
            self._instead.note(event, **facts)
        is_logged = self._instead is None and logger.isEnabledFor(level)
        if not is_logged and self._ring is None:
            return
        limit = self._limit(event, level, facts.get("loop"))
        if limit is not None:
            left_out = limit.admit(self._clock.now())
            if left_out is None:
                return
            facts = {**facts, "left_out": left_out} if left_out else facts
        if self._ring is not None:
            self._ring.add(self._clock.wall(), event, facts)
        if is_logged:
            _write(logger, level, event, facts)

    def _limit(self, event: str, level: int, loop: object) -> "LineLimit | None":
        """Return the limit that an event shares with others; None: each one is logged."""
        if event in REPEATING:
            name, lines, seconds = (event, loop), 1, REPEAT_SECONDS
        elif event in ATTENTION:
            name, lines, seconds = ("attention", None), ATTENTION_LINES, REPEAT_SECONDS
        elif level == logging.INFO and event not in _LIMITED_BEFORE:
            name, lines, seconds = ("", None), LINES_PER_SECOND, 1.0
        else:
            return None
        limit = self._limits.get(name)
        if limit is None:
            limit = self._limits[name] = LineLimit(lines, seconds)
        return limit


class LineLimit:
    """A limit of lines in some seconds, and the number of lines that were left out since the last line."""

    __slots__ = ("_began", "_lines", "_most", "_seconds", "full_until", "left_out")

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._began = -seconds
        self._lines = 0
        self.full_until: float = -seconds
        """A line before this moment is left out. Code that runs for each call reads it, and counts the line itself."""
        self.left_out: int = 0

    def admit(self, now: float) -> int | None:
        """Count a line; return how many were left out before it. None: it is left out too."""
        if now < self.full_until:
            self.left_out += 1
            return None
        if now - self._began >= self._seconds:
            self._began, self._lines = now, 0
        self._lines += 1
        if self._lines >= self._most:
            self.full_until = self._began + self._seconds
        left_out, self.left_out = self.left_out, 0
        return left_out


def _write(logger: logging.Logger, level: int, event: str, facts: Mapping[str, object]) -> None:
    error = facts.get("error")
    line = _Line(event, facts)
    structured = {"event": event, "facts": facts}
    if event in TRACED and isinstance(error, BaseException):
        LOGGER.handle(_traced(level, str(line), error, structured))
    else:
        # Not `logger.log`, which looks for the caller in the stack: it is always this function.
        logger.handle(
            logger.makeRecord(logger.name, level, __file__, 0, "%s", (line,), None, extra=structured)
        )


class _Line:
    """The text of an event. It is made only if a formatter asks for it: the JSON formatter takes the facts."""

    __slots__ = ("_event", "_facts")

    def __init__(self, event: str, facts: Mapping[str, object]) -> None:
        self._event = event
        self._facts = facts

    def __str__(self) -> str:
        return " ".join([self._event, *(f"{name}={_plain(value)}" for name, value in self._facts.items())])

    __repr__ = __str__


def _traced(
    level: int, text: str, error: BaseException, structured: Mapping[str, object]
) -> logging.LogRecord:
    """Return a record whose traceback cannot look like another log line: a client may have chosen the error's text."""
    cause = (type(error), error, error.__traceback__)
    record = LOGGER.makeRecord(LOGGER.name, level, __file__, 0, text, (), cause, extra=structured)
    lines = "".join(traceback.format_exception(error)).splitlines()
    # Formatters use this text instead of making their own.
    record.exc_text = "\n".join(f"  | {escaped(line)}" for line in lines)
    return record


def _plain(value: object) -> str:
    """Return a value for a log line. It is quoted if it contains a space, a quote, a backslash or an equals sign."""
    text = f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value)
    quoted = escaped(text.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{quoted}"' if not text or _SPECIAL & set(text) else quoted


def escaped(text: str) -> str:
    """Return a text without characters that control a terminal or end a line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
