"""list_changed: told once for any number of changes made together, from any thread, to those concerned."""

import asyncio
from typing import TYPE_CHECKING, Literal

from holdfast.protocol.subscriptions import TOPICS, Change
from holdfast.server.catalog.catalog import EVERYONE, Audience

if TYPE_CHECKING:
    from holdfast.server.app import Server

Kind = Literal["tools", "resources", "prompts"]


class Changes:
    """What has changed since it was last told. Before the engine starts there is nobody to tell."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[tuple[Kind, Audience], None] = {}

    def start(self) -> None:
        """Tell from now on, on this loop."""
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """Tell nobody any more."""
        self._loop = None
        self._waiting.clear()

    def note(self, kind: Kind, audience: Audience = EVERYONE) -> None:
        """Take note of a change; may be called from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._gather, kind, audience)

    def _gather(self, kind: Kind, audience: Audience) -> None:
        if self._loop is None:
            return
        if not self._waiting:
            self._server.engine.spawn(self._tell())
        self._waiting[kind, audience] = None

    async def _tell(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for kind, audience in waiting:
            await self._send(kind, audience)

    async def _send(self, kind: Kind, audience: Audience) -> None:
        engine = self._server.engine
        if audience.session:
            await engine.sessions.push(audience.session, TOPICS[kind].method)
        else:
            await engine.changed(Change(kind), audience.principal or None)
