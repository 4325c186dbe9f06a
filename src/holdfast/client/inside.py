"""A server in this process as a pipe: every message is encoded and decoded as on any other connection."""

import asyncio
from typing import Final
from weakref import WeakKeyDictionary

from holdfast.core.lifecycle import Input
from holdfast.engine.engine import Engine
from holdfast.errors import Broken
from holdfast.fronts.duplex import Duplex

BEHIND: Final = 256
"""Messages that wait to be read before the server has to wait."""
_GUESTS: Final[WeakKeyDictionary[Engine, int]] = WeakKeyDictionary()
"""How many pipes lead to an engine that a pipe started: the last one stops it, so that the next may
start it on another loop, as tests do."""


class InsidePipe:
    """The client's end of a pair in memory."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._duplex = Duplex(engine, self._deliver)
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue(BEHIND)
        self._closed = False
        self._is_guest = False

    def __repr__(self) -> str:
        return f"<InsidePipe {self._duplex!r}>"

    async def start(self) -> None:
        """Start the server, if nobody has."""
        if not self._engine.started or self._engine in _GUESTS:
            _GUESTS[self._engine] = _GUESTS.get(self._engine, 0) + 1
            self._is_guest = True
        await self._engine.ensure_started()

    async def read(self) -> bytes:
        """Return the server's next message."""
        return b"" if self._closed else await self._arrived.get()

    async def write(self, message: bytes) -> None:
        """Give a message to the server.

        Raises:
            Broken: this end was closed.
        """
        if self._closed:
            raise Broken("the connection was closed")
        await self._duplex.take(message)

    async def aclose(self) -> None:
        """Hang up: what runs may finish, then the session is closed."""
        if self._closed:
            return
        self._closed = True
        self._duplex.gone.set()
        await self._duplex.hang_up(Input.DELETED)
        # Whoever reads learns of the end; a full queue has no reader.
        if not self._arrived.full():
            self._arrived.put_nowait(b"")
        await self._leave()

    async def _leave(self) -> None:
        """Stop the server if we are the last of those for whom it was started."""
        if not self._is_guest:
            return
        self._is_guest = False
        _GUESTS[self._engine] -= 1
        if not _GUESTS[self._engine]:
            del _GUESTS[self._engine]
            await self._engine.aclose()

    async def _deliver(self, message: bytes) -> None:
        if self._closed:
            raise ConnectionResetError
        await self._arrived.put(message)
