"""What operators read: every event as one line of the standard library's logging.

Logger `holdfast`; events of security (`audit.*`) have the logger `holdfast.audit`, so that they can be sent elsewhere.
No session id, payload or token is ever among the facts; what a client may have worded itself is escaped, so that no
line can look like another and no value like two.
"""

import logging
import traceback
from collections.abc import Mapping
from typing import Final

from holdfast.ports import Clock, SystemClock

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
    "notification.dropped": logging.WARNING,
    "exchange.adopted": logging.WARNING,
    "exchange.reaped": logging.WARNING,
    "replica.lease_lost": logging.WARNING,
    "lease.not_renewed": logging.WARNING,
    "loop.failed": logging.ERROR,
    "orphan.left": logging.WARNING,
    "request.dropped": logging.WARNING,
    "task.reaped": logging.WARNING,
    "task.unreadable": logging.WARNING,
    "store.evicts": logging.WARNING,
    "store.not_ready": logging.WARNING,
    "store.poisoned": logging.WARNING,
    "store.rebased": logging.WARNING,
    "store.refused": logging.WARNING,
    "store.unreachable": logging.WARNING,
    "forward.unsealed": logging.WARNING,
    "work.failed": logging.ERROR,
    "hosted.lifespan_failed": logging.ERROR,
    "hosted.run_failed": logging.WARNING,
    "hosted.run_lingers": logging.WARNING,
    "upstream.dropped": logging.WARNING,
    "upstream.ended": logging.WARNING,
    "upstream.not_restored": logging.WARNING,
    "upstream.refused": logging.WARNING,
    "upstream.stderr": logging.INFO,
    "upstream.unreachable": logging.WARNING,
    "session.opened": logging.INFO,
    "session.detached": logging.INFO,
    "session.resumed": logging.INFO,
    "session.closed": logging.INFO,
}
"""Events that are not on this list are for debugging."""
TRACED: Final = frozenset({"handler.failed", "listener.failed", "notification.failed", "route.failed"})
"""Events whose cause is an author's code: their traceback is worth having."""


_SPECIAL: Final = frozenset(' ="\\')
REPEATING: Final = frozenset(
    {
        "lease.not_renewed",
        "loop.failed",
        "orphan.left",
        "store.not_ready",
        "store.refused",
        "store.unreachable",
        "upstream.dropped",
        "upstream.refused",
        "upstream.unreachable",
    }
)
"""Events that one cause can repeat very often. Each is logged once in `REPEAT_SECONDS`, with the number of lines left out."""
REPEAT_SECONDS: Final = 10.0
LINES_PER_SECOND: Final = 100
"""How many lines of level INFO are logged in a second. Clients cause them: a flood of sessions must not fill the disk."""


class LogObserver:
    """Writes each event with its facts: `handler.failed session=1f0c… method=tools/call …`."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._repeats: dict[tuple[str, object], tuple[float, int]] = {}
        """By event and loop: when the last line was written, and how many were left out since."""
        self._second, self._lines, self._left_out = 0, 0, 0
        """The present second, its lines of level INFO, and how many were left out since the last one."""

    def note(self, event: str, /, **facts: object) -> None:
        """Log one line, and the traceback where an author's code failed."""
        logger, level = LOGGER, LEVELS.get(event, logging.DEBUG)
        if event.startswith("audit."):
            logger, level = AUDIT, logging.WARNING
        if not logger.isEnabledFor(level):
            return
        if event in REPEATING:
            name, now = (event, facts.get("loop")), self._clock.now()
            written, left_out = self._repeats.get(name, (-REPEAT_SECONDS, 0))
            if now - written < REPEAT_SECONDS:
                self._repeats[name] = written, left_out + 1
                return
            self._repeats[name] = now, 0
            facts = {**facts, "left_out": left_out} if left_out else facts
        elif level == logging.INFO:
            if not self._has_room():
                self._left_out += 1
                return
            if self._left_out:
                facts, self._left_out = {**facts, "left_out": self._left_out}, 0
        error = facts.get("error")
        traced = error if event in TRACED and isinstance(error, BaseException) else None
        words = [event, *(f"{name}={_plain(value)}" for name, value in facts.items())]
        structured = {"event": event, "facts": facts}
        if traced is None:
            logger.log(level, "%s", " ".join(words), extra=structured)
        else:
            LOGGER.handle(_traced(level, " ".join(words), traced, structured))

    def _has_room(self) -> bool:
        """Count a line of level INFO. False: this second has all its lines."""
        second = int(self._clock.now())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        return self._lines <= LINES_PER_SECOND


def _traced(
    level: int, text: str, error: BaseException, structured: Mapping[str, object]
) -> logging.LogRecord:
    """Return a record whose traceback cannot look like another log line: a client may have chosen the error's text."""
    cause = (type(error), error, error.__traceback__)
    record = LOGGER.makeRecord(LOGGER.name, level, __file__, 0, text, (), cause, extra=structured)
    lines = "".join(traceback.format_exception(error)).splitlines()
    # Formatters take the text that is there instead of making their own.
    record.exc_text = "\n".join(f"  | {_escaped(line)}" for line in lines)
    return record


def _plain(value: object) -> str:
    """Return a value for a log line. It is quoted if it contains a space, a quote, a backslash or an equals sign."""
    text = f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value)
    quoted = _escaped(text.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{quoted}"' if not text or _SPECIAL & set(text) else quoted


def _escaped(text: str) -> str:
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
