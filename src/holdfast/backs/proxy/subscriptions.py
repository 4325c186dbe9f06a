"""Subscriptions at the server to the resources that clients listen to: by requests (2025), or by one listen stream (2026-07-28).

Several listeners of one URI need one subscription at the server. The sweep of `upstreams.py` ends it when no client
listens any more. A 2026-07-28 server also reports changes of its lists only on a listen stream, so one is open as long as the upstream.
"""

import asyncio
import contextlib
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.ports import Clock, Observer
from holdfast.protocol.subscriptions import TOPICS, Filter, Kind
from holdfast.upstream.connection import Connection
from holdfast.upstream.negotiation import Agreed

_LISTS: tuple[Kind, ...] = ("tools", "prompts", "resources")
READY_SECONDS = 2.0
"""How long a client waits for the confirmation of a listen stream. Some servers never confirm."""
_AGAIN_SECONDS = 5.0
"""How soon a listen stream that broke is opened again."""


class Subscriptions:
    """The subscriptions of one upstream."""

    def __init__(self, connection: Connection, clock: Clock, observer: Observer) -> None:
        self._connection = connection
        self._clock = clock
        self._observer = observer
        self._uris: dict[str, float] = {}
        self._listening: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._broke = False

    def __repr__(self) -> str:
        return f"<Subscriptions to {len(self._uris)} resources>"

    @property
    def uris(self) -> dict[str, float]:
        """Every URI that is subscribed to, and when that was last asked for."""
        return self._uris

    def start(self, agreed: Agreed) -> None:
        """Begin to listen, if the server's era needs it."""
        self._ready.set()
        if agreed.is_sessionless:
            self._listen(agreed)

    def acknowledged(self) -> bool:
        """The server has confirmed the listen stream. True if the one before broke: a change may have been missed."""
        self._ready.set()
        broke, self._broke = self._broke, False
        return broke

    async def ready(self) -> None:
        """Wait until the server reports changes, at most READY_SECONDS."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_SECONDS):
                await self._ready.wait()

    async def add(self, uri: str, agreed: Agreed) -> None:
        """Subscribe to a resource. A second subscription to the same one is not sent.

        Raises:
            McpError: the server refuses it.
        """
        is_new = uri not in self._uris
        if is_new and not agreed.is_sessionless:
            await self._connection.request("resources/subscribe", {"uri": uri})
        self._uris[uri] = self._clock.now()
        if is_new and agreed.is_sessionless:
            self._listen(agreed)
            await self.ready()

    async def remove(self, uri: str, agreed: Agreed) -> None:
        """Unsubscribe. An unknown subscription is not an error."""
        if self._uris.pop(uri, None) is None:
            return
        if agreed.is_sessionless:
            self._listen(agreed)
        else:
            await self._connection.request("resources/unsubscribe", {"uri": uri})

    def close(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None

    def _filter(self, agreed: Agreed) -> dict[str, Any]:
        names: dict[Kind, tuple[str, ...]] = dict.fromkeys(_LISTS, ("",))
        names["resource"] = tuple(self._uris)
        return Filter(names).within(agreed.capabilities).to_wire()

    def _listen(self, agreed: Agreed) -> None:
        """Open a listen stream for everything; it replaces the one before."""
        self.close()
        if wanted := self._filter(agreed):
            self._ready.clear()
            self._listening = asyncio.get_running_loop().create_task(self._keep_listening(wanted))

    async def _keep_listening(self, wanted: dict[str, Any]) -> None:
        while True:
            try:
                await self._connection.request("subscriptions/listen", {"notifications": wanted})
            except HoldfastError as error:
                self._observer.note("upstream.listen_broke", error=error)
            self._broke = True
            self._ready.set()
            await asyncio.sleep(_AGAIN_SECONDS)


def list_kinds(capabilities: dict[str, Any]) -> list[Kind]:
    """Return the lists that a server with these capabilities has."""
    return [kind for kind in _LISTS if kind in capabilities]


def change_kind(method: str) -> Kind | None:
    """Return the change that a notification reports; None if it reports no change."""
    return _KINDS.get(method)


_KINDS: dict[str, Kind] = {TOPICS[kind].method: kind for kind in (*_LISTS, "resource")}
