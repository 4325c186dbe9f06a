"""Connections with TLS.

A handshake that is not complete counts as a connection and is charged like one, so a flood is bounded.

Over a limit the connection is closed without a handshake: an answer would cost the handshake first.
"""

import asyncio
import socket
import ssl
from typing import Final

from typing_extensions import override

from limpet.fronts.http.http1.arrivals import Arrivals
from limpet.fronts.http.http1.connection import HttpConnection
from limpet.fronts.http.http1.connection_charge import ConnectionCharge
from limpet.fronts.http.http1.members import Members
from limpet.ports import Observer
from limpet.supervision import supervise

_PAUSE: Final = 0.1
"""Seconds until the next attempt, if a connection cannot be accepted: no descriptor is free."""
_LONG: Final = 3_600.0
"""Seconds that end neither a handshake nor a close of TLS: the sweep ends them earlier, if the client is late."""


class TlsServer:
    """Accepts connections with TLS from a listening socket until `close`."""

    def __init__(
        self, sock: socket.socket, members: Members, context: ssl.SSLContext, observer: Observer
    ) -> None:
        sock.settimeout(0)
        self._arrivals = arrivals = Arrivals(
            sock, lambda accepted, peer: Handshake(members, peer).begin(accepted, context), members
        )
        self._task = supervise("handshakes", lambda: _accept(sock, members, context, arrivals), observer)
        self._task.add_done_callback(lambda _: sock.close())

    def close(self) -> None:
        """Accept no more connections."""
        self._arrivals.close()
        self._task.cancel()


async def _accept(sock: socket.socket, members: Members, context: ssl.SSLContext, arrivals: Arrivals) -> None:
    while True:
        try:
            accepted, peer = await members.loop.sock_accept(sock)
        except OSError:
            await asyncio.sleep(_PAUSE)
        else:
            Handshake(members, peer).begin(accepted, context)
            arrivals.look()


class Handshake:
    """The handshake of one connection. Afterwards an `HttpConnection` takes its place."""

    is_idle: Final = True
    is_owed: Final = False
    unsent: Final = 0
    seconds_left: Final = 0.0

    def __init__(self, members: Members, peer: object) -> None:
        self.client: str | None = peer[0] if isinstance(peer, tuple) else None
        self._members = members
        self._held = ConnectionCharge(members.account(self.client), tls=True)
        self.since: float = members.deadlines.now
        self._task: asyncio.Task[None]

    def begin(self, accepted: socket.socket, context: ssl.SSLContext) -> None:
        """Begin the handshake, or close the connection if there are too many, or no memory for it."""
        members = self._members
        if members.admit(self, has_room=self._held.begin()):
            self._task = members.loop.create_task(self._run(accepted, context))
        else:
            self.end()
            members.refused("connections", self.client)
            accepted.close()

    async def _run(self, accepted: socket.socket, context: ssl.SSLContext) -> None:
        try:
            await self._members.loop.connect_accepted_socket(
                lambda: _Secured(self._members, self),
                accepted,
                ssl=context,
                ssl_handshake_timeout=_LONG,
                ssl_shutdown_timeout=_LONG,
            )
        except OSError:
            # The client has left, or its bytes are no handshake.
            self.end()

    def end(self) -> None:
        """Forget the handshake: it is complete, or has failed."""
        self._members.leave(self)
        self._held.end()

    def sweep(self) -> None:
        """End the handshake if its client is late: it is a part of the first head, and gets no more time."""
        deadlines = self._members.deadlines
        if deadlines.now - self.since > deadlines.limits.header_seconds:
            self.abort()

    @property
    def is_spare(self) -> bool:
        """True if its client has taken some time already."""
        return self._members.deadlines.is_long_ago(self.since)

    def is_read(self) -> bool:
        """Return False: nothing was answered yet."""
        return False

    def abort(self) -> None:
        """End the handshake, and close the connection."""
        self.end()
        self._task.cancel()

    make_last = abort


class _Secured(HttpConnection):
    """A connection whose handshake is complete when it is made."""

    __slots__ = ("_handshake",)

    def __init__(self, members: Members, handshake: Handshake) -> None:
        super().__init__(members)
        self._handshake = handshake

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._handshake.end()
        super().connection_made(transport)
