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
from holdfast.fronts.countdown import count_down
from holdfast.fronts.http.front import HttpFront
from holdfast.fronts.http.protocol import GuardedProtocol, Watch
from holdfast.supervision import supervise

KEEP_ALIVE: Final = 75
"""Seconds an idle connection stays open: longer than the 60 s of balancers, so that they close first."""
_GOODBYE: Final = 2.0
"""Seconds answers have to leave after everything has ended."""
_HASTE: Final = 0.5
"""The same after a second Ctrl+C."""
_POLL: Final = 0.1
_LINGER: Final = 1.0
"""Seconds clients with an open connection to one of several workers have to send their last request on it."""
_CLOSE: Final = (b"connection", b"close")
_GARBAGE_THRESHOLD: Final = 20_000
"""New objects between two looks for garbage; the default of 700 is felt on every tenth request."""


class Service(uvicorn.Server):
    """Serves one front."""

    def __init__(self, front: HttpFront, *, siblings: bool = False) -> None:
        self._engine: Engine = front.engine
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
        """Stop; a second Ctrl+C ends running calls at once. A stop that was asked for is a good end, so no signal is raised again."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # What is loaded by now stays, and a request leaves no cycles behind: collect seldom, and only what is new.
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
            # The operator waits no longer; each running call still ends with its one terminal message.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._engine.end_work(), _GOODBYE)
        await self._goodbye()
        await super().shutdown(sockets)
        if self.force_exit:
            # The lifespan is left out then, and its task cancelled with the loop: no error to be logged.
            self.config.lifespan = "auto"
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def _leave(self) -> None:
        """Say that it is leaving, and go on serving while those who send requests notice.

        A worker with siblings accepts no more, they do; who has a connection here is told to take another one.
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
        """Let the last answers leave, end the streams that never end by themselves, drop who takes nothing."""
        for server in self.servers:
            server.close()
        self._engine.end_standalone()
        if self._engine.store.is_shared:
            # Who has just had the end of a stream may send the next request on its connection, which said nothing of
            # an end: it is refused, which is better than cut.
            await self._wait(_LINGER, lambda: not self.server_state.connections)
        for connection in list(self.server_state.connections):
            connection.shutdown()
        tasks = set(self.server_state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=_HASTE if self.force_exit else _GOODBYE)
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _make_last(connection: object, headers: list[tuple[bytes, bytes]]) -> None:
    """Let the answer that a connection waits for say that it is its last one."""
    cycle = connection.cycle if isinstance(connection, GuardedProtocol) else None
    if cycle is not None and not cycle.response_started:
        cycle.default_headers = headers
