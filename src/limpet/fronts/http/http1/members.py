"""The open connections of a server: their limit, the tasks of their requests, and the headers of every answer.

When all places are in use, a new connection gets the place of an idle one: of the address that has the most idle ones
(`core/crowding.py`). If none is idle, the new connection gets 503 and is closed: a refused client can react, a client
that waits in the kernel's queue cannot. When nearly all memory is in use, idle connections close too, and those whose
request is not complete: so a client that uses little gets the room of an address that uses much. When many connections
are being refused, further ones are closed without an answer: a flood must not use up the descriptors of the process.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from limpet.core.crowding import Crowd
from limpet.core.ledger import WORK, Account, Ledger
from limpet.engine.audit import Reason
from limpet.fronts.http.decide.started_call import Unfinished
from limpet.fronts.http.http1.answers import EVENT_LINES, JSON_LINES, Heads
from limpet.fronts.http.http1.connection_charge import CONNECTION_BYTES
from limpet.fronts.http.http1.deadlines import Deadlines
from limpet.fronts.http.read.addresses import LOCAL, counted
from limpet.fronts.http.read.request import Channel, RawRequest
from limpet.ports import Observer, SilentObserver
from limpet.transports.memory import LEAST

if TYPE_CHECKING:
    from limpet.fronts.http.http1.connection import HttpConnection
    from limpet.fronts.http.http1.handshakes import Handshake

REFUSED: Final = 128
"""How many connections over the limit get an answer at the same time."""

Serve = Callable[[RawRequest, Channel], Unfinished]


def _unreported(reason: Reason, address: str | None) -> None:
    """Report nothing: these connections belong to no front."""


def date_of(wall: float) -> str:
    """Return a time as HTTP writes it (RFC 9110, 5.6.7). An import of `email.utils` would load ten modules."""
    return "{0}, {2:0>2} {1} {4} {3} GMT".format(*datetime.fromtimestamp(wall, UTC).ctime().split())


class Members:
    """All connections of a server."""

    def __init__(
        self,
        serve: Serve,
        deadlines: Deadlines,
        refused: Callable[[Reason, str | None], None] = _unreported,
        *,
        observer: Observer = SilentObserver(),  # noqa: B008
        connections: int | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        """`connections`: how many are served at once; by default as many as the limits allow."""
        self._ledger = ledger or Ledger(deadlines.limits.memory or LEAST)
        self.serve: Serve = serve
        self.refused: Callable[[Reason, str | None], None] = refused
        """Reports the reason of a refusal and the address of the connection, for the audit."""
        self.observer: Observer = observer
        self.deadlines: Deadlines = deadlines
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._context = copy_context()
        self.connections: dict[HttpConnection | Handshake, None] = {}
        """All of them, also those that are being refused, in the order in which they came."""
        self._refused: set[HttpConnection | Handshake] = set()
        """Those that are over the limit."""
        self._crowd: Crowd[HttpConnection | Handshake] = Crowd(
            self._idle, -1.0 if deadlines.is_hurried else 0.0
        )
        self._most = deadlines.limits.connections if connections is None else connections
        self.tasks: set[asyncio.Task[None]] = set()
        """The tasks of requests that take longer than a pass of the loop."""
        self.leaving: bool = False
        """The server stops: every answer asks its client to open a new connection."""
        self.common: bytes = b""
        """The header lines of every answer: the date."""
        self.json_heads: Heads = Heads(JSON_LINES, b"")
        self.event_heads: Heads = Heads(EVENT_LINES, b"")

    def context(self) -> Context:
        """Return the context variables of the server, for work that serves later requests of a connection.

        asyncio runs a callback in a copy of the context in which it was registered. A callback that reads the
        connection or serves the next request must not have the context of the present request: an author's code has set
        variables there.
        """
        return self._context.copy()

    def account(self, client: str | None) -> Account:
        """Return the account of an address."""
        return self._ledger.account(counted(client or LOCAL))

    @property
    def pressed(self) -> int:
        """The bytes that clients use of the reserve of the process; not above 0 if they use none of it."""
        return self._ledger.pressed

    @property
    def reserve(self) -> int:
        """The bytes that new work may not use."""
        return self._ledger.reserve

    def set_date(self, wall: float) -> None:
        """Set the date that answers carry."""
        self.common = b"date: %b\r\n" % date_of(wall).encode("ascii")
        self.json_heads = Heads(JSON_LINES, self.common)
        self.event_heads = Heads(EVENT_LINES, self.common)

    def admit(self, connection: "HttpConnection | Handshake", *, has_room: bool = True) -> bool:
        """Count a new connection; False: there are too many, or no memory for it. Call `leave` in both cases."""
        is_over = not has_room or (self._is_full and not self._make_room())
        self.connections[connection] = None
        if is_over:
            self._refused.add(connection)
        return not is_over

    @property
    def free(self) -> int:
        """The number of places for new connections; not above 0 if all are in use."""
        return self._most - (len(self.connections) - len(self._refused))

    @property
    def _is_full(self) -> bool:
        return self.free <= 0

    def _make_room(self) -> bool:
        """Close an idle connection; False: none is idle."""
        while (idle := self._crowd.next(self.deadlines.now)) is not None:
            if idle in self.connections and idle.is_spare:
                self._close(idle)
                return True
        return False

    def relieve(self) -> None:
        """Close idle and unfinished connections while the last sixteenth of the memory is in use.

        The address that uses most is first.

        Those of an address for whose work there is room stay.
        """
        ledger = self._ledger
        free = ledger.total - ledger.used
        short = ledger.reserve // 2 - free
        if short <= 0:
            return
        spare = [(self.account(one.client).used, one) for one in self.connections if one.is_spare]
        heavy = sorted((one for one in spare if one[0] << WORK > free), key=itemgetter(0), reverse=True)
        for _, one in heavy[: short // CONNECTION_BYTES + 1]:
            self._close(one)

    def _close(self, idle: "HttpConnection | Handshake") -> None:
        self.refused("connections", idle.client)
        self.leave(idle)
        idle.abort()

    def _idle(self) -> "Iterator[tuple[str, HttpConnection | Handshake]]":
        spare = [one for one in self.connections if one not in self._refused and one.is_spare]
        for connection in sorted(spare, key=lambda one: (not one.is_idle, one.since)):
            yield counted(connection.client or LOCAL), connection

    @property
    def has_many_refused(self) -> bool:
        """True if so many connections are being refused that the next ones get no answer."""
        return len(self._refused) > REFUSED

    def leave(self, connection: "HttpConnection | Handshake") -> None:
        """Forget a connection that has ended; if it is not known any more, do nothing."""
        if connection not in self.connections:
            return
        del self.connections[connection]
        self._refused.discard(connection)
