"""A file descriptor that threads read and write, with back-pressure.

Why threads and not the pipe transports of the event loop: those need non-blocking mode. That mode belongs to the open
file, so every process that shares the file gets it too (a terminal, a log behind `2>&1`). They also refuse regular
files. Threads work for every descriptor on every system. They are daemons: a silent sender or a stuck reader does not
delay the end of the process.
"""

import asyncio
import os
import queue
import select
import threading
from collections import deque
from typing import Final

CHUNK: Final = 64 * 1024
AHEAD: Final = 4
"""Chunks that are read in advance."""
PENDING: Final = 256 * 1024
"""Bytes that may be unwritten before `write` waits."""


class PipeReader:
    """Reads chunks of bytes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._credits = threading.Semaphore(AHEAD)
        self._chunks: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        threading.Thread(target=self._pump, name="limpet-reader", daemon=True).start()

    async def read(self) -> bytes:
        """Return the next chunk; b"" at the end, also when called again."""
        while not self._chunks:
            self._arrived.clear()
            await self._arrived.wait()
        if not self._chunks[0]:
            return b""
        self._credits.release()
        return self._chunks.popleft()

    def _pump(self) -> None:
        chunk = b"more"
        while chunk:
            self._credits.acquire()
            chunk = _read(self._fd)
            try:
                self._loop.call_soon_threadsafe(self._take, chunk)
            except RuntimeError:
                # The event loop is closed: no task reads any more.
                return

    def _take(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._arrived.set()


class PipeWriter:
    """Writes messages in the order of the calls. Unwritten bytes are limited: beyond the limit, `write` waits."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        self._pending = 0
        self._writing = False
        self._jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._turns = asyncio.Lock()
        self._moved = asyncio.Event()
        self.broke: asyncio.Event = asyncio.Event()
        """Set when the other side has closed its end."""
        threading.Thread(target=self._pump, name="limpet-writer", daemon=True).start()

    @property
    def broken(self) -> bool:
        """True if the other side has closed its end."""
        return self.broke.is_set()

    async def write(self, data: bytes) -> None:
        """Queue bytes for writing; wait in turn while too many are unwritten.

        Raises:
            BrokenPipeError: the other side has closed its end.
        """
        async with self._turns:
            while self._pending >= PENDING and not self.broken:
                await self._next_move()
            if self.broken:
                raise BrokenPipeError("the other side no longer reads")
            self._parts.append(data)
            self._pending += len(data)
            if not self._writing:
                self._start()

    async def flush(self, seconds: float) -> bool:
        """Wait until everything is written; False if that takes longer, or the other side has closed its end."""
        try:
            async with asyncio.timeout(seconds):
                while self._pending and not self.broken:
                    await self._next_move()
        except TimeoutError:
            return False
        return not self.broken

    def give_up(self) -> None:
        """Treat the other side as closed: waiting writers fail."""
        self.broke.set()
        self._moved.set()

    def close(self) -> None:
        """Let the thread end when it has written everything."""
        self._jobs.put(b"")

    async def _next_move(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def _start(self) -> None:
        self._writing = True
        self._jobs.put(b"".join(self._parts))
        self._parts.clear()

    def _pump(self) -> None:
        while data := self._jobs.get():
            broken = not _write_all(self._fd, data)
            try:
                self._loop.call_soon_threadsafe(self._wrote, len(data), broken)
            except RuntimeError:
                return

    def _wrote(self, size: int, broken: bool) -> None:  # noqa: FBT001 - the loop passes it by position
        self._pending -= size
        self._writing = False
        if broken:
            self.broke.set()
        if self._parts and not self.broken:
            self._start()
        self._moved.set()


def _read(fd: int) -> bytes:
    while True:
        try:
            return os.read(fd, CHUNK)
        except BlockingIOError:
            # Another process that shares the open file has made it non-blocking.
            select.select([fd], [], [])
        except OSError:
            return b""


def _write_all(fd: int, data: bytes) -> bool:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            select.select([], [fd], [])
        except OSError:
            return False
    return True
