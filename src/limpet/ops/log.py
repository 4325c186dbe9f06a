"""The operators' log: each event is a line of standard logging, and an entry of the ring if there is one.

Clients cause most events. A flood of them must not fill the disk, and must not hide the others: so each event has its
own limit of lines in a time (`_limit`). Lines above it are left out and counted; the next line of the event has their
number (`left_out`), or, if there is none for a while, a line of its own (`log.left_out`).

Logger `limpet`; events of security (`audit.*`) have the logger `limpet.audit`, so that they can be sent elsewhere.
No session id, payload or token is ever among the facts; text that a client may have chosen is escaped, so that no
line can look like another and no value like two.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from limpet.ops import tracebacks
from limpet.ops.health import Health
from limpet.ops.ring import Ring
from limpet.ports import Clock, Observer, SystemClock

LOGGER: Final = logging.getLogger("limpet")
AUDIT: Final = logging.getLogger("limpet.audit")

_LEVELS: Final = {
    logging.ERROR: """
        handler.failed hosted.lifespan_failed lifespan.ended listener.failed loop.failed notification.failed
        request.failed route.failed verifier.failed work.failed
    """,
    logging.WARNING: """
        answer.cut answer.unread ask.unanswered call.not_handed_over call.slow call.unknown call.unserved
        changes.failed changes.merged client.listen_reduced client.tool_left_out component.clash
        component.shadowed exchange.duplicate exchange.fenced exchange.reaped forward.unsealed handler.fenced
        hosted.handler_failed hosted.run_failed hosted.run_lingers lease.not_renewed listen.dropped loop.blocked
        notification.dropped orphan.left process.not_ready process.ready proxy.untrusted push.dropped queue.full
        reader.slow replica.gone replica.lease_lost request.dropped session.unserved sign_in.failed store.evicts
        store.formats store.poisoned store.pooled store.rebased store.refused store.unreachable stream.stalled
        task.reaped task.unreadable tool.failing tool.hidden upstream.dropped upstream.ended upstream.late
        upstream.not_restored upstream.refused upstream.unreachable upstream.unusable
    """,
    logging.INFO: """
        audit.done call.ended call.failed call.handed_over loop.free replica.left session.closed
        session.detached session.opened session.resumed store.bell upstream.stderr
    """,
}
LEVELS: Final = {event: level for level, events in _LEVELS.items() for event in events.split()}
"""Events that are not on this list are for debugging."""
TRACED: Final = frozenset({
    "handler.failed", "lifespan.ended", "listener.failed",
    "notification.failed", "request.failed", "route.failed",
})  # fmt: skip
"""Events whose cause is an author's code: the traceback helps."""


