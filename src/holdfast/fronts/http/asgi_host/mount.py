"""A server as an ASGI application that another server runs: uvicorn, hypercorn, granian, gunicorn.

Nothing is built before the first lifespan event or request. The process that imports an application
often forks the processes that serve it, and each of them needs its own engine, store connection and
replica name.

The signal to stop goes to the host. Hosts wait for open responses before they end the
lifespan, and our streams do not end by themselves: so we listen to the host's signals.
"""

import contextlib
from collections.abc import Callable

from holdfast.errors import HoldfastError
from holdfast.fronts.http.asgi_host.host_signals import HostSignals
from holdfast.fronts.http.front import HttpFront
from holdfast.fronts.http.read.request import Receive, Scope, Send
from holdfast.fronts.http.router import Router
from holdfast.transports.loop_watch import LoopWatch


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
            except HoldfastError as error:
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
        """Listen to the host's signals. The loop is watched from the moment at which all of them are there: the host serves."""
        signals.install()
        if signals.installed:
            self._beside.enter_context(LoopWatch(front.engine.observer))

    async def _stop(self) -> None:
        """The host is stopping: let handlers finish, then end the streams that it would wait for."""
        if self._front is not None:
            with contextlib.suppress(HoldfastError):
                await self._front.engine.leave()
