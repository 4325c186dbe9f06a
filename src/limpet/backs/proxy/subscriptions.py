"""Subscriptions at the server to the resources of listeners: by requests (2025), or one listen stream (2026-07-28).

Several clients that listen to one URI need one subscription at the server. Each of them is a holder: a session by its
key, and all listeners of 2026-07-28 together as LISTENERS. The first holder subscribes, the last one unsubscribes. A
session releases them when it unsubscribes or closes; for the listeners the sweep of `upstreams.py` does it. Requests to
the server are sent one at a time, so that it never receives a second subscription for a URI, in any order of its
answers.

Only a client that unsubscribes itself waits for the server. The end of a session and the sweep release URIs at once,
and a task of this upstream unsubscribes from them (`_unheld`): a server that does not answer must not delay the sweep
of other upstreams. A URI that is asked for again before that needs no request.

A 2026-07-28 server also reports changes of its lists only on a listen stream, so one is open as long as the upstream.
Another filter needs another stream. The former one stays open until the server confirms the next one, or READY_SECONDS
have passed: otherwise a change between the two would be lost. A change that comes on both is reported twice, which does
no harm.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from limpet.errors import LimpetError
from limpet.ports import Clock, Observer
from limpet.protocol.subscriptions import LIST_KINDS, Filter, Kind
from limpet.upstream.connection import Connection
from limpet.upstream.negotiation import Agreed

Request = Callable[[str, dict[str, Any]], Awaitable[object]]
READY_SECONDS = 2.0
"""How long a client waits for the confirmation of a listen stream. Some servers never confirm."""
_AGAIN_SECONDS = 5.0
"""How soon a listen stream that broke is opened again."""


LISTENERS: Final = ""
"""The holder for all listeners of 2026-07-28."""


class Subscriptions:
    """The subscriptions of one upstream.

    `request` sends a request to the server and waits for its result, with a time limit.
    """

    def __init__(self, connection: Connection, request: Request, clock: Clock, observer: Observer) -> None:
        self._connection = connection
        self._request = request
        self._clock = clock
        self._observer = observer
        self._holders: dict[str, dict[str, float]] = {}
        """For each URI its holders, and when each of them last asked for it."""
        self.turn: asyncio.Lock = asyncio.Lock()
        """Held while a subscription changes: at the server, here and, by `back.py`, in the store."""
        self._unheld: dict[str, None] = {}
        """The URIs without a holder that the server still reports."""
        self._unsubscribing: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._former: list[asyncio.Task[None]] = []
        """Listen streams that the present one replaces, until it is confirmed."""
        self._patience: asyncio.TimerHandle | None = None
        """Ends them if it is not confirmed."""
        self._ready = asyncio.Event()
        self._broke = False

    @property
    def uris(self) -> tuple[str, ...]:
        """Every URI that is subscribed to."""
        return tuple(self._holders)

    @property
    def listened(self) -> dict[str, float]:
        """The URIs that listeners of 2026-07-28 have asked for, and when they last did."""
        return {uri: held[LISTENERS] for uri, held in self._holders.items() if LISTENERS in held}

    def has(self, uri: str) -> bool:
        """True if a session or listener has asked for a resource."""
        return uri in self._holders

    def sessions(self, uri: str) -> list[str]:
        """Return the sessions that have subscribed to a resource."""
        return [holder for holder in self._holders.get(uri, ()) if holder != LISTENERS]

    def start(self, agreed: Agreed) -> None:
        """Begin to listen, if the server's era needs it. A new link has no subscriptions yet."""
        self._unheld.clear()
        self._ready.set()
        if agreed.is_sessionless:
            self._listen(agreed)

    def acknowledged(self) -> bool:
        """The server has confirmed the listen stream. True if the one before broke: a change may have been missed."""
        self._ready.set()
        self._end_former()
        broke, self._broke = self._broke, False
        return broke

    async def ready(self) -> None:
        """Wait until the server reports changes, at most READY_SECONDS."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_SECONDS):
                await self._ready.wait()

    async def add(self, uri: str, agreed: Agreed, holder: str = LISTENERS) -> None:
        """Subscribe to a resource. A second subscription to the same one is not sent.

        Raises:
            McpError: the server refuses it, or does not answer.
        """
        async with self.turn:
            await self.add_in_turn(uri, agreed, holder)

    async def add_in_turn(self, uri: str, agreed: Agreed, holder: str) -> None:
        """Do the same for a caller that holds `turn`."""
        is_new = uri not in self._holders and uri not in self._unheld
        if is_new and not agreed.is_sessionless:
            await self._request("resources/subscribe", {"uri": uri})
        self._unheld.pop(uri, None)
        self._holders.setdefault(uri, {})[holder] = self._clock.now()
        if is_new and agreed.is_sessionless:
            self._listen(agreed)
            await self.ready()

    async def remove(self, uri: str, agreed: Agreed, holder: str = LISTENERS) -> None:
        """Release a resource; the last holder unsubscribes. An unknown subscription is not an error."""
        async with self.turn:
            await self.remove_in_turn(uri, agreed, holder)

    async def remove_in_turn(self, uri: str, agreed: Agreed, holder: str) -> None:
        """Do the same for a caller that holds `turn`."""
        if not self._remove_holder(uri, holder):
            return
        if agreed.is_sessionless:
            self._listen(agreed)
        else:
            await self._request("resources/unsubscribe", {"uri": uri})

    def leave(self, holder: str, agreed: Agreed) -> None:
        """Release everything that a holder has asked for. Does not wait for the server."""
        self._release([uri for uri, held in self._holders.items() if holder in held], holder, agreed)

    def sweep(self, agreed: Agreed, before: float, is_used: Callable[[str], bool]) -> None:
        """Release the resources that no listener of 2026-07-28 uses, or has asked for since `before`. Does not wait."""
        unused = [uri for uri, since in self.listened.items() if since < before and not is_used(uri)]
        self._release(unused, LISTENERS, agreed)

    def _release(self, uris: list[str], holder: str, agreed: Agreed) -> None:
        unheld = [uri for uri in uris if self._remove_holder(uri, holder)]
        if not unheld:
            return
        if agreed.is_sessionless:
            self._listen(agreed)
            return
        self._unheld.update(dict.fromkeys(unheld))
        if self._unsubscribing is None:
            self._unsubscribing = asyncio.get_running_loop().create_task(self._unsubscribe())

    def _remove_holder(self, uri: str, holder: str) -> bool:
        """Remove a holder of a URI; True if it was the last one."""
        held = self._holders.get(uri, {})
        if held.pop(holder, None) is None or held:
            return False
        del self._holders[uri]
        return True

    async def _unsubscribe(self) -> None:
        """Unsubscribe from the URIs without a holder, one after another."""
        try:
            while self._unheld:
                async with self.turn:
                    uri = next(iter(self._unheld), None)
                    if uri is not None:
                        del self._unheld[uri]
                        # A server that does not accept it sends updates that no client receives.
                        with contextlib.suppress(LimpetError):
                            await self._request("resources/unsubscribe", {"uri": uri})
        finally:
            self._unsubscribing = None

    def close(self) -> None:
        """Stop listening, and stop to unsubscribe."""
        for task in (self._unsubscribing, self._listening):
            if task is not None:
                task.cancel()
        self._end_former()

    def _end_former(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        for former in self._former:
            former.cancel()
        self._former.clear()

    def _filter(self, agreed: Agreed) -> dict[str, Any]:
        names: dict[Kind, tuple[str, ...]] = dict.fromkeys(LIST_KINDS, ("",))
        names["resource"] = self.uris
        return Filter(names).within(agreed.capabilities).to_wire()

    def _listen(self, agreed: Agreed) -> None:
        """Open a listen stream for everything; it replaces the one before."""
        if self._listening is not None:
            self._former.append(self._listening)
            self._listening = None
        wanted = self._filter(agreed)
        if not wanted:
            self._end_former()
            return
        loop = asyncio.get_running_loop()
        self._ready.clear()
        self._listening = loop.create_task(self._keep_listening(wanted))
        if self._former and self._patience is None:
            self._patience = loop.call_later(READY_SECONDS, self._end_former)

    async def _keep_listening(self, wanted: dict[str, Any]) -> None:
        while True:
            try:
                await self._connection.request("subscriptions/listen", {"notifications": wanted})
            except LimpetError as error:
                self._observer.note("upstream.listen_broke", error=error)
            self._broke = True
            self._ready.set()
            await asyncio.sleep(_AGAIN_SECONDS)
