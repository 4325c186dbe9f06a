"""Accepts connections from listening sockets, and ends those whose clients are late.

The server of MCP (`start_and_stop.py`) and the admin surface each have one: their connections are counted and limited
separately.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from limpet.fronts.http.http1.arrivals import Arrivals
from limpet.fronts.http.http1.connection import HttpConnection
from limpet.fronts.http.http1.handshakes import TlsServer
from limpet.fronts.http.http1.members import Members
from limpet.fronts.http.http1.sockets import BACKLOG, is_unix
from limpet.ports import Clock, Observer
from limpet.supervision import supervise
from limpet.transports.memory import give_back

_LAST_BYTES: Final = 0.5
"""Seconds for connections to write their last bytes."""
_POLL: Final = 0.1


class Acceptor:
    """The listening sockets of a server, and the connections that came from them."""

    def __init__(
        self, members: Members, clock: Clock, observer: Observer, *, tls: ssl.SSLContext | None = None
    ) -> None:
        self.members: Members = members
        self._clock = clock
        self._observer = observer
        self._tls = tls
        self._servers: list[asyncio.Server | TlsServer] = []
        self._arrivals: list[Arrivals] = []

    @contextlib.asynccontextmanager
    async def running(self, sockets: Sequence[socket.socket]) -> AsyncIterator[None]:
        """Accept while the block runs. Connections that are open at its end stay open: see `end`."""
        self.members.set_date(self._clock.wall())
        for sock in sockets:
            self._servers.append(await self._accept_from(sock))
        sweeper = supervise("connections", self._sweep, self._observer)
        try:
            yield
        finally:
            self.close_sockets()
            sweeper.cancel()

    async def _accept_from(self, sock: socket.socket) -> asyncio.Server | TlsServer:
        if self._tls is not None:
            return TlsServer(sock, self.members, self._tls, self._observer)
        loop = self.members.loop
        create = loop.create_unix_server if is_unix(sock) else loop.create_server
        # Without a free descriptor asyncio tries to accept as often as the backlog is long, and logs each error.
        # uvloop closes the connections that have no descriptor.
        backlog = 1 if isinstance(loop, asyncio.BaseEventLoop) else BACKLOG
        sock.settimeout(0)
        arrivals = Arrivals(sock, self._begin, self.members)
        self._arrivals.append(arrivals)
        server = await create(lambda: self._connection(arrivals), sock=sock, backlog=backlog)
        sock.listen(BACKLOG)
        return server

    def _connection(self, arrivals: Arrivals) -> HttpConnection:
        """Return the connection that the loop has accepted, and look for more."""
        arrivals.look()
        return HttpConnection(self.members)

    def _begin(self, accepted: socket.socket, _peer: object) -> None:
        tasks = self.members.tasks
        task = self.members.loop.create_task(self._take(accepted))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _take(self, accepted: socket.socket) -> None:
        try:
            await self.members.loop.connect_accepted_socket(lambda: HttpConnection(self.members), accepted)
        except OSError:
            # The client has left.
            accepted.close()

    async def _sweep(self) -> None:
        members = self.members
        deadlines = members.deadlines
        while True:
            members.set_date(self._clock.wall())
            if deadlines.tick(members.loop.time()):
                for connection in list(members.connections):
                    connection.sweep()
                members.relieve()
                self._bound_unsent()
                if members.pressed > 0:
                    # Large answers that have left are holes between smaller things: up to a fifth of the figure.
                    give_back()
            await asyncio.sleep(deadlines.interval)

    def _bound_unsent(self) -> None:
        """End connections while clients use too much memory: first those that take slowest for what waits for them.

        The measure is the time that a client still needs at its pace (`seconds_left`). So a client that reads a large
        answer stays while one that takes single bytes of a small answer is ended. Clients that will be ready within the
        time of a
        stall are reading: they may use the reserve before one of them is ended.
        """
        members = self.members
        over = members.pressed
        if over <= 0:
            return
        waiting = [connection for connection in members.connections if connection.unsent]
        total = sum(connection.unsent for connection in waiting)
        waiting.sort(key=lambda connection: (connection.seconds_left, connection.unsent), reverse=True)
        for connection in waiting:
            if connection.seconds_left <= members.deadlines.stall and over <= members.reserve:
                return
            self._observer.note("answer.unread", bytes=connection.unsent, total=total)
            over -= connection.unsent
            connection.abort()
            if over <= 0:
                return

    def close_sockets(self) -> None:
        """Accept no more connections."""
        for arrivals in self._arrivals:
            arrivals.close()
        for server in self._servers:
            server.close()

    async def wait(self, seconds: float, reached: Callable[[], bool]) -> None:
        """Wait until a condition is true, at most so many seconds.

        No event reports the end of a connection, so it polls.
        """
        deadline = self.members.loop.time() + seconds
        while self.members.loop.time() < deadline and not reached():  # noqa: ASYNC110
            await asyncio.sleep(_POLL)

    async def end(self, seconds: float) -> int:
        """Write the last answers for at most this time, then close every connection.

        Return how many answers were cut.
        """
        members = self.members
        for connection in list(members.connections):
            connection.make_last()
        if tasks := set(members.tasks):
            await asyncio.wait(tasks, timeout=seconds)
        await asyncio.sleep(0)
        await self.wait(_LAST_BYTES, lambda: not members.connections)
        cut = sum(connection.is_owed for connection in members.connections)
        for connection in list(members.connections):
            connection.abort()
        return cut
