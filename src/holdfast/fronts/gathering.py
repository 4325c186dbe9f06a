"""Batches on a connection (2025-03-26): the answers to the requests of one array are sent as one array."""

from collections.abc import Awaitable, Callable

Send = Callable[[bytes], Awaitable[None]]


class Gathering:
    """Waits for as many terminal messages as there were requests."""

    def __init__(self, expected: int, send: Send) -> None:
        self._expected = expected
        self._send = send
        self._messages: list[bytes] = []

    async def add(self, terminal: bytes) -> None:
        """Take one terminal message; the last one sends them all."""
        self._messages.append(terminal)
        if len(self._messages) == self._expected:
            await self._send(b"[" + b",".join(self._messages) + b"]")
