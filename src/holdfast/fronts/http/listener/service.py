"""The life of a server: it accepts connections, checks them, and stops in a way that lets running calls finish.

While it stops it still listens: a running call may need an answer or a resume, and these are new requests.
"""

import asyncio
import contextlib
import gc
import signal
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final

from holdfast.engine.engine import Engine
from holdfast.engine.group import EngineGroup
from holdfast.fronts.countdown import count_down
from holdfast.fronts.http.front import HttpFront
from holdfast.fronts.http.listener.accepting import Acceptor
from holdfast.fronts.http.listener.deadlines import Deadlines
from holdfast.fronts.http.listener.members import Members
from holdfast.fronts.http.router import Router

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_GOODBYE: Final = 2.0
"""Seconds to write the last answers after all calls have ended."""
_HASTE: Final = 0.5
"""The same after a second Ctrl+C."""
_POLL: Final = 0.1
_LINGER: Final = 1.0
"""Seconds for clients with an open connection to one of several workers to send their last request on it."""
_GARBAGE_THRESHOLD: Final = 20_000
"""New objects between two garbage collections; with the default of 700 every tenth request would wait for one."""


class Service:
    """Serves one front, or several behind a router."""

    def __init__(
        self,
        front: HttpFront | Router,
        *,
        siblings: bool = False,
        tls: ssl.SSLContext | None = None,
        connections: int | None = None,
    ) -> None:
        self._front = front
        self._engine: Engine | EngineGroup = front.engine
        self._siblings = siblings
        """Other processes accept from the same socket."""
        self._tls = tls
        self._connections = connections
        """How many connections are served at once; None: as many as the limits allow."""
        self.members: Members
        self._acceptor: Acceptor
        self.started: asyncio.Event = asyncio.Event()
        self._stopping = asyncio.Event()
        self._forced = False

    def stop(self, *, force: bool = False) -> None:
        """Stop; with `force` running calls are ended at once."""
        self._forced |= force
        self._stopping.set()

    async def serve(self, listeners: Sequence[socket.socket]) -> None:
        """Serve until a signal, or `stop`, ends it."""
        with self._signals():
            async with self.running(listeners):
                self._engine.when_failed(self.stop)
                await self._stopping.wait()

    @contextlib.asynccontextmanager
    async def running(self, listeners: Sequence[socket.socket]) -> AsyncIterator[None]:
        """Serve while the block runs, then stop."""
        await self._engine.ensure_started()
        settings = self._engine.settings
        deadlines = Deadlines(settings.limits, settings.times.write_stall)
        self.members = Members(
            self._front.serve,
            deadlines,
            self._front.proxies,
            self._front.refused,
            connections=self._connections,
        )
        self._acceptor = Acceptor(self.members, self._engine.clock, self._engine.observer, tls=self._tls)
        async with self._acceptor.running(listeners):
            # All loaded modules stay, and a request leaves no reference cycles: collect seldom, and only new objects.
            gc.collect()
            gc.freeze()
            gc.set_threshold(_GARBAGE_THRESHOLD, 20, 20)
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
        before = {number: signal.getsignal(number) for number in SIGNALS}
        for number in SIGNALS:
            signal.signal(number, lambda number, _: loop.call_soon_threadsafe(self._signalled, number))
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signalled(self, number: int) -> None:
        """Stop; a second Ctrl+C ends running calls at once."""
        self.stop(force=self._stopping.is_set() and number == signal.SIGINT)

    # Stopping

    async def _shutdown(self) -> None:
        self._stopping.set()
        await self._leave()
        loop = asyncio.get_running_loop()
        draining = loop.create_task(self._engine.drain())
        shown = loop.create_task(count_down(self._engine, alone=not self._siblings))
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
        await self._goodbye()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._engine.aclose(), _GOODBYE if self._forced else None)

    async def _leave(self) -> None:
        """Report that this process is stopping, and continue serving while balancers and clients learn of it.

        A worker with siblings accepts no more connections; the siblings do. Its answers ask clients to open a new connection.
        """
        self._engine.leaving = self.members.leaving = True
        notice = self._engine.settings.times.drain_notice
        if not self._siblings:
            await self._wait(notice)
            return
        self._acceptor.close_listeners()
        await self._wait(max(notice, _LINGER), lambda: not self.members.connections)
        for connection in list(self.members.connections):
            if connection.is_idle:
                connection.make_last()

    async def _wait(self, seconds: float, reached: Callable[[], bool] = lambda: False) -> None:
        """Wait, unless Ctrl+C was pressed again."""
        await self._acceptor.wait(seconds, lambda: self._forced or reached())

    async def _goodbye(self) -> None:
        """Write the last answers, end the standalone streams, close connections that take no bytes."""
        self._acceptor.close_listeners()
        self._engine.end_standalone()
        members = self.members
        if self._engine.store.is_shared:
            # A client whose stream has just ended may send its next request on the same connection. Refuse it: that is
            # better than a cut connection.
            await self._wait(_LINGER, lambda: not members.connections)
        await self._acceptor.end(_HASTE if self._forced else _GOODBYE)
