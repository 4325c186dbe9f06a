"""The view of operators on the servers of a process with an admin surface: events, figures, and the state."""

import contextlib
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from limpet.engine.observed_store import store_kind
from limpet.ops.admin.address import AdminAddress, open_admin
from limpet.ops.admin.lines import answering
from limpet.ops.admin.surface import FleetSource
from limpet.ops.figures import Figures
from limpet.ops.fleet import FleetView
from limpet.ops.log import LogObserver
from limpet.ops.operated import Operable, Operated
from limpet.ops.ring import Ring
from limpet.ops.served_process import Part
from limpet.ports import Observer, SystemClock
from limpet.stores.base import Store

if TYPE_CHECKING:
    from limpet.ops.metrics.otlp import Pusher

__all__ = ["Operations", "open_admin"]


class Operations:
    """The servers of this process, seen by operators. Give it each server before its engine is built."""

    def __init__(self, pusher: "Pusher | None" = None) -> None:
        """`pusher` sends the metrics to a collector."""
        self._pusher = pusher
        self._clock = SystemClock()
        self._ring = Ring()
        self._observer: Observer = LogObserver(self._clock, self._ring)
        self._servers: list[tuple[Operable, Operated]] = []

    def take(self, server: Operable) -> None:
        """Watch a server. If it has built its engine already, it is shown without figures."""
        if server.is_built:
            operated = Operated(self._clock)
        else:
            operated = Operated(self._clock, ring=self._ring, figures=Figures())
            server.operate(operated)
        self._servers.append((server, operated))

    @contextlib.asynccontextmanager
    async def source(self) -> AsyncIterator[FleetSource]:
        """Give the source of the state while the block runs. The engines are built if they do not exist yet."""
        parts = [
            Part(server.label or server.name, server.version, _kind(server.store), server.engine, operated)
            for server, operated in self._servers
        ]
        fleet = FleetView(parts, self._ring)
        fleet.start()
        try:
            async with (
                self._pusher.pushing(fleet, self._observer) if self._pusher else contextlib.nullcontext()
            ):
                yield fleet
        finally:
            fleet.stop()

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Only push the metrics while the block runs."""
        async with self.source():
            yield

    @contextlib.asynccontextmanager
    async def on(self, line: socket.socket) -> AsyncIterator[None]:
        """Answer the questions of the parent process while the block runs."""
        async with self.source() as source, answering(source, line):
            yield

    @contextlib.asynccontextmanager
    async def at(self, address: AdminAddress) -> AsyncIterator[None]:
        """Serve the admin surface while the block runs."""
        async with self.source() as source, address.serving(source, self._clock, self._observer):
            yield


def _kind(store: Store | str | None) -> str:
    """Return the kind of a store, for people. A URL may have a password: only its scheme is shown."""
    if store is None:
        return "memory"
    if isinstance(store, str):
        return store.partition(":")[0]
    return store_kind(store)