_SPECIAL: Final = frozenset(' ="\\')
REPEATING: Final = frozenset({
    "changes.failed", "changes.merged", "lease.not_renewed", "loop.failed", "orphan.left",
    "store.refused", "store.unreachable", "upstream.dropped", "upstream.refused",
    "upstream.unreachable", "upstream.unusable",
})  # fmt: skip
"""Events that one cause can repeat very often. Each is logged once in `REPEAT_SECONDS`, with the number of lines
left out."""
REPEAT_SECONDS: Final = 10.0
LINES: Final = 100
"""How many lines of each warning or error are logged in `REPEAT_SECONDS`, and of every other event in a second.

The lines of calls and of the audit are not among them: they have their own limits (`call_log.py`, `engine/audit.py`).
"""
FAILURES: Final = 1_000
"""How many calls that fail have a line in `REPEAT_SECONDS`. Enough, unless a client fails on purpose to fill the
disk."""
TEXT: Final = 4_096
"""Characters of a fact. The text of an error, for example, may be a client's, and of any length."""
_TRACEBACK: Final = 16_384
_TRACEBACK_LINES: Final = 200
LEFT_OUT: Final = "log.left_out"
_LIMITED_BEFORE: Final = frozenset({"call.ended", "call.failed", LEFT_OUT})
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
        server: str = "",
        health: Health | None = None,
    ) -> None:
        """`instead`: an author's observer, which receives every event; then nothing is logged.

        `server`: its name in each line.
        """
        self._clock = clock or SystemClock()
        self._ring = ring
        self._counts = counts
        """How often each event happened, also those that have no line."""
        self._instead = instead
        self._health = health
        """Of the server behind; None: there are no figures."""
        self.server: str = server
        """The name of the server, if it is in each line."""
        self._limits: dict[tuple[str, object], LineLimit] = {}
        """By event and loop."""

    def note(self, event: str, /, **facts: object) -> None:
        """Log one line, and the traceback if an author's code failed."""
        logger, level = LOGGER, LEVELS.get(str(facts["of"]) if event == LEFT_OUT else event, logging.DEBUG)
        if event.startswith("audit."):
            logger, level = AUDIT, LEVELS.get(event, logging.WARNING)
        self._pass_on(event, facts)
        is_logged = self._instead is None and logger.isEnabledFor(level)
        if not is_logged and self._ring is None:
            return
        limit = self._limit(event, level, facts.get("loop"))
        if limit is not None:
            left_out = limit.admit(self._clock.now())
            if left_out is None:
                return
            facts = {**facts, "left_out": left_out} if left_out else facts
        if self.server:
            facts = {**facts, "server": self.server}
        if self._ring is not None:
            self._ring.add(self._clock.wall(), event, facts)
        if is_logged:
            _write(logger, level, event, facts)

    def _pass_on(self, event: str, facts: Mapping[str, object]) -> None:
        """Count an event, and show it to those that want every event, also without a line."""
        if self._counts is not None:
            self._counts[event] += 1
        if self._health is not None:
            self._health.note(self._clock.wall(), event, facts)
        if self._instead is not None:
            self._instead.note(event, **facts)

    def _limit(self, event: str, level: int, loop: object) -> "LineLimit | None":
        """Return the limit of an event; None: each one is logged."""
        if event in _LIMITED_BEFORE or event.startswith("audit."):
            return None
        limit = self._limits.get((event, loop))
        if limit is None:
            most = 1 if event in REPEATING else LINES
            seconds = REPEAT_SECONDS if event in REPEATING or level >= logging.WARNING else 1.0
            limit = self._limits[event, loop] = LineLimit(most, seconds, partial(note_left_out, self, event))
        return limit


def note_left_out(observer: Observer, event: str, count: int) -> None:
    """Report how many lines of an event were left out."""
    observer.note(LEFT_OUT, of=event, count=count)


class LineLimit:
    """A limit of lines in some seconds, and the number of lines that were left out since the last line.

    If no further line comes for as long again, `report` is called with that number.
    """

    __slots__ = ("_began", "_is_due", "_lines", "_most", "_report", "_seconds", "full_until", "left_out")

    def __init__(self, most: int, seconds: float, report: Callable[[int], None]) -> None:
        self._most = most
        self._seconds = seconds
        self._report = report
        self._began = -seconds
        self._lines = 0
        self._is_due = False
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
            self._report_later()
        left_out, self.left_out = self.left_out, 0
        return left_out

    def _report_later(self) -> None:
        """Report what will be left out. A thread without a loop cannot: then the next line has the number."""
        if not self._is_due:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().call_later(2 * self._seconds, self._report_now)
                self._is_due = True

    def _report_now(self) -> None:
        self._is_due = False
        left_out, self.left_out = self.left_out, 0
        if left_out:
            self._report(left_out)


def _write(logger: logging.Logger, level: int, event: str, facts: Mapping[str, object]) -> None:
    error = facts.get("error")
    line = _EventText(event, facts)
    structured = {"event": event, "facts": facts}
    if event in TRACED and isinstance(error, BaseException):
        LOGGER.handle(_traced(level, str(line), error, structured))
    else:
        # Not `logger.log`, which looks for the caller in the stack: it is always this function.
        logger.handle(
            logger.makeRecord(logger.name, level, __file__, 0, "%s", (line,), None, extra=structured)
        )


class _EventText:
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
    # Formatters use this text instead of making their own.
    lines, most = shortened(tracebacks.text(error), _TRACEBACK).splitlines(), _TRACEBACK_LINES // 2
    if len(lines) > 2 * most:
        lines[most:-most] = [f"… {len(lines) - 2 * most} lines are left out …"]
    record.exc_text = "\n".join(f"  | {escaped(line)}" for line in lines)
    return record


def _plain(value: object) -> str:
    """Return a value for a log line. It is quoted if it contains a space, a quote, a backslash or an equals sign."""
    text = shortened(f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value))
    quoted = escaped(text.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{quoted}"' if not text or _SPECIAL & set(text) else quoted


def shortened(text: str, most: int = TEXT) -> str:
    """Return a text without its middle if it is long: a client may have chosen it."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters are left out … {text[-half:]}"


def escaped(text: str) -> str:
    """Return a text without characters that control a terminal or end a line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
