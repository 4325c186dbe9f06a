"""Resources, prompts, completion, and changes that the server reports."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self

from holdfast.client.base import Requester
from holdfast.client.listening import Change, Kind, Listener
from holdfast.client.paging import Pages
from holdfast.client.results import typed
from holdfast.errors import HoldfastError, LinkError, McpError
from holdfast.protocol.content import ResourceContents
from holdfast.protocol.listing import Prompt, Resource, ResourceTemplate
from holdfast.protocol.params import PromptReference, ResourceReference
from holdfast.protocol.results import (
    CompleteResult,
    Completion,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
)
from holdfast.upstream.backoff import Backoff


class Resources(Requester):
    """A client's resources and prompts."""

    async def list_resources(self, *, fresh: bool = False) -> list[Resource]:
        """Return every resource, over all pages."""
        return [resource async for resource in self.resources(fresh=fresh)]

    async def resources(self, *, fresh: bool = False) -> AsyncIterator[Resource]:
        """Yield every resource, requesting the next page when it is needed."""
        async for page in Pages(self, "resources/list", ListResourcesResult, fresh=fresh):
            for resource in page.resources:
                yield resource

    async def list_resource_templates(self, *, fresh: bool = False) -> list[ResourceTemplate]:
        """Return every resource template, over all pages."""
        return [template async for template in self.resource_templates(fresh=fresh)]

    async def resource_templates(self, *, fresh: bool = False) -> AsyncIterator[ResourceTemplate]:
        """Yield every resource template, requesting the next page when it is needed."""
        pages = Pages(self, "resources/templates/list", ListResourceTemplatesResult, fresh=fresh)
        async for page in pages:
            for template in page.resource_templates:
                yield template

    async def read_resource(
        self, uri: str, *, timeout: float | None = None, fresh: bool = False
    ) -> list[ResourceContents]:
        """Return a resource's contents."""
        result = await self.request("resources/read", {"uri": uri}, timeout=timeout, fresh=fresh)
        return typed(result, ReadResourceResult, "resources/read").contents

    async def list_prompts(self, *, fresh: bool = False) -> list[Prompt]:
        """Return every prompt, over all pages."""
        return [prompt async for prompt in self.prompts(fresh=fresh)]

    async def prompts(self, *, fresh: bool = False) -> AsyncIterator[Prompt]:
        """Yield every prompt, requesting the next page when it is needed."""
        async for page in Pages(self, "prompts/list", ListPromptsResult, fresh=fresh):
            for prompt in page.prompts:
                yield prompt

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> GetPromptResult:
        """Return a prompt's messages."""
        params: dict[str, Any] = {"name": name}
        if arguments:
            params["arguments"] = dict(arguments)
        return typed(
            await self.request("prompts/get", params, timeout=timeout), GetPromptResult, "prompts/get"
        )

    async def complete(
        self,
        ref: PromptReference | ResourceReference,
        argument: str,
        value: str = "",
        *,
        known: Mapping[str, str] | None = None,
    ) -> Completion:
        """Return completions for the beginning of an argument; `known` are the arguments that are given already."""
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if known:
            params["context"] = {"arguments": dict(known)}
        result = await self.request("completion/complete", params)
        return typed(result, CompleteResult, "completion/complete").completion

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources_list: bool = False,
        resources: Sequence[str] = (),
    ) -> "Changes":
        """Return an iterator over changes at the server. It survives broken connections.

        `resources` are the URIs to watch; the other three are the lists. After a broken connection, everything that may
        have changed meanwhile is reported with `missed`. It ends with `aclose`, or with the client.
        """
        asked: dict[Kind, bool] = {"tools": tools, "prompts": prompts, "resources": resources_list}
        wanted = (kind for kind, is_wanted in asked.items() if is_wanted)
        return Changes(self, Listener(wanted, resources))

    async def _subscribe(self, listener: Listener) -> None:
        for uri in listener.uris:
            self._subscribed[uri] += 1
            if self._subscribed[uri] == 1:
                await self.request("resources/subscribe", {"uri": uri})

    async def _unsubscribe(self, listener: Listener) -> None:
        for uri in listener.uris & self._subscribed.keys():
            self._subscribed[uri] -= 1
            if self._subscribed[uri] == 0:
                del self._subscribed[uri]
                try:
                    await self.request("resources/unsubscribe", {"uri": uri})
                except HoldfastError as error:
                    self._observer.note("client.not_unsubscribed", error=error)

    async def _keep_open(self, listener: Listener) -> None:
        """Keep a listen stream open (2026-07-28), and open it again whenever it ends."""
        backoff = Backoff(self._ports.random, self._times.backoff)
        was_open = False
        while True:
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
            except LinkError as error:
                self._observer.note("client.listen_broke", error=error)
            except HoldfastError as error:
                if isinstance(error, McpError):
                    listener.fail(error)
                    return
                self._observer.note("client.listen_broke", error=error)
            await asyncio.sleep(backoff.pause())

    async def _listen_once(self, listener: Listener) -> None:
        link = await self._connection.link()
        request = self._connection.outgoing(
            link, "subscriptions/listen", {"notifications": listener.filter()}
        )
        self._subscribers[request.id] = listener
        try:
            await link.request(request)
        finally:
            del self._subscribers[request.id]


class Changes:
    """An iterator over changes. It starts with the first `anext`. Waiting for a change may be cancelled."""

    def __init__(self, client: Resources, listener: Listener) -> None:
        self._client = client
        self._listener = listener
        self._keeping: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Changes {self._listener!r}>"

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
        """Start to listen, once. Returns when the server has confirmed it; a failed attempt is repeated in the background."""
        if self._keeping is not None:
            return
        client = self._client
        client._listeners.add(self._listener)
        self._keeping = asyncio.get_running_loop().create_task(client._keep_open(self._listener))
        if client.agreed.is_sessionless:
            await self._listener.acknowledged()
        else:
            await client._subscribe(self._listener)

    async def aclose(self) -> None:
        """Stop listening."""
        keeping, self._keeping = self._keeping, None
        if keeping is None:
            return
        self._client._listeners.discard(self._listener)
        keeping.cancel()
        await asyncio.wait({keeping})
        await self._client._unsubscribe(self._listener)
