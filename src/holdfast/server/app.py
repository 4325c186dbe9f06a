"""`Server`: what authors register their functions with, and what is served.

A server holds its catalogs and one engine, built when first needed; any number of mounts share
that engine. Registering is cheap and may go on while the server runs.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeVar, Unpack

from holdfast.auth import Verifier
from holdfast.backs.native import Handler, NativeBack
from holdfast.config import Eras, HttpOptions, HttpSettings, Settings, StateOf
from holdfast.engine.engine import Engine
from holdfast.engine.exchange import Client
from holdfast.engine.observe import LogObserver
from holdfast.engine.sessionless_client import SessionlessClient
from holdfast.errors import ConfigError
from holdfast.fronts.http.front import HttpFront
from holdfast.fronts.http.mount import Mount
from holdfast.fronts.http.serve import run_http
from holdfast.fronts.stdio import run_stdio
from holdfast.ports import Observer
from holdfast.protocol.mirror import Mirrored
from holdfast.protocol.subscriptions import Change, Filter
from holdfast.protocol.tasks import EXTENSION
from holdfast.protocol.types import CacheableResult, Icon, Implementation, Result, ServerCapabilities
from holdfast.server.authoring.caching import Cache, CacheSettings, by_method
from holdfast.server.authoring.completions import Completer
from holdfast.server.authoring.included_servers import check_included, check_unguarded
from holdfast.server.authoring.lifespan import Lifespan
from holdfast.server.authoring.middleware import Middleware, surround
from holdfast.server.authoring.registration import Registration
from holdfast.server.authoring.routes import Route, RouteHandler, applications
from holdfast.server.authoring.session_listeners import SessionListener, SessionListeners
from holdfast.server.catalog.catalog import Catalog
from holdfast.server.catalog.included_names import prefixed_name, prefixed_uri
from holdfast.server.context.handles import check_strangers
from holdfast.server.context.session_view import SessionView
from holdfast.server.functions.options import overlaid
from holdfast.server.running.method_handlers import MethodHandlers
from holdfast.server.running.sessionless_results import SessionlessResults
from holdfast.server.running.store_choice import check_parts, namespace_of, store_for
from holdfast.stores.base import Store

H = TypeVar("H", bound=SessionListener)
M = TypeVar("M", bound=Middleware)
C = TypeVar("C", bound=CacheableResult)
R = TypeVar("R", bound=RouteHandler)
Transport = Literal["stdio", "http"]


class Server(Registration):
    """An MCP server made of functions."""

    settings: Settings
    _engine: Engine | None = None

    def __init__(  # noqa: PLR0913 - what describes a server, all optional
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
    ) -> None:
        """Describe the server.

        `lifespan` makes an asynchronous context manager (or is an async generator function); it
        is given the server if it takes a parameter, is entered once per process, and what it
        yields is `ctx.lifespan`. `store` is a store or a store's URL (`sqlite:///path`, `redis://…`);
        without one sessions live in memory. `namespace` keeps servers apart that share a store; it
        is the server's name unless given. Without an `observer` events are logged under
        `holdfast`. `eras` and `eras_by_client` are those of `Settings`. `cache` is what clients of
        2026-07-28 are told of keeping what they get, in all or by method. `mask_errors` and
        `state` are those of `Settings`.

        Raises:
            ConfigError: a caching hint, or an era, is none.
        """
        super().__init__()
        self.info: Implementation = Implementation(
            name=name,
            version=version,
            title=title,
            website_url=website_url,
            icons=list(icons) if icons is not None else None,
        )
        self.instructions = instructions
        self.settings = overlaid(settings, eras, eras_by_client, mask_errors=mask_errors or None, state=state)
        self._cache = by_method(cache)
        self.verifier = verifier
        self.routes: list[Route] = []
        self.store = store
        self.namespace: str = namespace or namespace_of(name)
        self._observer = observer or LogObserver()
        self._lifespan = Lifespan(lifespan, self)
        self._hooks = SessionListeners()
        self._middleware: list[Middleware] = []
        self._included: list[tuple[Server, Callable[[], list[Completer]]]] = []
        self._hosts: list[tuple[Server, Callable[[str], str]]] = []
        self._sessionless = SessionlessResults(self.info)
        self.handlers: Mapping[str, Handler] = MethodHandlers(self, self).table()
        """What answers each method."""

    def __repr__(self) -> str:
        counts = f"{len(self.tools)} tools, {len(self.resources)} resources, {len(self.prompts)} prompts"
        return f"<Server {self.info.name}: {counts}>"

    @property
    def name(self) -> str:
        """What it is called."""
        return self.info.name

    @cached_property
    def back(self) -> NativeBack:
        """This server as the engine sees it."""
        return NativeBack(self)

    @property
    def engine(self) -> Engine:
        """The one engine that all mounts of this server share, built when the first of them is used."""
        if self._engine is None:
            store = store_for(
                self.store, limits=self.settings.limits, namespace=self.namespace, observer=self._observer
            )
            self._engine = Engine(self.back, self.settings, store=store, observer=self._observer)
        return self._engine

    @property
    def is_built(self) -> bool:
        """Whether this process has built the engine."""
        return self._engine is not None

    @property
    def lifespan_value(self) -> Any:
        """What the lifespan yielded; None while there is none."""
        return self._lifespan.value

    # Listeners

    def on_opened(self, hook: H) -> H:
        """Call with each session that was opened."""
        self._hooks.add("opened", hook)
        return hook

    def on_detached(self, hook: H) -> H:
        """Call with each session whose last connection broke."""
        self._hooks.add("detached", hook)
        return hook

    def on_reattached(self, hook: H) -> H:
        """Call with each session that came back."""
        self._hooks.add("reattached", hook)
        return hook

    def on_closed(self, hook: H) -> H:
        """Call with each session that ended, and with the reason if the function takes it."""
        self._hooks.add("closed", hook)
        return hook

    def on_roots_changed(self, hook: H) -> H:
        """Call with each session whose client says that its roots have changed."""
        self._hooks.add("roots_changed", hook)
        return hook

    # Around requests, and beside them

    def middleware(self, middleware: M) -> M:
        """Put `async (request, call_next) -> result` around every request; the first added is outermost."""
        self._middleware.append(middleware)
        self.handlers = surround(MethodHandlers(self, self).table(), self._middleware, self)
        return middleware

    def route(self, path: str, *, methods: Iterable[str] = ("GET",)) -> Callable[[R], R]:
        """Serve `async (HttpRequest) -> HttpResponse` at a path beside the endpoint, to everyone its Host and Origin rules admit."""

        def register(handler: R) -> R:
            self.routes.append(Route(path, tuple(method.upper() for method in methods), handler))
            return handler

        return register

    def include(self, other: "Server", prefix: str | None = None) -> None:
        """Offer another server's tools, resources, prompts and completions as this one's, now and as they change.

        With a prefix, names become `prefix_name` and URIs `scheme://prefix/rest`. Its lifespan is
        entered with this one's and is what its functions see; its middleware wraps its tools,
        resources, prompts and completions, inside this one's; its listeners are told of this server's
        sessions. Its routes and per-session visibility stay its own.

        Raises:
            ConfigError: a name is taken, it has a verifier, or it would include itself; nothing was included.
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
        """Return all that complete arguments here, those of included servers last."""
        return [*self.completions, *(item for _, completed in self._included for item in completed())]

    def all_included(self) -> "list[Server]":
        """Return the servers that this one includes, and those that they include, each once."""
        found = [server for item, _ in self._included for server in (item, *item.all_included())]
        return list(dict.fromkeys(found))

    @property
    def chain(self) -> Sequence[Middleware]:
        """Its middleware, the outermost first."""
        return self._middleware

    async def resource_updated(self, uri: str) -> None:
        """Tell every client that subscribed to this resource, also through servers that include this one."""
        if self.is_built and self.engine.started:
            await self.engine.changed(Change("resource", uri))
        for host, rename in self._hosts:
            await host.resource_updated(rename(uri))

    # Serving

    def asgi(self, path: str = "/mcp", **http: Unpack[HttpOptions]) -> Mount:
        """Return an ASGI application that serves this server at a path.

        Further arguments are those of `HttpSettings`. It builds and starts itself on first use, in the
        process that serves, and honours lifespan.
        """
        settings = HttpSettings(path=path, **http)
        return Mount(lambda: self.front(settings), host_signals=settings.host_signals)

    def front(self, settings: HttpSettings) -> HttpFront:
        """Build the HTTP endpoint, and the engine if no other endpoint has.

        Raises:
            ConfigError: anonymous clients of other machines would share one state.
        """
        if self.settings.state == "principal" and self.verifier is None:
            check_strangers(settings)
        routes = applications(self.routes, self.engine.settings.limits.body_seconds)
        return HttpFront(self.engine, settings, verifier=self.verifier, routes=routes)

    def run(
        self,
        transport: Transport = "stdio",
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        path: str = "/mcp",
        **http: Unpack[HttpOptions],
    ) -> None:
        """Serve until the client hangs up (stdio) or a signal stops it, and let running calls finish.

        Further arguments are those of `HttpSettings`.

        Raises:
            ConfigError: the address cannot be bound, other machines could call without a verifier, or options of HTTP
                were given for stdio.
        """
        match transport:
            case "stdio":
                if http or (host, port, path) != ("127.0.0.1", 8000, "/mcp"):
                    raise ConfigError(
                        'these options are for HTTP, and run() serves stdio: write run("http", ...)'
                    )
                run_stdio(self.engine)
            case "http":
                front = self.front(HttpSettings(path=path, **http))
                run_http(front, host, port, ready=self._say_where)
            case _:
                raise ConfigError(f"a server runs on stdio or http, not {transport!r}")

    def _say_where(self, url: str) -> None:
        sys.stderr.write(f"{self.name}: serving {url}\n")
        sys.stderr.flush()

    # What the back asks (holdfast.backs.native.App)

    def describe(self) -> dict[str, Any]:
        """Return what an initialize result says of this server: what it has now, it has."""
        listed: dict[str, Any] = {"listChanged": True}
        has_resources = len(self.resources) or len(self.templates)
        capabilities = ServerCapabilities(
            tools=listed if len(self.tools) else None,
            resources={"subscribe": True, **listed} if has_resources else None,
            prompts=listed if len(self.prompts) else None,
            completions={} if self.completers() else None,
            logging={},
        )
        described: dict[str, Any] = {"capabilities": capabilities.to_wire(), "serverInfo": self.info}
        return described if self.instructions is None else {**described, "instructions": self.instructions}

    def sessionless_capabilities(self) -> dict[str, Any]:
        """Return the capabilities of 2026-07-28: with tasks, if any tool can be one."""
        capabilities: dict[str, Any] = self.describe()["capabilities"]
        return {**capabilities, **EXTENSION} if self._has_tasks() else capabilities

    def _has_tasks(self) -> bool:
        """Return True if a tool can become a task."""
        return any(entry.task is not None for entry in self.tools.entries.values())

    def encode_sessionless(self, result: Result) -> bytes:
        """Encode a result as 2026-07-28 has it: its type, who answers, and how long it may be kept."""
        return self._sessionless.encode(result)

    def hint(self, method: str, result: C, cache: Cache | None = None, *, alike: bool = False) -> C:
        """Return a result with its caching hint; it may be shared if all callers get an alike one, unguarded."""
        shared = alike and self.verifier is None and not self._middleware
        return (cache or self._cache[method]).on(result, "public" if shared else "private")

    def mirrored(self, tool: object) -> tuple[Mirrored, ...]:
        """Return the parameters of a tool that headers mirror."""
        entry = self.tools.entries.get(tool) if type(tool) is str else None
        return entry.mirrored if entry is not None else ()

    def is_idempotent(self, tool: object, client: Client | None) -> bool:
        """Tell whether a tool declares `idempotentHint`; with a client, only one that it may see."""
        if type(tool) is not str:
            return False
        entry = self.tools.entries.get(tool) if client is None else self.tools.get(tool, client)
        hints = entry.listed.annotations if entry is not None else None
        return hints is not None and hints.idempotent_hint is True

    async def honoured(self, client: SessionlessClient, wanted: Filter) -> Filter:
        """Return what of a listener's filter it will be told of: what is declared, and of that what it may see."""
        honoured = wanted.within(self.sessionless_capabilities())
        uris = honoured.names.get("resource", ())
        tasks = await self.engine.tasks.known(honoured.names.get("task", ()), client.record.principal)
        return honoured.only("resource", [uri for uri in uris if self._shows(uri, client)]).only(
            "task", tasks
        )

    def _shows(self, uri: str, client: Client) -> bool:
        templates = self.templates.visible(client).values()
        return self.resources.get(uri, client) is not None or any(
            entry.template.match(uri) is not None for entry in templates
        )

    async def start(self) -> None:
        """Enter the lifespans: this server's, then those it includes.

        Raises:
            ConfigError: an included server is guarded, or the store lacks a part that this server needs.
        """
        if self._engine is not None:
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

    async def stop(self) -> None:
        """Leave them, the last one first."""
        self._list_changes.stop()
        for server in reversed((self, *self.all_included())):
            await server._lifespan.leave()

    async def heard(self, session: Client, method: str, params: dict[str, Any]) -> None:  # noqa: ARG002
        """Take a client's notification; those nobody here waits for are passed over."""
        if method == "notifications/roots/list_changed":
            await self.moved("roots_changed", session)

    async def moved(self, event: str, session: Client, *reason: str) -> None:
        """Tell the listeners of an event."""
        for server in (self, *self.all_included()):
            await server._hooks.tell(event, SessionView(session, self), *reason, observer=self._observer)
        if event == "closed":
            for catalog in (self.tools, self.resources, self.templates, self.prompts):
                catalog.forget(session.record.key)
