"""A server as an ASGI application that another server runs: uvicorn, hypercorn, granian, gunicorn.

Nothing is built before the first lifespan event or request. The process that imports an application
often forks the processes that serve it, and each of them needs its own engine, store connection and
replica name.

The signal to stop goes to the host. Hosts wait for open responses before they end the
lifespan, and our streams do not end by themselves: so we listen to the host's signals.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, Final

from limpet.errors import LimpetError
from limpet.fronts.http.front import HttpFront
from limpet.fronts.http.read.request import Receive, Scope, Send
from limpet.fronts.http.router import Router
from limpet.transports.loop_watch import LoopWatch

# Notices that the host receives a signal to stop: our signal handler is called before the host's.
#
# ASGI reports the end to an application only after the last response has ended. A stream ends only when
# its client leaves or the server ends it, so a host would wait forever. The rules that make this safe:
#
# - Only a handler that the host installed is wrapped, and it is always called. Without one (a test
#   client, a script) the default action stays.
# - A host that uses `loop.add_signal_handler` keeps working: the loop learns of a signal through its
#   wake-up descriptor, with any Python handler.
# - Python allows handlers in the main thread only; elsewhere nothing is done.
# - Our handler is removed only if it is still the installed one: a handler that was installed later stays.

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], Any]


class HostSignals:
    """Calls `stop` once, on the loop that installed it, when the host receives a signal to stop."""

    def __init__(self, stop: Callable[[], Awaitable[None]]) -> None:
        self._stop = stop
        self._wrapped: dict[int, Handler] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Future[None] | None = None
        self.installed: bool = False

    def install(self) -> None:
        """Wrap the host's handlers that are installed by now.

        Hosts install theirs at different moments: call it again.
        """
        if threading.current_thread() is not threading.main_thread():
            self.installed = True
            return
        self._loop = asyncio.get_running_loop()
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if number in self._wrapped or handler in {signal.default_int_handler, self._handle}:
                continue
            if callable(handler):
                self._wrapped[number] = handler
                signal.signal(number, self._handle)
        self.installed = len(self._wrapped) == len(SIGNALS)

    def restore(self) -> None:
        """Install the host's handlers again, for each signal whose present handler is ours.

        A handler that was installed after ours (such as that of another mount) may call ours. Then ours stays, and only
        calls the host's handler.
        """
        for number, handler in list(self._wrapped.items()):
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)
                del self._wrapped[number]
        self._loop = self._stopping = None
        self.installed = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._begin)
        handler = self._wrapped.get(number)
        if handler is not None:
            handler(number, frame)

    def _begin(self) -> None:
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop())


class Mount:
    """One endpoint of a server, or several, for any ASGI host."""

    def __init__(self, build: Callable[[], HttpFront | Router], *, host_signals: bool = True) -> None:
        self._build = build
        self._front: HttpFront | Router | None = None
        self._signals = HostSignals(self._stop) if host_signals else None
        self._beside = contextlib.ExitStack()

    def __repr__(self) -> str:
        return f"<Mount of {self._front!r}>" if self._front is not None else "<Mount, not in use yet>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope; the first one builds the endpoint."""
        front = self._front
        if front is None:
            try:
                front = self._front = self._build()
            except LimpetError as error:
                if scope["type"] != "lifespan":
                    raise
                await receive()
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
        if self._signals is not None and not self._signals.installed:
            self._install(self._signals, front)
        try:
            await front(scope, receive, send)
        finally:
            if scope["type"] == "lifespan" and self._signals is not None:
                self._signals.restore()
                self._beside.close()

    def _install(self, signals: HostSignals, front: HttpFront | Router) -> None:
        """Listen to the host's signals.

        The loop is watched from the moment at which all of them are there: the host serves.
        """
        signals.install()
        if signals.installed:
            self._beside.enter_context(LoopWatch(front.engine.observer))

    async def _stop(self) -> None:
        """The host is stopping: let handlers finish, then end the streams that it would wait for."""
        if self._front is not None:
            with contextlib.suppress(LimpetError):
                await self._front.engine.leave()
