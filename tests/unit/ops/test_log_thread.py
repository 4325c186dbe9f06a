"""A log that blocks: its caller goes on, lines above the limit are dropped and counted."""

import fcntl
import io
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from limpet.ops import log_thread
from limpet.ops.log import FAILURES
from limpet.ops.log_thread import ThreadedHandler
from tests.support import BOUND, wait_until


def record(text: str, name: str = "limpet", level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord(name, level, "", 0, text, (), None)


def in_time(work: Callable[[], object]) -> None:
    """Run a function that must not block."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(BOUND)
    assert not thread.is_alive()


def _small_pipe() -> tuple[int, int]:
    """Return the smallest pipe: one page. A kernel under pressure may refuse to shrink one."""
    refused: OSError | None = None
    for _ in range(100):
        reading, writing = os.pipe()
        try:
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        except OSError as error:
            refused = error
            os.close(reading)
            os.close(writing)
            time.sleep(0.05)
        else:
            return reading, writing
    assert refused is not None
    raise refused


class Pipe:
    """A pipe whose reader has stopped, and a handler that writes to it."""

    def __init__(self) -> None:
        self.reading, self._writing = _small_pipe()
        self._stream = os.fdopen(self._writing, "w")
        self.handler = ThreadedHandler(self._stream)

    def read_until(self, end: str) -> list[str]:
        """Read until a line ends with this text."""
        text = b""
        while not text.endswith(f"{end}\n".encode()):
            text += os.read(self.reading, 65_536)
        return text.decode().splitlines()

    def close(self) -> None:
        os.close(self.reading)
        with suppress(OSError):
            self._stream.close()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    one = Pipe()
    yield one
    one.close()


def test_a_full_pipe_never_blocks_the_caller_and_lines_are_dropped_and_counted(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_thread, "MOST_BYTES", 100_000)

    handler = pipe.handler
    handler.handle(record("y" * 9_999))
    wait_until(lambda: not handler._lines)

    def flood() -> None:
        for number in range(300):
            handler.handle(record(f"{number:03d} {'x' * 995}"))

    # 90,000 bytes are left for lines of 1,000.
    in_time(flood)
    assert handler.dropped == 210
    [_, *kept] = pipe.read_until(f"089 {'x' * 995}")
    assert [int(line[:3]) for line in kept] == list(range(90))
    wait_until(lambda: not handler._bytes)
    handler.handle(record("again"))
    assert pipe.read_until("again") == ["log.dropped count=210", "again"]


def test_the_end_of_a_process_does_not_wait_long_for_its_log(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_thread, "_LAST_SECONDS", 0.01)
    pipe.handler.handle(record("x" * 100_000))
    in_time(pipe.handler.flush)


def test_a_log_without_a_reader_is_given_up(pipe: Pipe) -> None:
    os.close(pipe.reading)
    pipe.reading = os.dup(0)
    for _ in range(3):
        pipe.handler.handle(record("lost"))
        wait_until(lambda: not pipe.handler._bytes)


def test_lines_of_other_libraries_are_limited_by_logger() -> None:
    out = io.StringIO()
    handler = ThreadedHandler(out)
    handler._now = lambda: 0.0
    for _ in range(FAILURES + 50):
        handler.handle(record("asyncio is busy", "asyncio"))
        handler.handle(record("an author is talkative", "author", logging.INFO))
    handler.handle(record("other", "mcp"))
    wait_until(lambda: not handler._bytes)
    lines = out.getvalue().splitlines()
    assert lines.count("asyncio is busy") == FAILURES
    assert lines.count("an author is talkative") == FAILURES + 50
    assert lines[-1] == "other"


def test_lines_that_come_soon_after_a_write_are_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_thread, "_PAUSE_SECONDS", threading.TIMEOUT_MAX)
    handler = ThreadedHandler(io.StringIO())
    written: list[str] = []
    monkeypatch.setattr(handler, "_write", written.append)
    handler.handle(record("first"))
    handler.flush()
    woken: list[None] = []
    with monkeypatch.context() as pausing:
        pausing.setattr(handler._changed, "notify_all", lambda: woken.append(None))
        for text in ("second", "third"):
            handler.handle(record(text))
            # Without the pause the line would be written in this time.
            time.sleep(0.05)
    assert not woken
    handler.flush()
    assert written == ["first\n", "second\nthird\n"]


def test_a_burst_after_a_write_is_written_before_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_thread, "_PAUSE_SECONDS", threading.TIMEOUT_MAX)
    monkeypatch.setattr(log_thread, "MOST_BYTES", 400)
    handler = ThreadedHandler(io.StringIO())
    written: list[str] = []
    monkeypatch.setattr(handler, "_write", written.append)
    handler.handle(record("first"))
    wait_until(lambda: not handler._bytes)
    for _ in range(3):
        handler.handle(record("x" * 49))
        assert handler._bytes == 50
        handler.handle(record("x" * 49))
        wait_until(lambda: not handler._bytes)
    assert [len(text) for text in written] == [6, 100, 100, 100]
    assert not handler.dropped
