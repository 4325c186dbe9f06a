"""`Server`: authors register functions with it, and serve it over HTTP, stdio or inside an ASGI application.

A server has its catalogs and one engine. The engine is built on first use, and all endpoints of the server share
it. Functions can be registered before the server runs and while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace
from typing_extensions import override

from limpet.auth import Verifier
from limpet.auth.scopes import needs_of
from limpet.config import Eras, HttpSettings, Settings, StateOf
from limpet.core.eras import with_eras
from limpet.core.names import NAME_KINDS, Names, NamesOfNames, Naming
from limpet.errors import ConfigError
from limpet.ports import Observer
from limpet.protocol.patience import HandOverTime
from limpet.protocol.subscriptions import Change
from limpet.protocol.types import Icon, Implementation
from limpet.server.authoring.caching import CacheSettings
from limpet.server.authoring.included_servers import check_included
from limpet.server.authoring.middleware import Middleware
from limpet.server.authoring.registration import Registration
from limpet.server.authoring.routes import Route, RouteHandler, check_public
from limpet.server.catalog.catalog import Catalog, Rename
from limpet.server.catalog.server_scopes import server_scopes
from limpet.server.context.foreign_names import FOREIGN_SERVER, refuse_foreign, renamed
from limpet.server.context.handles import check_strangers
from limpet.server.running.scope_rules import ServerRules
from limpet.server.served import Served

if TYPE_CHECKING:
    from limpet.backs.several.back import SeveralBack
    from limpet.engine.back import Back
    from limpet.engine.engine import Engine
    from limpet.fronts.http.front import HttpFront
    from limpet.server.behind import Included
    from limpet.server.proxy import Proxy
    from limpet.server.running.native_back import NativeBack
    from limpet.stores.base import Store

M = TypeVar("M", bound=Middleware)
R = TypeVar("R", bound=RouteHandler)


class Server(Served, Registration):
    """An MCP server whose tools, resources and prompts are Python functions."""

    _back: NativeBack | None = None
    _several: SeveralBack | None = None

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
        hand_over: HandOverTime | None = None,
        scopes: Collection[str] = (),
        implied_scopes: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """Describe the server. This starts no task and opens no connection.

        `lifespan` returns an asynchronous context manager, or is an async generator function. It gets the
        server if it has a parameter without a default, is entered once per process, and the value that it
        yields is `ctx.lifespan`. `store` is a store or the URL of one (`sqlite:///path`, `redis://…`); the
        default is memory. `namespace` separates servers that share a store; the default is the server's
        name. `observer` receives events; the default logs them under `limpet`. `cache` is the caching hint
        that clients of 2026-07-28 receive, for all methods or by method. `eras`, `eras_by_client`,
        `mask_errors`, `state` and `hand_over` override the members of `settings` with these names. `scopes` are the
        scopes that a principal needs for each tool, resource and prompt of this server. `implied_scopes` are, by scope,
        the narrower scopes that it stands for: `{"mail": {"mail.read", "mail.send"}}`.

        Raises:
            ConfigError: the name is empty, or `cache`, `eras`, `eras_by_client`, `state`, `hand_over` or a scope is
                invalid.
        """
        if not str(name).strip():
            raise ConfigError(
                f'a server has a name that its clients show, as in Server("weather"), not {name!r}'
            )
        info = Implementation(
            name=name,
            version=version,
            title=title,
            website_url=website_url,
            icons=list(icons) if icons is not None else None,
        )
        server_needs = server_scopes(name, scopes, implied_scopes)
        super().__init__(info, instructions, server_needs, cache=cache, lifespan=lifespan)
        self.scopes.use(ServerRules(self))
        given = {"mask_errors": mask_errors or None, "state": state, "hand_over": hand_over}
        settings = replace(settings, **{name: value for name, value in given.items() if value is not None})
        settings = with_eras(settings, eras, eras_by_client)
        self._set_up(name, settings, store=store, namespace=namespace, verifier=verifier, observer=observer)
        self.behind: list[Included] = []
        """The servers of other kinds that it includes."""

    def __repr__(self) -> str:
        counts = f"{len(self.tools)} tools, {len(self.resources)} resources, {len(self.prompts)} prompts"
        return f"<Server {self.info.name}: {counts}>"

    if not TYPE_CHECKING:

        def __new__(cls, *_args: object, **options: object) -> Any:
            if cls.__init__ is Server.__init__:
                refuse_foreign(options)
            return super().__new__(cls)

        # `inspect.signature` and `help` show the parameters of `__init__`.
        __new__.__wrapped__ = __init__

        def __getattr__(self, name: str) -> Any:
            raise renamed(self, name, FOREIGN_SERVER)

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def native(self) -> NativeBack:
        """The back that calls its functions."""
        if self._back is None:
            from limpet.server.running.launch import NativeBack  # noqa: PLC0415 - only a server that runs needs it

            self._back = NativeBack(self)
        return self._back

    @property
    def back(self) -> Back:
        """The back that the engine calls."""
        if not self.behind:
            return self.native
        if self._several is None:
            from limpet.server.behind import several_back  # noqa: PLC0415 - only a server with others behind it needs it

            self._several = several_back(self, self.native, self._observer)
        return self._several

    @property
    def version(self) -> str:
        return self.info.version

    @property
    def summary(self) -> str:
        """How many tools, resources, templates and prompts the server has now, and how many servers are behind it."""
        counts = {
            "tool": len(self.tools),
            "resource": len(self.resources),
            "template": len(self.templates),
            "prompt": len(self.prompts),
        }
        own = [f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count]
        names = ", ".join(one.name for one in self.behind)
        return ", ".join([*own, f"in front of {names}"] if names else own)

    # Around requests, and beside them

    @override
    def shown(self) -> Back:
        if not self.behind:
            return super().shown()
        from limpet.server.behind import around  # noqa: PLC0415 - only a server with others behind it needs it

        return around(self, self.back, self._observer)

    def middleware(self, middleware: M) -> M:
        """Put `async (request, call_next) -> result` around every request; the first added is outermost."""
        self.declared.middleware.append(middleware)
        if self._back is not None and not self.behind:
            self._back.compose()
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

    def include(self, other: Server | Proxy, prefix: str | None = None, *, name: str | None = None) -> None:
        """Offer the tools, resources, prompts and completions of another server, now and after later changes.

        With a prefix, names become `prefix_name` and URIs `scheme://prefix/rest`. The lifespan of the other
        server is entered with this one's, and its functions see their own value. Its middleware runs around
        its own components, inside the middleware of this server. Its listeners are called for the sessions of
        this server. Its routes, and its visibility by session or principal, are not included.

        A `Remote`, `Process` or `Hosted` has its own connection for each session, and its own health under `name`; the
        default is the prefix. If it is down, or does not answer in time, only its components are missing. A name
        that two of them have belongs to this server first, then to the one that was included first.

        Raises:
            ConfigError: a name is taken, the other server has a verifier, or it would include itself; no component
                was included.
        """
        if not isinstance(other, Server):
            from limpet.server.behind import included  # noqa: PLC0415 - only a server with others behind it needs it

            self.behind.append(included(self, other, prefix, name))
            return
        check_included(other, self)
        if other.behind:
            raise ConfigError(
                f"{other.name!r} cannot be included: there are servers behind it, which this server can include itself"
            )
        names: Naming = Names(prefix or "")
        if other.naming is not None:
            names = NamesOfNames(other.naming, names)
        tool, prompt, uri = (partial(names.outer, kind) for kind in NAME_KINDS)
        followed: list[tuple[Catalog[Any], Catalog[Any], Rename]] = [
            (self.tools, other.tools, tool),
            (self.prompts, other.prompts, prompt),
            (self.resources, other.resources, uri),
            (self.templates, other.templates, uri),
        ]
        for mine, theirs, rename in followed:
            mine.check_follow(theirs, rename)
        for mine, theirs, rename in followed:
            mine.follow(theirs, rename, other)
        self.declared.included.append((other, lambda: other.declared.completers_for(prompt, uri, other)))
        other.declared.hosts.append((self, uri))

    async def resource_updated(self, uri: str) -> None:
        """Notify every client that subscribed to this resource, also through servers that include this one."""
        shown = self.name_for_clients("resources", uri)
        if shown is not None and self.is_built and self.engine.started:
            await self.engine.changed(Change("resource", shown))
        for host, rename in self.declared.hosts:
            if (there := rename(uri)) is not None:
                await host.resource_updated(there)

    # Serving

    @override
    def front(self, settings: HttpSettings) -> HttpFront:
        """Build the HTTP endpoint, and the engine if it does not exist yet.

        Raises:
            ConfigError: with `state="principal"`, anonymous clients of other machines would share one state; or a
                component needs scopes or a route demands a principal, and there is no verifier.
        """
        if self.verifier is None and self.behind:
            from limpet.server.behind import verifier_of_tokens  # noqa: PLC0415 - only a server with others behind it needs it

            self.verifier: Verifier | None = verifier_of_tokens(self)
        if self.verifier is None:
            check_public(self.routes)
            self.scopes.open()
            if self.settings.state == "principal":
                check_strangers(settings)
        return super().front(settings)

    @override
    def pages(self, host: Served, settings: HttpSettings) -> list[Route]:
        """Return its routes, and the pages of the servers behind it.

        Raises:
            ConfigError: a server behind cannot serve these clients.
        """
        _ = (
            self.back
        )  # It has those of the servers behind, which must belong to this one before they are used.
        behind = [page for one in self.behind for page in one.proxy.pages(host, settings)]
        if self._several is not None and host.verifier is None:
            self._several.shares_anonymous = not settings.serves_strangers
        return [*super().pages(host, settings), *behind]

    @property
    @override
    def engine(self) -> Engine:
        """The engine that all endpoints of this server share. It is built on first use.

        Raises:
            ConfigError: the settings or the store cannot work in front of another server.
        """
        if self._engine is not None:
            return self._engine
        engine = super().engine
        for one in self.behind:
            one.proxy.check_key(self, is_shared=engine.store.is_shared)
        return engine
