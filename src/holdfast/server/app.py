"""`Server`: authors register functions with it, and serve it over HTTP, stdio or inside an ASGI application.

A server has its catalogs and one engine. The engine is built on first use, and all endpoints of the server share
it. Functions can be registered before the server runs and while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from holdfast.auth import Verifier
from holdfast.auth.scopes import needs_of
from holdfast.config import Eras, HttpSettings, Settings, StateOf
from holdfast.engine.caller import Caller
from holdfast.ports import Observer
from holdfast.protocol.mirrored_headers import MirroredParameter
from holdfast.protocol.subscriptions import Change, Filter
from holdfast.protocol.tasks import EXTENSION
from holdfast.protocol.types import CacheableResult, Icon, Implementation, Result, ServerCapabilities
from holdfast.server.authoring.caching import Cache, CacheSettings, by_method
from holdfast.server.authoring.completions import Completer
from holdfast.server.authoring.included_servers import (
    check_included,
    check_unguarded,
    prefixed_name,
    prefixed_uri,
)
from holdfast.server.authoring.middleware import Middleware, surround
from holdfast.server.authoring.registration import Registration
from holdfast.server.authoring.routes import Route, RouteHandler, check_public
from holdfast.server.catalog.catalog import Audience, Catalog, Changed, View
from holdfast.server.catalog.server_scopes import server_scopes
from holdfast.server.context.foreign_names import FOREIGN_SERVER, renamed
from holdfast.server.context.handles import check_strangers
from holdfast.server.context.session_view import SessionView
from holdfast.server.functions.options import overlaid
from holdfast.server.running.method_handlers import MethodHandlers
from holdfast.server.running.scope_rules import ServerRules, find_resource
from holdfast.server.running.sessionless_results import SessionlessResults
from holdfast.server.served import Served

if TYPE_CHECKING:
    from holdfast.backs.native import Handler, NativeBack
    from holdfast.engine.access import Access
    from holdfast.engine.exchange import Client
    from holdfast.engine.sessionless_client import SessionlessClient
    from holdfast.fronts.http.front import HttpFront
    from holdfast.server.authoring.lifespan import Lifespan
    from holdfast.server.authoring.session_listeners import SessionListener, SessionListeners
    from holdfast.server.catalog.list_changed import Kind
    from holdfast.stores.base import Store

H = TypeVar("H", bound="SessionListener")
M = TypeVar("M", bound=Middleware)
C = TypeVar("C", bound=CacheableResult)
R = TypeVar("R", bound=RouteHandler)


class Server(Served, Registration):
    """An MCP server whose tools, resources and prompts are Python functions."""

    def __init__(  # noqa: PLR0913 - the properties of a server, all optional
        self,
        name: str,
        *,
        version: str = "0.0.0",
        title: str | None = None,
        instructions: str | None = None,
        icons: Iterable[Icon] | None = None,
        website_url: str | None = None,
        settings: Settings = Settings(),
        eras: Eras | None = None,
        eras_by_client: Mapping[str, Eras] | None = None,
        cache: CacheSettings | None = None,
        lifespan: Callable[..., Any] | None = None,
        store: Store | str | None = None,
        namespace: str | None = None,
        verifier: Verifier | None = None,
        observer: Observer | None = None,
        mask_errors: bool = False,
        state: StateOf | None = None,
        scopes: Collection[str] = (),
        implied_scopes: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """Describe the server. This starts no task and opens no connection.

        `lifespan` returns an asynchronous context manager, or is an async generator function. It gets the
        server if it has a parameter without a default, is entered once per process, and the value that it
        yields is `ctx.lifespan`. `store` is a store or the URL of one (`sqlite:///path`, `redis://…`); the
        default is memory. `namespace` separates servers that share a store; the default is the server's
        name. `observer` receives events; the default logs them under `holdfast`. `cache` is the caching hint
        that clients of 2026-07-28 receive, for all methods or by method. `eras`, `eras_by_client`,
        `mask_errors` and `state` override the members of `settings` with these names. `scopes` are the scopes
        that a principal needs for each tool, resource and prompt of this server. `implied_scopes` are, by scope,
        the narrower scopes that it stands for: `{"mail": {"mail.read", "mail.send"}}`.

        Raises:
            ConfigError: `cache`, `eras`, `eras_by_client`, `state` or a scope is invalid.
        """
        super().__init__(server_scopes(name, scopes, implied_scopes))
        self.scopes.use(ServerRules(self))
        self.info: Implementation = Implementation(
            name=name,
            version=version,
            title=title,
            website_url=website_url,
            icons=list(icons) if icons is not None else None,
        )
        self.instructions = instructions
        settings = overlaid(settings, eras, eras_by_client, mask_errors=mask_errors or None, state=state)
        self._set_up(name, settings, store=store, namespace=namespace, verifier=verifier, observer=observer)
        self._cache = by_method(cache)
        self._given_lifespan = lifespan
        self._middleware: list[Middleware] = []
        self._included: list[tuple[Server, Callable[[], list[Completer]]]] = []
        self._hosts: list[tuple[Server, Callable[[str], str]]] = []
        self._sessionless = SessionlessResults(self.info)
        self.handlers: Mapping[str, Handler] = MethodHandlers(self).table()
        """The handler of each method."""

    def __repr__(self) -> str:
        counts = f"{len(self.tools)} tools, {len(self.resources)} resources, {len(self.prompts)} prompts"
        return f"<Server {self.info.name}: {counts}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise renamed(self, name, FOREIGN_SERVER)

    @property
    def name(self) -> str:
        """The server's name."""
        return self.info.name

    @cached_property
    def back(self) -> NativeBack:
        """The back that the engine calls."""
        from holdfast.server.running.launch import NativeBack  # noqa: PLC0415 - only a server that runs needs it

        return NativeBack(self)

    @cached_property
    def _lifespan(self) -> Lifespan:
        from holdfast.server.authoring.lifespan import Lifespan  # noqa: PLC0415 - only a server that runs needs it

        return Lifespan(self._given_lifespan, self)

    @cached_property
    def _hooks(self) -> SessionListeners:
        from holdfast.server.authoring.session_listeners import SessionListeners  # noqa: PLC0415 - only a server that runs needs it

        return SessionListeners()

    @property
    def access(self) -> Access:
        """The scopes that requests need."""
        return self.scopes.access

    @property
    def version(self) -> str:
        """The server's version."""
        return self.info.version

    @property
    def summary(self) -> str:
        """How many tools, resources, templates and prompts the server has now."""
        counts = {
            "tool": len(self.tools),
            "resource": len(self.resources),
            "template": len(self.templates),
            "prompt": len(self.prompts),
        }
        return ", ".join(
            f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count
        )

    @property
    def lifespan_value(self) -> Any:
        """The value that the lifespan yielded; None without a lifespan or before it is entered."""
        return self._lifespan.value

    # Listeners

    def on_opened(self, hook: H) -> H:
        """Call the function with each session that is opened."""
        self._hooks.add("opened", hook)
        return hook

    def on_detached(self, hook: H) -> H:
        """Call the function with each session whose last connection broke."""
        self._hooks.add("detached", hook)
        return hook

    def on_reattached(self, hook: H) -> H:
        """Call the function with each detached session that has a connection again."""
        self._hooks.add("reattached", hook)
        return hook

    def on_closed(self, hook: H) -> H:
        """Call the function with each session that is closed, and with the reason if it has a second parameter."""
        self._hooks.add("closed", hook)
        return hook

    def on_roots_changed(self, hook: H) -> H:
        """Call the function with each session whose client reports that its roots have changed."""
        self._hooks.add("roots_changed", hook)
        return hook

    # Around requests, and beside them

    def middleware(self, middleware: M) -> M:
        """Put `async (request, call_next) -> result` around every request; the first added is outermost."""
        self._middleware.append(middleware)
        self.handlers = surround(MethodHandlers(self).table(), self._middleware, self)
        return middleware

    def route(
        self,
        path: str,
        *,
        methods: Iterable[str] = ("GET",),
        principal: bool = False,
        scopes: Collection[str] = (),
    ) -> Callable[[R], R]:
        """Serve `async (HttpRequest) -> HttpResponse` at a path beside the endpoint.

        The Host and Origin rules of the endpoint apply. With `principal=True` or `scopes`, a request also needs a
        valid token, with these scopes, and its principal is `HttpRequest.principal`; else the route is public.

        Raises:
            ConfigError: a scope is invalid.
        """
        needs = needs_of(scopes, f"route {path}")
        demanded = needs.scopes if principal or needs.scopes else None
        self.scopes.declare(needs)

        def register(handler: R) -> R:
            names = tuple(method.upper() for method in methods)
            self.routes.append(Route(path, names, handler, demanded))
            return handler

        return register

    def include(self, other: Server, prefix: str | None = None) -> None:
        """Offer the tools, resources, prompts and completions of another server, now and after later changes.

        With a prefix, names become `prefix_name` and URIs `scheme://prefix/rest`. The lifespan of the other
        server is entered with this one's, and its functions see their own value. Its middleware runs around
        its own components, inside the middleware of this server. Its listeners are called for the sessions of
        this server. Its routes, and its visibility by session or principal, are not included.

        Raises:
            ConfigError: a name is taken, the other server has a verifier, or it would include itself; no component
                was included.
        """
        check_included(other, self)
        name, uri = prefixed_name(prefix), prefixed_uri(prefix)
        followed: list[tuple[Catalog[Any], Catalog[Any], Callable[[str], str]]] = [
            (self.tools, other.tools, name),
            (self.prompts, other.prompts, name),
            (self.resources, other.resources, uri),
            (self.templates, other.templates, uri),
        ]
        for mine, theirs, rename in followed:
            mine.check_follow(theirs, rename)
        for mine, theirs, rename in followed:
            mine.follow(theirs, rename, other)
        self._included.append(
            (other, lambda: [item.included(name, uri, other) for item in other.completers()])
        )
        other._hosts.append((self, uri))

    def completers(self) -> list[Completer]:
        """Return the functions that complete arguments, those of included servers last."""
        return [*self.completions, *(item for _, completed in self._included for item in completed())]

    def all_included(self) -> list[Server]:
        """Return the servers that this one includes, directly or through others, each once."""
        found = [server for item, _ in self._included for server in (item, *item.all_included())]
        return list(dict.fromkeys(found))

    @property
    def chain(self) -> Sequence[Middleware]:
        """The middleware, the outermost first."""
        return self._middleware

    async def resource_updated(self, uri: str) -> None:
        """Notify every client that subscribed to this resource, also through servers that include this one."""
        if self.is_built and self.engine.started:
            await self.engine.changed(Change("resource", uri))
        for host, rename in self._hosts:
            await host.resource_updated(rename(uri))

    # Serving

    @override
    def front(self, settings: HttpSettings) -> HttpFront:
        """Build the HTTP endpoint, and the engine if it does not exist yet.

        Raises:
            ConfigError: with `state="principal"`, anonymous clients of other machines would share one state; or a
                component needs scopes or a route demands a principal, and there is no verifier.
        """
        if self.verifier is None:
            check_public(self.routes)
            self.scopes.open()
            if self.settings.state == "principal":
                check_strangers(settings)
        return super().front(settings)

    # The interface that the back calls (holdfast.backs.native.App)

    def describe(self) -> dict[str, Any]:
        """Return capabilities, server info and instructions for an initialize result.

        A capability is declared if the server has a component of its kind now.
        """
        capabilities = _capabilities(
            tools=bool(self.tools.entries),
            resources=bool(self.resources.entries or self.templates.entries),
            prompts=bool(self.prompts.entries),
            completions=bool(self.completers()),
        )
        described: dict[str, Any] = {"capabilities": capabilities, "serverInfo": self.info}
        return described if self.instructions is None else {**described, "instructions": self.instructions}

    def sessionless_capabilities(self) -> dict[str, Any]:
        """Return the capabilities of 2026-07-28: with the tasks extension if a tool can run as a task."""
        capabilities: dict[str, Any] = self.describe()["capabilities"]
        return {**capabilities, **EXTENSION} if self._has_tasks() else capabilities

    def _has_tasks(self) -> bool:
        """Return True if a tool can become a task."""
        return any(entry.task is not None for entry in self.tools.entries.values())

    def encode_sessionless(self, result: Result) -> bytes:
        """Encode a result with the members of 2026-07-28: its type, the server's info, the caching hint."""
        return self._sessionless.encode(result)

    def hint(self, method: str, result: C, cache: Cache | None = None, *, alike: bool = False) -> C:
        """Return a result with its caching hint.

        Clients may share it if every caller gets the same (`alike`) and neither a verifier nor a middleware
        can change it.
        """
        shared = alike and self.verifier is None and not self._middleware
        return (cache or self._cache[method]).on(result, "public" if shared else "private")

    def mirrored(self, tool: object, caller: Caller) -> tuple[MirroredParameter, ...]:
        """Return the parameters of a tool that HTTP headers repeat."""
        entry = self.tools.entries.get(tool) if type(tool) is str else None
        if entry is None or not entry.mirrored:
            return ()
        # A header that does not fit must not show that the tool exists.
        return entry.mirrored if self.tools.get(entry.key, View(caller)) is not None else ()

    def is_idempotent(self, tool: object, client: Client | None) -> bool:
        """Return True if a tool declares `idempotentHint` and, with a client, that client may see the tool."""
        if type(tool) is not str:
            return False
        if client is None:
            entry = self.tools.entries.get(tool)
        else:
            record = client.record
            entry = self.tools.switched(tool, View(Caller(record.principal), record.key))
        hints = entry.listed.annotations if entry is not None else None
        return hints is not None and hints.idempotent_hint is True

    async def honoured(self, client: SessionlessClient, wanted: Filter, caller: Caller) -> Filter:
        """Return the part of a listener's filter that it gets notifications for: declared, and visible to it."""
        honoured = wanted.within(self.sessionless_capabilities())
        uris = honoured.names.get("resource", ())
        tasks = await self.engine.tasks.known(honoured.names.get("task", ()), client.record.principal)
        view = View(caller)
        shown = [uri for uri in uris if find_resource(self, uri, view) is not None]
        return honoured.only("resource", shown).only("task", tasks)

    async def start(self) -> None:
        """Enter the lifespans: this server's, then those it includes.

        Raises:
            ConfigError: an included server is guarded, or the store lacks a part that this server needs.
        """
        if self._engine is not None:
            from holdfast.server.running.launch import check_parts  # noqa: PLC0415 - only a server that runs needs it

            needs_state = self.settings.state == "principal"
            check_parts(self._engine.store, needs_state=needs_state, needs_tasks=self._has_tasks())
        for child, _ in self._included:
            check_unguarded(child)
        entered: list[Lifespan] = []
        try:
            for server in (self, *self.all_included()):
                await server._lifespan.enter()
                entered.append(server._lifespan)
        except BaseException:
            for lifespan in reversed(entered):
                await lifespan.leave()
            raise
        self._list_changes.start()
        self._declare_rates()

    @override
    def _noting(self, kind: Kind) -> Changed:
        note = super()._noting(kind)

        def changed(audience: Audience) -> None:
            note(audience)
            if kind == "tools":
                self._declare_rates()

        return changed

    def _declare_rates(self) -> None:
        """Give the engine the rates of the tools: after the start, and after each change."""
        if self._engine is not None:
            tools = self.tools.entries.items()
            self._engine.rates.declare({name: entry.rate for name, entry in tools if entry.rate is not None})

    async def stop(self) -> None:
        """Leave the lifespans, the last one first."""
        self._list_changes.stop()
        for server in reversed((self, *self.all_included())):
            await server._lifespan.leave()

    async def heard(self, session: Client, method: str, params: dict[str, Any]) -> None:  # noqa: ARG002
        """Process a notification of a client; unknown ones are ignored."""
        if method == "notifications/roots/list_changed":
            await self.moved("roots_changed", session)

    def hears(self, event: str) -> bool:
        """Return True if this server, or one that it includes, has a listener of an event."""
        if self._hooks.has(event):
            return True
        return bool(self._included) and any(server._hooks.has(event) for server in self.all_included())

    async def moved(self, event: str, session: Client, *reason: str) -> None:
        """Call the listeners of an event."""
        for server in (self, *self.all_included()):
            await server._hooks.call(event, SessionView(session, self), *reason, observer=self._observer)
        if event == "closed":
            for catalog in (self.tools, self.resources, self.templates, self.prompts):
                catalog.forget(session.record.key)


@cache
def _capabilities(*, tools: bool, resources: bool, prompts: bool, completions: bool) -> dict[str, Any]:
    """Return the capabilities of these kinds of components: one object for all sessions, do not change it."""
    listed: dict[str, Any] = {"listChanged": True}
    return ServerCapabilities(
        tools=listed if tools else None,
        resources={"subscribe": True, **listed} if resources else None,
        prompts=listed if prompts else None,
        completions={} if completions else None,
        logging={},
    ).to_wire()
