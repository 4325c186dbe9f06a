"""A transport that only records, for connections without sockets."""

import asyncio
from typing import Any

from typing_extensions import override


class Paper(asyncio.Transport):
    """A transport that takes everything."""

    def __init__(
        self,
        peer: object = ("127.0.0.1", 50_000),
        address: object = ("127.0.0.1", 8000),
        **extra: object,
    ) -> None:
        super().__init__({"sockname": address, "peername": peer, **extra})
        self.written = b""
        self.paused = False
        self._closed = False

    @override
    def write(self, data: Any) -> None:
        self.written += bytes(data)

    @override
    def is_closing(self) -> bool:
        return self._closed

    @override
    def close(self) -> None:
        self._closed = True

    @override
    def abort(self) -> None:
        self._closed = True

    @override
    def can_write_eof(self) -> bool:
        return True

    @override
    def write_eof(self) -> None:
        """Do nothing more: the test reads the written bytes."""

    @override
    def pause_reading(self) -> None:
        self.paused = True

    @override
    def resume_reading(self) -> None:
        self.paused = False

    @override
    def get_write_buffer_size(self) -> int:
        return 0

    @property
    def statuses(self) -> list[int]:
        return [int(part[:3]) for part in self.written.split(b"HTTP/1.1 ")[1:]]


async def settled() -> None:
    """Let every task that is ready run until nothing moves."""
    for _ in range(20):
        await asyncio.sleep(0)


async def quiet(paper: Paper) -> None:
    """Let every task run until nothing more is written."""
    before = -1
    while before != len(paper.written):
        before = len(paper.written)
        await settled()
