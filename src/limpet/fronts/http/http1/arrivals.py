"""Connections that were accepted and have not begun: their addresses take turns.

asyncio and uvloop accept one connection in a pass of the loop, the oldest one. When clients keep the loop busy, a pass
takes long, and a new client would wait for as many passes as connections came before it. So more are accepted here,
which costs little, and begin in the same and in the next passes: a few in each, because a flood of new connections must
not make each pass long for the clients that are there already; and one of each address after the other, because a
client must not wait for the flood of another one.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

from limpet.fronts.http.http1.members import Members
from limpet.fronts.http.read.addresses import LOCAL, counted

_AT_ONCE: Final = 7
"""Connections that begin in a pass, besides the one that the loop has accepted itself."""
_MOST: Final = 4_096
_LEAST: Final = 32
"""Connections that wait here: as many as there are free places, within these limits. Each has a descriptor, and is
not counted yet."""

Begin = Callable[[socket.socket, object], object]
"""Begins a connection with this peer."""


class Arrivals:
    """Accepts from one listening socket, which does not block."""

    def __init__(self, sock: socket.socket, begin: Begin, members: Members) -> None:
        self._sock = sock
        self._begin = begin
        self._members = members
        self._waiting: dict[str, deque[tuple[socket.socket, object]]] = {}
        """By address. The address whose turn is next is the first."""
        self._count = 0
        self._next: asyncio.Handle | None = None
        self._is_closed = False

    def look(self) -> None:
        """Accept the connections that wait at the socket, and begin some of them."""
        most = max(_LEAST, min(_MOST, self._members.free))
        while self._count < most and not self._is_closed:
            try:
                accepted, peer = self._sock.accept()
            except OSError:
                # None waits, it has left, or no descriptor is free.
                break
            address = counted(peer[0] if isinstance(peer, tuple) else LOCAL)
            self._waiting.setdefault(address, deque()).append((accepted, peer))
            self._count += 1
        self._start(_AT_ONCE)
        if self._count and self._next is None:
            self._next = self._members.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._next = None
        self.look()

    def _start(self, number: int) -> None:
        for _ in range(min(number, self._count)):
            address, queue = next(iter(self._waiting.items()))
            del self._waiting[address]
            accepted = queue.popleft()
            if queue:
                self._waiting[address] = queue
            self._count -= 1
            self._begin(*accepted)

    def close(self) -> None:
        """Accept no more connections, and begin those that wait."""
        self._is_closed = True
        self._start(self._count)
