"""`list_changed` notifications: one for all changes made together, from any thread, to the clients concerned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from limpet.protocol.subscriptions import TOPICS, Change
from limpet.server.catalog.catalog import EVERYONE, ConcernedClients
from limpet.server.host import Host

if TYPE_CHECKING:
    import asyncio

Kind = Literal["tools", "resources", "prompts"]


class ListChanges:
    """The changes that no client has been notified of. Before the engine starts, changes are not recorded."""

    def __init__(self, server: Host) -> None:
        self._server = server
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[tuple[Kind, ConcernedClients], None] = {}

    def start(self) -> None:
        """Send notifications from now on, on the running event loop."""
        import asyncio  # noqa: PLC0415 - only a server that runs needs it

        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """Send no more notifications."""
        self._loop = None
        self._waiting.clear()

    def note(self, kind: Kind, audience: ConcernedClients = EVERYONE) -> None:
        """Record a change; may be called from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._gather, kind, audience)

    def _gather(self, kind: Kind, audience: ConcernedClients) -> None:
        if self._loop is None:
            return
        if not self._waiting:
            self._server.engine.spawn(self._send_all())
        self._waiting[kind, audience] = None

    async def _send_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for kind, audience in waiting:
            await self._send(kind, audience)

    async def _send(self, kind: Kind, audience: ConcernedClients) -> None:
        engine = self._server.engine
        if audience.session:
            await engine.sessions.push(audience.session, TOPICS[kind].method)
        else:
            await engine.changed(Change(kind), audience.principal or None)
