"""How log records become lines on stderr: readable text on a terminal, one JSON object per line elsewhere.

Only the command line installs a handler (`log_to_stderr`). An application that mounts `asgi()` or runs a `Server`
itself keeps its own `logging` set-up: records of the logger `limpet` reach its handlers, with the event's name and
facts as attributes (`record.event`, `record.facts`), so that any formatter can use them; `HumanFormatter` and
`JsonFormatter` can be used there too.
"""

import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

import msgspec

from limpet.ops.log import shortened
from limpet.ops.log_thread import ThreadedHandler
from limpet.ops.printable import printable_json

LogFormat = Literal["auto", "human", "json"]

_RESET: Final = "\x1b[0m"
_BOLD: Final = "\x1b[1m"
_DIM: Final = "\x1b[2m"
_COLOURS: Final = {
    logging.DEBUG: _DIM,
    logging.INFO: "\x1b[32m",
    logging.WARNING: "\x1b[33m",
    logging.ERROR: "\x1b[31m",
    logging.CRITICAL: "\x1b[1;31m",
}
_RESERVED: Final = frozenset({"time", "level", "logger", "event", "message", "traceback"})
"""Members of a JSON line that a fact cannot replace."""
_OURS: Final = "limpet"
_PLAIN: Final = (int, float, type(None))


class HumanFormatter(logging.Formatter):
    """One line for people: the time, the level, the event and its facts."""

    def __init__(self, *, coloured: bool = False) -> None:
        super().__init__()
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the traceback below it if there is one."""
        moment = datetime.fromtimestamp(record.created).astimezone()
        time = f"{moment:%H:%M:%S}.{int(record.msecs):03d}"
        level = f"{record.levelname:<8}"
        event: str | None = getattr(record, "event", None)
        text = record.getMessage()
        if event is None and record.name != _OURS:
            text = f"{record.name}: {text}"
        if self._coloured:
            time, level = f"{_DIM}{time}{_RESET}", f"{_COLOURS.get(record.levelno, '')}{level}{_RESET}"
            if event is not None:
                text = f"{_BOLD}{event}{_RESET}{text.removeprefix(event)}"
        return "\n".join((f"{time} {level} {text}", *_traceback(self, record)))


class JsonFormatter(logging.Formatter):
    """One JSON object per line, for a program."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object: time, level, logger, then the event and its facts, or the message."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        event: str | None = getattr(record, "event", None)
        if event is None:
            line["message"] = record.getMessage()
        else:
            facts: Mapping[str, object] = getattr(record, "facts", {})
            line["event"] = event
            line |= {
                f"{name}_" if name in _RESERVED else name: _value(value) for name, value in facts.items()
            }
        if lines := _traceback(self, record):
            line["traceback"] = "\n".join(lines)
        return printable_json(msgspec.json.encode(line).decode())


def log_to_stderr(level: int | None = None, form: LogFormat = "auto", stream: TextIO | None = None) -> None:
    """Send log records to stderr.

    Without `level`, lines of Limpet from INFO on and lines of other libraries from WARNING on; with it, lines of both
    from that level on. `auto` is `human` on a terminal and `json` elsewhere.
    """
    stream = stream or sys.stderr
    handler = ThreadedHandler(stream)
    if form == "json" or (form == "auto" and not stream.isatty()):
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(HumanFormatter(coloured=is_coloured(stream)))
    logging.basicConfig(handlers=[handler], level=logging.WARNING if level is None else level)
    logging.getLogger(_OURS).setLevel(logging.INFO if level is None else level)


def write_last_lines() -> None:
    """Wait until the lines on stderr are written, but not for long: `os._exit` ends their thread."""
    for handler in logging.getLogger().handlers:
        # The handler of an author may block without end.
        if isinstance(handler, ThreadedHandler):
            handler.flush()


def is_coloured(stream: TextIO) -> bool:
    """True if a file gets colours: a terminal that knows them, or every file with `FORCE_COLOR`.

    With `NO_COLOR` no file.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    if record.exc_info and not record.exc_text:
        record.exc_text = formatter.formatException(record.exc_info)
    return record.exc_text.splitlines() if record.exc_text else []


def _value(value: object) -> object:
    """Return a fact for JSON: numbers and texts unchanged, an error by its type and text."""
    if isinstance(value, BaseException):
        return _text(shortened(f"{type(value).__name__}: {value}"))
    return value if isinstance(value, _PLAIN) else _text(shortened(str(value)))


def _text(text: str) -> str:
    """Return a text that UTF-8 can encode."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
