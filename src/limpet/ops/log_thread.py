"""A handler of log records that never blocks its caller: a thread writes the lines.

A log can block: its pipe is full because the program that reads it has stopped, or a terminal was paused. The event
loop must not wait for it. So records become lines in the thread of their caller, and the lines wait for the writing
thread, up to a limit of bytes. Lines above it are dropped and counted; the next line that has room says how many
(`log.dropped`).

Lines of other libraries are limited too, because clients can cause some of them: warnings of asyncio about TLS, for
example. Those of Limpet have their limits before they come here (`log.py`).
"""

import contextlib
import io
import logging
import os
import select
import threading
from collections import deque
from functools import partial
from typing import Final, TextIO

from typing_extensions import override

from limpet.ops.log import FAILURES, LOGGER, REPEAT_SECONDS, LineLimit
from limpet.ports import SystemClock

MOST_BYTES: Final = 1 << 20
"""Bytes of lines that wait for the thread."""
_PAUSE_SECONDS: Final = 0.1
"""Seconds that the thread waits after a write: the lines of this time are one write. A thread that waits for the
interpreter's lock is woken by each callback of the event loop until it has it. So a wake-up for each of the
100 lines of a second took 7 % of the processor time of plain calls (2 of 28 µs). The pause ends when a quarter of
`MOST_BYTES` waits, so that no burst is dropped while the log can be written."""
_LAST_SECONDS: Final = 2.0
"""Seconds that the end of the process waits for the last lines."""


class ThreadedHandler(logging.Handler):
    """Writes to a stream, in a thread that begins with the first line."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        try:
            self._descriptor: int | None = stream.fileno()
        except (OSError, ValueError, io.UnsupportedOperation):
            self._descriptor = None
        self._now = SystemClock().now
        self._changed = threading.Condition()
        self._hurry = False
        """True while a caller waits for the lines."""
        self._due = 1
        """Bytes that wake the thread: one, or more in a pause."""
        self._lines: deque[str] = deque()
        self._bytes = 0
        """Of the lines that wait, and of those that are being written."""
        self.dropped: int = 0
        """Lines that were dropped since the last one that had room."""
        self._process = 0
        """The process that has the thread: a fork has none."""
        self._limits: dict[tuple[str, int], LineLimit] = {}

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Let the lines of a record wait for the thread, or drop them."""
        if not self._admits(record):
            return
        try:
            line = f"{self.format(record)}\n"
        except Exception:  # noqa: BLE001 - as every handler does
            self.handleError(record)
            return
        with self._changed:
            self._begin()
            if self._bytes + len(line) > MOST_BYTES:
                self.dropped += 1
                return
            if self.dropped:
                dropped, self.dropped = self.dropped, 0
                self._add(f"{self.format(_noted('log.dropped', count=dropped))}\n")
            self._add(line)
            if self._bytes >= self._due:
                self._changed.notify_all()

    def _admits(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or record.name.partition(".")[0] == LOGGER.name:
            return True
        kind = record.name, record.levelno
        limit = self._limits.get(kind)
        if limit is None:
            report = partial(self._report, record.name)
            limit = self._limits[kind] = LineLimit(FAILURES, REPEAT_SECONDS, report)
        left_out = limit.admit(self._now())
        if left_out:
            self._report(record.name, left_out)
        return left_out is not None

    def _report(self, name: str, count: int) -> None:
        self.emit(_noted("log.left_out", of=name, count=count))

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._bytes += len(line)

    def _begin(self) -> None:
        """Start the thread, if this process has none."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._lines.clear()
            self._bytes = 0
            threading.Thread(target=self._run, name="limpet-log", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._due = 1
                self._changed.wait_for(lambda: self._lines)
                text = "".join(self._lines)
                self._lines.clear()
            # Without a reader there is no other place for the lines.
            with contextlib.suppress(OSError, ValueError):
                self._write(text)
            with self._changed:
                self._bytes -= len(text)
                self._hurry = self._hurry and self._bytes > 0
                self._changed.notify_all()
                self._due = MOST_BYTES // 4
                self._changed.wait_for(
                    lambda: self._hurry or self._bytes >= self._due, timeout=_PAUSE_SECONDS
                )

    def _write(self, text: str) -> None:
        """Write text. It waits for the reader of the log.

        Not with the stream if it has a descriptor: a thread that blocks in it would keep its lock, and the end of the
        process needs it.
        """
        if self._descriptor is None:
            self._stream.write(text)
            self._stream.flush()
            return
        rest = memoryview(text.encode(errors="backslashreplace"))
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])

    @override
    def flush(self) -> None:
        """Wait until all lines are written, but not for long."""
        with self._changed:
            if self._process == os.getpid() and self._bytes:
                self._hurry = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: not self._bytes, timeout=_LAST_SECONDS)


def _noted(event: str, **facts: object) -> logging.LogRecord:
    """Return the record of an event of the log itself."""
    text = " ".join([event, *(f"{name}={value}" for name, value in facts.items())])
    return LOGGER.makeRecord(
        LOGGER.name, logging.WARNING, __file__, 0, text, (), None, extra={"event": event, "facts": facts}
    )
