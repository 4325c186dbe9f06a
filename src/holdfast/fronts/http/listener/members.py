"""The open connections of a server: their limit, the tasks of their requests, and the headers of every answer.

A connection over a limit gets 503 and is closed: a refused client can react, a client that waits in the kernel's
queue cannot. When many connections are being refused, further ones are closed without an answer: a flood must not use up
the descriptors of the process.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from email.utils import formatdate
from typing import TYPE_CHECKING, Final

from holdfast.engine.audit import Reason
from holdfast.fronts.http.addresses import Addresses, counted
from holdfast.fronts.http.listener.deadlines import Deadlines
from holdfast.fronts.http.listener.heads import EVENT_LINES, JSON_LINES, Heads
from holdfast.fronts.http.request import Channel, RawRequest
from holdfast.fronts.http.started import Unfinished

if TYPE_CHECKING:
    from holdfast.fronts.http.listener.handshakes import Handshake
    from holdfast.fronts.http.listener.protocol import HttpProtocol

REFUSED: Final = 128
"""How many connections over a limit get an answer at the same time."""

Serve = Callable[[RawRequest, Channel], Unfinished]


def _unreported(reason: Reason, address: str | None) -> None:
    """Report nothing: these connections belong to no front."""


class Members:
    """All connections of a server."""

    def __init__(
        self,
        serve: Serve,
        deadlines: Deadlines,
        proxies: Sequence[str] = (),
        refused: Callable[[Reason, str | None], None] = _unreported,
        *,
        connections: int | None = None,
    ) -> None:
        """`connections`: how many are served at once; by default as many as the limits allow."""
        self.serve: Serve = serve
        self.refused: Callable[[Reason, str | None], None] = refused
        """Reports the reason of a refusal and the address of the connection, for the audit."""
        self.deadlines: Deadlines = deadlines
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._context = copy_context()
        self.connections: set[HttpProtocol | Handshake] = set()
        """All of them, also those that are being refused."""
        self._refused: set[HttpProtocol | Handshake] = set()
        """Those that are over a limit."""
        self._most = deadlines.limits.connections if connections is None else connections
        self.tasks: set[asyncio.Task[None]] = set()
        """The tasks of requests that take longer than a turn of the loop."""
        self.leaving: bool = False
        """The server stops: every answer asks its client to open a new connection."""
        self.common: bytes = b""
        """The header lines of every answer: the date."""
        self.json_heads: Heads = Heads(JSON_LINES, b"")
        self.event_heads: Heads = Heads(EVENT_LINES, b"")
        self._proxies = Addresses(proxies) if proxies else None
        self._addresses: Counter[str] = Counter()

    def context(self) -> Context:
        """Return the context variables of the server, for work that serves later requests of a connection.

        asyncio runs a callback in a copy of the context in which it was registered. A callback that reads the connection or
        serves the next request must not have the context of the present request: an author's code has set variables there.
        """
        return self._context.copy()

    def set_date(self, wall: float) -> None:
        """Set the date that answers carry."""
        self.common = b"date: %b\r\n" % formatdate(wall, usegmt=True).encode("ascii")
        self.json_heads = Heads(JSON_LINES, self.common)
        self.event_heads = Heads(EVENT_LINES, self.common)

    def admit(self, connection: "HttpProtocol | Handshake") -> bool:
        """Count a new connection; False: there are too many. Call `leave` in both cases."""
        address = self._counted(connection.client)
        is_over = len(self.connections) - len(self._refused) >= self._most or (
            address is not None and self._addresses[address] >= self.deadlines.limits.connections_per_address
        )
        self.connections.add(connection)
        if is_over:
            self._refused.add(connection)
        elif address is not None:
            self._addresses[address] += 1
        return not is_over

    @property
    def has_many_refused(self) -> bool:
        """True if so many connections are being refused that the next ones get no answer."""
        return len(self._refused) > REFUSED

    def leave(self, connection: "HttpProtocol | Handshake") -> None:
        """Forget a connection that has ended; if it is not known any more, do nothing."""
        if connection not in self.connections:
            return
        self.connections.remove(connection)
        if connection in self._refused:
            self._refused.remove(connection)
        elif (address := self._counted(connection.client)) is not None:
            self._addresses[address] -= 1
            if self._addresses[address] <= 0:
                del self._addresses[address]

    def _counted(self, address: str | None) -> str | None:
        """Return the name under which an address is limited. Without known proxies none is: many clients may share one."""
        if self._proxies is None or address is None or self._proxies.is_proxy(address):
            return None
        return counted(address)
