"""`client.listen`: an iterator over the changes that the server reports. It survives broken connections.

A session reports changes on its standalone stream, after `resources/subscribe` for each resource. A server of
2026-07-28 reports them on a listen stream, which is opened again whenever it ends.
"""

import asyncio
from collections.abc import Sequence
from typing import Self

from limpet.client.base import Requester
from limpet.client.changes import Change, UnreadChanges
from limpet.errors import LimpetError, McpError
from limpet.protocol.subscriptions import ComponentKind
from limpet.upstream.backoff import Backoff


class ListeningClient(Requester):
    """A client's listeners."""

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources_list: bool = False,
        resources: Sequence[str] = (),
    ) -> "ChangeIterator":
        """Return an iterator over changes at the server. It survives broken connections.

        `resources` are the URIs to watch; the other three are the lists. After a broken connection, everything that may
        have changed meanwhile is reported with `missed`. It ends with `aclose`, or with the client.
        """
        asked: dict[ComponentKind, bool] = {"tools": tools, "prompts": prompts, "resources": resources_list}
        wanted = (kind for kind, is_wanted in asked.items() if is_wanted)
        return ChangeIterator(self, UnreadChanges(wanted, resources))

    async def _subscribe(self, listener: UnreadChanges) -> None:
        """Subscribe to the resources of a listener. One subscription serves all listeners of a resource."""
        async with self._subscribing:
            for uri in listener.uris:
                if uri not in self._subscribed:
                    await self.request("resources/subscribe", {"uri": uri})
                self._subscribed[uri] += 1
                listener.subscribed.add(uri)

    async def _unsubscribe(self, listener: UnreadChanges) -> None:
        async with self._subscribing:
            while listener.subscribed:
                uri = listener.subscribed.pop()
                self._subscribed[uri] -= 1
                if self._subscribed[uri] == 0:
                    del self._subscribed[uri]
                    try:
                        await self.request("resources/unsubscribe", {"uri": uri})
                    except LimpetError as error:
                        self._observer.note("client.not_unsubscribed", error=error)

    async def _keep_open(self, listener: UnreadChanges) -> None:
        """Keep a listen stream open (2026-07-28), and open it again whenever it ends."""
        backoff = Backoff(self._ports.random, self._times.backoff)
        was_open = False
        while not listener.has_failed:
            try:
                link = await self._connection.link()
                if not link.is_sessionless:
                    # A session reports changes on its standalone stream.
                    return
                if was_open:
                    listener.missed()
                was_open = True
                await self._listen_once(listener)
                backoff.worked()
            except McpError as error:
                listener.fail(error)
                return
            except LimpetError as error:
                self._observer.note("client.listen_broke", error=error)
            await asyncio.sleep(backoff.pause())

    async def _listen_once(self, listener: UnreadChanges) -> None:
        link = await self._connection.link()
        request = self._connection.outgoing(
            link, "subscriptions/listen", {"notifications": listener.filter()}
        )
        self._subscribers[request.id] = listener
        try:
            await link.request(request)
        finally:
            del self._subscribers[request.id]


class ChangeIterator:
    """An iterator over changes. It starts with the first `anext`. Waiting for a change may be cancelled."""

    def __init__(self, client: ListeningClient, listener: UnreadChanges) -> None:
        self._client = client
        self._listener = listener
        self._keeping: asyncio.Task[None] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        """Wait for the next change."""
        await self.start()
        return await self._listener.next()

    async def __aenter__(self) -> Self:
        """Start to listen now: later changes are reported."""
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Start to listen, once.

        Returns when the server has confirmed it; a failed attempt is repeated in the background.

        Raises:
            McpError: the server refuses the subscription to a resource. The next call tries again.
        """
        if self._keeping is not None:
            return
        client = self._client
        client._listeners.add(self._listener)
        self._keeping = asyncio.get_running_loop().create_task(client._keep_open(self._listener))
        try:
            if client.agreed.is_sessionless:
                await self._listener.acknowledged()
            else:
                await client._subscribe(self._listener)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Stop listening."""
        keeping, self._keeping = self._keeping, None
        if keeping is None:
            return
        self._client._listeners.discard(self._listener)
        keeping.cancel()
        await asyncio.wait({keeping})
        await self._client._unsubscribe(self._listener)
