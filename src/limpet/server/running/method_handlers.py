"""One handler for each method of both eras, on the catalogs of a server.

A component that a session may not see does not exist for that session.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from limpet.core.eras import supported_versions
from limpet.engine import task_requests
from limpet.errors import InvalidParams, ResourceNotFound
from limpet.protocol.types import (
    CacheableResult,
    CompleteParams,
    DiscoverResult,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PromptReference,
    ReadResourceParams,
    ResourceReference,
    Result,
    SetLevelParams,
)
from limpet.protocol.versions import SESSIONLESS
from limpet.server.authoring.caching import Cache
from limpet.server.authoring.completions import complete
from limpet.server.authoring.included_servers import by_name, by_uri, through
from limpet.server.authoring.middleware import Handler
from limpet.server.authoring.prompts import PromptEntry
from limpet.server.authoring.registration import Registration
from limpet.server.authoring.resources import ResourceEntry, TemplateEntry
from limpet.server.authoring.tools import ToolEntry
from limpet.server.catalog.catalog import Catalog
from limpet.server.catalog.pagination import page
from limpet.server.running.description import describe, sessionless_capabilities
from limpet.server.running.scope_rules import find_resource

if TYPE_CHECKING:
    from limpet.engine.exchange import Exchange

P = TypeVar("P")
R = TypeVar("R", bound=CacheableResult)
EMPTY: Final = Result()
Params = dict[str, Any]


class MethodHandlers:
    """The handlers of one server."""

    def __init__(self, server: Registration) -> None:
        self._server = server
        self._tools = server.tools
        self._resources = server.resources
        self._templates = server.templates
        self._prompts = server.prompts

    def table(self) -> dict[str, Handler]:
        """Return method → handler."""
        return {
            "ping": self.ping,
            "server/discover": self.discover,
            "tools/list": self.list_tools,
            "tools/call": self.call_tool,
            "resources/list": self.list_resources,
            "resources/templates/list": self.list_templates,
            "resources/read": self.read_resource,
            "resources/subscribe": self.subscribe,
            "resources/unsubscribe": self.unsubscribe,
            "prompts/list": self.list_prompts,
            "prompts/get": self.get_prompt,
            "completion/complete": self.complete,
            "logging/setLevel": self.set_level,
            **dict.fromkeys(task_requests.METHODS, self.answer_task_request),
        }

    async def answer_task_request(self, exchange: Exchange, params: Params) -> Result:  # noqa: ARG002
        """Answer `tasks/get`, `tasks/update` or `tasks/cancel`."""
        return await task_requests.answer(self._server.engine.tasks, exchange)

    async def ping(self, exchange: Exchange, params: Params) -> Result:  # noqa: ARG002
        """Answer a ping with an empty result."""
        return EMPTY

    async def discover(self, exchange: Exchange, params: Params) -> DiscoverResult:  # noqa: ARG002
        """Return the server's capabilities, and the versions that it serves to this client."""
        described = describe(self._server)
        versions = supported_versions(self._server.settings, exchange.session.record.client)
        result = DiscoverResult(
            supported_versions=list(versions),
            capabilities=sessionless_capabilities(self._server),
            instructions=described.get("instructions"),
        )
        # A client with its own eras must not get the cached answer of another client.
        alike = not self._server.settings.eras_by_client
        return self._hint("server/discover", result, alike=alike)

    # Tools

    def call_tool(self, exchange: Exchange, params: Params) -> Awaitable[Result]:
        """Call a tool. A plain function: the tool's own coroutine is the only one."""
        name = params.get("name")
        entry = self._tools.get(name, exchange) if type(name) is str else None
        if entry is None:
            raise InvalidParams(f"Unknown tool: {str(name)[:128]}")
        if entry.within:
            return self._run_within(entry, exchange, params)
        run, arguments = entry.run, params.get("arguments")
        if type(arguments) is not dict:
            arguments = _arguments(params)
        return run(exchange, arguments, self._server)

    async def list_tools(self, exchange: Exchange, params: Params) -> ListToolsResult:
        """List a page of tools."""
        entries, cursor = self._page(self._tools, exchange, params)
        result = ListToolsResult(tools=[entry.listed for entry in entries], next_cursor=cursor)
        return self._hinted(exchange, "tools/list", result, self._tools)

    # Resources

    async def list_resources(self, exchange: Exchange, params: Params) -> ListResourcesResult:
        """List a page of resources."""
        entries, cursor = self._page(self._resources, exchange, params)
        result = ListResourcesResult(resources=[entry.listed for entry in entries], next_cursor=cursor)
        return self._hinted(exchange, "resources/list", result, self._resources)

    async def list_templates(self, exchange: Exchange, params: Params) -> ListResourceTemplatesResult:
        """List a page of templates."""
        entries, cursor = self._page(self._templates, exchange, params)
        result = ListResourceTemplatesResult(
            resource_templates=[entry.listed for entry in entries], next_cursor=cursor
        )
        return self._hinted(exchange, "resources/templates/list", result, self._templates)

    async def read_resource(self, exchange: Exchange, params: Params) -> Result:
        """Read the resource of a URI."""
        uri = _read(params, ReadResourceParams).uri
        entry, values = self._find(uri, exchange)

        async def read(_given: Params) -> Result:
            result = await entry.run(exchange, uri, values, self._server)
            if exchange.session.revision is not SESSIONLESS or isinstance(result, InputRequiredResult):
                return result
            return self._hint("resources/read", result, entry.cache)

        return await through(entry.within, by_uri(values), read, exchange, self._server)(params)

    async def subscribe(self, exchange: Exchange, params: Params) -> Result:
        """Remember that the session wants to know when a resource changes."""
        uri = _read(params, ReadResourceParams).uri
        entry, values = self._find(uri, exchange)

        async def keep(_given: Params) -> Result:
            return await self._subscribe(exchange, uri)

        return await through(entry.within, by_uri(values), keep, exchange, self._server)(params)

    async def _subscribe(self, exchange: Exchange, uri: str) -> Result:
        shown = self._server.name_for_clients("resources", uri) or uri
        if not await exchange.store.subscribe(exchange.session.record.key, shown):
            limits = exchange.session.limits
            most = f"{limits.subscriptions}, with {limits.subscription_bytes} bytes of URIs"
            raise InvalidParams(f"Too many subscriptions: a session may have {most}")
        return EMPTY

    async def unsubscribe(self, exchange: Exchange, params: Params) -> Result:
        """End a subscription. An unknown one is not an error."""
        uri = _read(params, ReadResourceParams).uri
        shown = self._server.name_for_clients("resources", uri) or uri
        await exchange.store.unsubscribe(exchange.session.record.key, shown)
        return EMPTY

    def _find(self, uri: str, exchange: Exchange) -> tuple[ResourceEntry | TemplateEntry, dict[str, str]]:
        found = find_resource(self._server, uri, exchange)
        if found is None:
            raise ResourceNotFound(uri)
        return found

    # Prompts

    async def list_prompts(self, exchange: Exchange, params: Params) -> ListPromptsResult:
        """List a page of prompts."""
        entries, cursor = self._page(self._prompts, exchange, params)
        result = ListPromptsResult(prompts=[entry.listed for entry in entries], next_cursor=cursor)
        return self._hinted(exchange, "prompts/list", result, self._prompts)

    def get_prompt(self, exchange: Exchange, params: Params) -> Awaitable[Result]:
        """Get a prompt's messages."""
        name = params.get("name")
        entry = self._prompts.get(name, exchange) if type(name) is str else None
        if entry is None:
            raise InvalidParams(f"Unknown prompt: {str(name)[:128]}")
        if entry.within:
            return self._run_within(entry, exchange, params)
        return entry.run(exchange, _arguments(params), self._server)

    def _run_within(
        self, entry: ToolEntry | PromptEntry, exchange: Exchange, params: Params
    ) -> Awaitable[Result]:
        """Call a function of an included server, through the middleware of the servers that it comes from."""

        def inner(given: Params) -> Awaitable[Result]:
            return entry.run(exchange, _arguments(given), self._server)

        return through(entry.within, by_name, inner, exchange, self._server)(params)

    # The rest

    async def complete(self, exchange: Exchange, params: Params) -> Result:
        """Complete an argument.

        A prompt or template that the client may not see is refused like one that does not exist.
        """
        asked = _read(params, CompleteParams)
        self._check_reference(asked.ref, exchange)
        access, caller = self._server.scopes.access, exchange.caller
        # A function of an included server for any prompt completes those of other servers too: it needs the scopes of
        # its server.
        allowed = [
            item
            for item in self._server.declared.completers()
            if not any(access.missing(layer.server.scopes.needs.scopes, caller) for layer in item.within)
        ]
        return await complete(allowed, exchange, asked, self._server)

    def _check_reference(self, ref: PromptReference | ResourceReference, exchange: Exchange) -> None:
        if isinstance(ref, PromptReference):
            if self._prompts.get(ref.name, exchange) is None:
                raise InvalidParams(f"Unknown prompt: {ref.name[:128]}")
        elif (
            self._templates.get(ref.uri, exchange) is None
            and find_resource(self._server, ref.uri, exchange) is None
        ):
            raise InvalidParams(f"Unknown resource template: {ref.uri[:128]}")

    async def set_level(self, exchange: Exchange, params: Params) -> Result:
        """Store the log level of the session."""
        level = _read(params, SetLevelParams).level
        record = exchange.session.record
        await exchange.store.change(record.key, level=level)
        record.level = level
        return EMPTY

    def _hinted(self, exchange: Exchange, method: str, result: R, catalog: Catalog[Any]) -> R:
        """Return a list with its caching hint if the client's revision has hints."""
        if exchange.session.revision is not SESSIONLESS:
            return result
        hinted = self._hint(method, result, alike=catalog.is_alike)
        # A list of one user that others share would show them hidden components.
        return replace(hinted, cache_scope="private") if catalog.hides else hinted

    def _hint(self, method: str, result: R, cache: Cache | None = None, *, alike: bool = False) -> R:
        """Return a result with its caching hint.

        Clients may share it if every caller gets the same (`alike`) and neither a verifier nor a middleware
        can change it.
        """
        server = self._server
        shared = alike and server.verifier is None and not server.declared.middleware
        return (cache or server.declared.cache[method]).on(result, "public" if shared else "private")

    def _page(
        self, catalog: Catalog[Any], exchange: Exchange, params: Params
    ) -> tuple[list[Any], str | None]:
        cursor = params.get("cursor")
        if cursor is not None and type(cursor) is not str:
            raise InvalidParams("Invalid params: a cursor is a string")
        return page(catalog.visible(exchange), cursor, exchange.session.limits.page_size)


def _arguments(params: Params) -> Params:
    arguments = params.get("arguments")
    if arguments is None:
        return {}
    if type(arguments) is not dict:
        raise InvalidParams("Invalid params: arguments must be an object")
    return arguments


def _read(params: Params, kind: type[P]) -> P:
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"Invalid params: {error}") from None
