"""uvicorn as we run it: guarded connections, and an end that lets running calls finish.

Imported only where uvicorn runs.
"""

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Final

import uvicorn
from typing_extensions import override

from holdfast.engine.engine import Engine
from holdfast.engine.group import EngineGroup
from holdfast.fronts.countdown import count_down
from holdfast.fronts.http.front import HttpFront
from holdfast.fronts.http.protocol import GuardedProtocol, Watch
from holdfast.fronts.http.router import Router
from holdfast.supervision import supervise

KEEP_ALIVE: Final = 75
"""Seconds an idle connection stays open: longer than the 60 s of balancers, so that they close first."""
_GOODBYE: Final = 2.0
"""Seconds to write the last answers after all calls have ended."""
_HASTE: Final = 0.5
"""The same after a second Ctrl+C."""
_POLL: Final = 0.1
_LINGER: Final = 1.0
"""Seconds clients with an open connection to one of several workers have to send their last request on it."""
_CLOSE: Final = (b"connection", b"close")
_GARBAGE_THRESHOLD: Final = 20_000
"""New objects between two garbage collections; with the default of 700 every tenth request would wait for one."""


class Service(uvicorn.Server):
    """Serves one front, or several behind a router."""

    def __init__(self, front: HttpFront | Router, *, siblings: bool = False) -> None:
        self._engine: Engine | EngineGroup = front.engine
        self._siblings = siblings
        """Other processes accept from the same socket."""
        settings = front.engine.settings
        self._watch = watch = Watch(settings.limits, settings.times.write_stall)
        self._sweeper: asyncio.Task[None] | None = None

        class Guarded(GuardedProtocol):
            """The connections of this server."""

        Guarded.watch = watch
        Guarded.serve = staticmethod(front.serve)
        super().__init__(
            uvicorn.Config(
                front,
                http=Guarded,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=int(_GOODBYE),
            )
        )

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; a second Ctrl+C ends running calls at once. The process ends with status 0, so the signal is not raised again."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # All loaded modules stay, and a request leaves no reference cycles: collect seldom, and only new objects.
        gc.collect()
        gc.freeze()
        gc.set_threshold(_GARBAGE_THRESHOLD, 20, 20)
        self._sweeper = supervise("connections", self._sweep, self._engine.observer)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if self._watch.tick(loop.time()):
                for connection in list(self.server_state.connections):
                    if isinstance(connection, GuardedProtocol):
                        connection.sweep()
            await asyncio.sleep(self._watch.interval)

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain while still listening: a running call may need an answer or a resume, which are requests of their own."""
        await self._leave()
        loop = asyncio.get_running_loop()
        draining = loop.create_task(self._engine.drain())
        shown = loop.create_task(count_down(self._engine, alone=not self._siblings))
        while not self.force_exit and not draining.done():
            await asyncio.wait({draining}, timeout=_POLL)
        for task in (draining, shown):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self.force_exit:
            # The operator does not wait; each running call still ends with its one terminal message.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._engine.end_work(), _GOODBYE)
        await self._goodbye()
        await super().shutdown(sockets)
        if self.force_exit:
            # The lifespan does not end then, and its task is cancelled with the loop: do not log that as an error.
            self.config.lifespan = "auto"
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def _leave(self) -> None:
        """Report that this process is stopping, and go on serving while balancers and clients learn of it.

        A worker with siblings accepts no more connections; the siblings do. Its answers ask clients to open a new connection.
        """
        self._engine.leaving = True
        state = self.server_state
        state.default_headers = [*state.default_headers, _CLOSE]
        for connection in list(state.connections):
            _make_last(connection, state.default_headers)
        notice = self._engine.settings.times.drain_notice
        if not self._siblings:
            await self._wait(notice)
            return
        for server in self.servers:
            server.close()
        await self._wait(max(notice, _LINGER), lambda: not state.connections)
        for connection in list(state.connections):
            if isinstance(connection, GuardedProtocol) and connection.is_idle:
                connection.shutdown()

    async def _wait(self, seconds: float, reached: Callable[[], bool] = lambda: False) -> None:
        """Wait, unless Ctrl+C was pressed again. No event tells that a connection has ended: poll."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while loop.time() < deadline and not (self.force_exit or reached()):  # noqa: ASYNC110
            await asyncio.sleep(_POLL)

    async def _goodbye(self) -> None:
        """Write the last answers, end the standalone streams, close connections that take nothing."""
        for server in self.servers:
            server.close()
        self._engine.end_standalone()
        if self._engine.store.is_shared:
            # A client whose stream has just ended may send its next request on the same connection. Refuse it: that is
            # better than a cut connection.
            await self._wait(_LINGER, lambda: not self.server_state.connections)
        for connection in list(self.server_state.connections):
            connection.shutdown()
        tasks = set(self.server_state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=_HASTE if self.force_exit else _GOODBYE)
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _make_last(connection: object, headers: list[tuple[bytes, bytes]]) -> None:
    """Let the answer that a connection waits for say `Connection: close`."""
    cycle = connection.cycle if isinstance(connection, GuardedProtocol) else None
    if cycle is not None and not cycle.response_started:
        cycle.default_headers = headers
