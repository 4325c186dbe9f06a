"""The life of a server: it accepts connections, checks them, and stops in a way that lets running calls finish.

    leave     /readyz says no. Everything is served for the notice.
    drain     running and waiting calls finish; new work is refused. The drain time begins.
    send      answers that clients are reading are sent to their end.
    linger    a client that just got its answer may ask once more.
    goodbye   the sockets are closed; what is not sent by now is cut, and the log says so.

Until the goodbye it listens: an answer to a running call, a resume, a repeat and the lists that clients read between
two calls are new requests. The exception is a worker that its parent replaces: another one stays and accepts from the
same socket, so this one stops accepting before the notice. If all workers stop, each behaves as a single process. Only
the parent knows which of the two it is (`Orders`): a sibling that is asked may get its own signal a moment later, and
then no process would accept the connections of clients that come back.

The drain time ends both drain and send. Each later step takes a second or two, so that `Times.drain` and ten seconds
are enough for all.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final

from limpet.engine.engine import Engine
from limpet.engine.group import EngineGroup
from limpet.fronts.countdown import count_down
from limpet.fronts.http.front import HttpFront
from limpet.fronts.http.http1.accept import Acceptor
from limpet.fronts.http.http1.deadlines import Deadlines
from limpet.fronts.http.http1.members import Members
from limpet.fronts.http.router import Router
from limpet.transports.loops import Orders, hangup
from limpet.transports.memory import at_rest

LOGGER: Final = logging.getLogger("limpet")
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_GOODBYE: Final = 2.0
"""Seconds to write the last answers after all calls have ended."""
_HASTE: Final = 0.5
"""The same after a second Ctrl+C."""
_POLL: Final = 0.1
_LINGER: Final = 1.0
"""Seconds for clients to send their last request: on an open connection to one of several workers, or after an
answer."""
_GARBAGE_THRESHOLDS: Final = 20_000, 5, 80
"""New objects between two garbage collections; with the default of 700 every tenth request would wait for one. Each
sixth also looks at the objects that the five before have left: at 20 of them, a flood of new sessions waited 93 ms for
it. Old objects are looked at as seldom as with 20 and 20."""


class Service:
    """Serves one front, or several behind a router."""

    def __init__(
        self,
        front: HttpFront | Router,
        *,
        orders: Orders | None = None,
        tls: ssl.SSLContext | None = None,
        connections: int | None = None,
        processes: int = 1,
    ) -> None:
        self._front = front
        self._engine: Engine | EngineGroup = front.engine
        self._orders = orders
        """What the parent says, if this is one of several workers."""
        self._tls = tls
        self._connections = connections
        """How many connections are served at once; None: as many as the limits allow."""
        self._processes = processes
        """How many processes share the figure of memory."""
        self.members: Members
        self._acceptor: Acceptor
        self.started: asyncio.Event = asyncio.Event()
        self._stopping = asyncio.Event()
        self._forced = False
        # Look now: a terminal that was closed is not one any more.
        self._has_terminal = os.isatty(0)

    def stop(self, *, force: bool = False) -> None:
        """Stop; with `force` running calls are ended at once."""
        self._forced |= force
        self._stopping.set()

    async def serve(self, sockets: Sequence[socket.socket]) -> None:
        """Serve until a signal, or `stop`, ends it."""
        with self._signals():
            async with self.running(sockets):
                self._engine.when_failed(self.stop)
                await self._stopping.wait()

    @contextlib.asynccontextmanager
    async def running(self, sockets: Sequence[socket.socket]) -> AsyncIterator[None]:
        """Serve while the block runs, then stop."""
        await self._engine.ensure_started()
        settings = self._engine.settings
        deadlines = Deadlines(settings.limits, settings.times.write_stall)
        self.members = Members(
            self._front.serve,
            deadlines,
            self._front.refused,
            observer=self._engine.observer,
            connections=self._connections,
            ledger=self._engine.load.ledger,
        )
        self._acceptor = Acceptor(self.members, self._engine.clock, self._engine.observer, tls=self._tls)
        async with self._acceptor.running(sockets):
            # All loaded modules stay, and a request leaves no reference cycles: collect seldom, and only new objects.
            gc.collect()
            gc.freeze()
            gc.set_threshold(*_GARBAGE_THRESHOLDS)
            self._engine.load.ledger.divide(self._processes, at_rest())
            self.started.set()
            try:
                yield
            finally:
                await self._shutdown()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop at a signal. The process ends with status 0, so the signal is not raised again."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in (*SIGNALS, *hangup())}
        for number in before:
            signal.signal(number, lambda number, _: loop.call_soon_threadsafe(self._signalled, number))
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signalled(self, number: int) -> None:
        """Stop; a second Ctrl+C ends running calls at once: the parent of workers counts it.

        SIGHUP stops a server only if its terminal was closed.
        """
        if number not in SIGNALS and not self._has_terminal:
            LOGGER.warning(
                "SIGHUP is ignored: a single process cannot replace itself. Stop it with SIGTERM and start it again, "
                "or use --workers, where SIGHUP replaces the workers one after another"
            )
            return
        if self._orders is not None:
            self.stop(force=self._orders.at_once)
        else:
            self.stop(force=self._stopping.is_set() and number == signal.SIGINT)

    # Stopping

    async def _shutdown(self) -> None:
        self._stopping.set()
        await self._leave()
        was_busy = bool(self._engine.in_flight())
        loop = asyncio.get_running_loop()
        draining = loop.create_task(self._engine.drain())
        shown = loop.create_task(count_down(self._engine, alone=self._orders is None))
        while not self._forced and not draining.done():
            await asyncio.wait({draining}, timeout=_POLL)
        for task in (draining, shown):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._forced:
            # The operator does not wait; each running call still ends with its one terminal message.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._engine.end_work(), _GOODBYE)
        await self._send(was_busy=was_busy)
        await self._goodbye()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._engine.aclose(), _GOODBYE if self._forced else None)

    async def _leave(self) -> None:
        """Report that this process is stopping, and continue serving while balancers and clients learn of it.

        Its answers ask clients to open a new connection. A worker accepts no more connections if a sibling stays, which
        accepts them.
        """
        self._engine.leaving = self.members.leaving = True
        notice = self._engine.settings.times.drain_notice
        if self._orders is None or not self._orders.siblings_stay:
            await self._wait(notice)
            return
        self._acceptor.close_sockets()
        await self._wait(max(notice, _LINGER), lambda: not self.members.connections)
        for connection in list(self.members.connections):
            if connection.is_idle:
                connection.make_last()

    async def _wait(self, seconds: float, reached: Callable[[], bool] = lambda: False) -> None:
        """Wait, unless Ctrl+C was pressed again."""
        await self._acceptor.wait(seconds, lambda: self._forced or reached())

    async def _send(self, *, was_busy: bool) -> None:
        """Let clients read their answers to the end, within the drain time.

        Then serve what they ask next, for a moment.

        The standalone streams end first: they never end by themselves. Connections that came later are not waited for:
        reads of many clients would never end.
        """
        connections = self.members.connections
        self._engine.end_standalone()
        if connections:
            await asyncio.sleep(_POLL)
        reading = [connection for connection in connections if connection.is_read()]
        await self._wait(
            self._engine.drain_left(), lambda: not any(connection.is_read() for connection in reading)
        )
        # Official clients read the list of tools after a call, to check its result. If other processes serve the
        # sessions, the next request on an open connection is refused: that is better than a cut connection.
        has_asked = was_busy or bool(reading)
        if has_asked or self._engine.store.is_shared:
            await self._wait(_LINGER, lambda: not (has_asked or connections))

    async def _goodbye(self) -> None:
        """Accept no more connections, write the last answers, and close the connections."""
        self._acceptor.close_sockets()
        cut = await self._acceptor.end(_HASTE if self._forced else _GOODBYE)
        if cut:
            self._engine.observer.note("answer.cut", answers=cut)
