"""`Served`: the base class of everything that can be served. It has one engine, and the methods that serve it.

`Server` answers with functions of this process. `Remote`, `Process` and `Hosted` answer through another server. They
differ in their back; the engine, the store, HTTP, stdio and ASGI are the same.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Unpack, get_args

from limpet.auth import Verifier
from limpet.config import AdminSettings, HttpOptions, HttpSettings, Settings
from limpet.errors import ConfigError
from limpet.ports import Observer
from limpet.server.running.namespaces import namespace_of
from limpet.tracing import traced

if TYPE_CHECKING:
    from limpet.auth.forward_key import ForwardKey
    from limpet.auth.oauth.users import UserOAuth
    from limpet.backs.components import ComponentTable
    from limpet.core.names import Naming
    from limpet.engine.back import Back
    from limpet.engine.engine import Engine
    from limpet.fronts.http.asgi_host.mount import Mount
    from limpet.fronts.http.front import HttpFront
    from limpet.ops.operated import Operated
    from limpet.server.authoring.routes import Route
    from limpet.stores.base import Store

Transport = Literal["stdio", "http"]


class Served(ABC):
    """Something that can be served over HTTP, stdio or inside an ASGI application."""

    settings: Settings
    store: Store | str | None
    namespace: str
    verifier: Verifier | None
    label: str = ""
    """The name by which operators see it, in the log, the metrics, spans and the dashboard, if it is not `name`."""
    is_hosted: bool = False
    """True for an object of another framework in this process."""
    whole: Served | None = None
    """The server that it is a part of."""
    forward_key: ForwardKey | None = None
    """The operator's key for credentials that go from one process to another."""
    components: ComponentTable | None = None
    """Which components clients see, and under which names; None: all, under their own. Set it before anything uses
    the engine."""
    server_card: bool = False
    """Publish a Server Card and a catalogue, for everyone (`running/cards.py`). Needs `public_url`."""
    cards: list[dict[str, str]]
    """The entries of the catalogue. Servers of one process share it."""
    routes: list[Route]
    sign_ins: dict[str, list[UserOAuth]]
    """By path: the sign-ins of users to servers behind that end there."""
    _given_observer: Observer | None
    _operated: Operated | None = None
    _engine: Engine | None = None

    def _set_up(
        self,
        name: str,
        settings: Settings,
        *,
        store: Store | str | None,
        namespace: str | None,
        verifier: Verifier | None,
        observer: Observer | None,
    ) -> None:
        """Set the members of this class. This starts no task and opens no connection."""
        self.settings = settings
        self.store = store
        self.namespace = namespace or namespace_of(name)
        self.verifier = verifier
        self.routes, self.cards, self.sign_ins = [], [], {}
        self._given_observer = observer

    @property
    @abstractmethod
    def name(self) -> str:
        """The server's name."""

    @property
    @abstractmethod
    def version(self) -> str:
        """The server's version; empty if it is not known yet."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """A short description of its components, for the banner of `limpet serve`."""

    @property
    @abstractmethod
    def back(self) -> Back:
        """The back that the engine calls."""

    @cached_property
    def _observer(self) -> Observer:
        if self._operated is not None:
            return self._operated.observer(self._given_observer)
        from limpet.server.running.launch import LogObserver  # noqa: PLC0415 - only a server that runs needs it

        return self._given_observer or LogObserver(server=self.label)

    @cached_property
    def naming(self) -> Naming | None:
        """The names under which clients know the components; None: their own."""
        table = self.components
        return None if table is None or table.is_empty else table.naming()

    def shown(self) -> Back:
        """Return the back under the names for clients."""
        from limpet.server.running.launch import shown_back  # noqa: PLC0415 - only a server that runs needs it

        return shown_back(self.back, self.naming, getattr(self.back, "is_hidden", None), self._observer)

    @property
    def engine(self) -> Engine:
        """The engine that all endpoints of this server share. It is built on first use."""
        if self._engine is None:
            from limpet.server.running.launch import Engine, store_for  # noqa: PLC0415 - only a server that runs needs it

            store = store_for(
                self.store, limits=self.settings.limits, namespace=self.namespace, observer=self._observer
            )
            back = self.shown()
            if self._operated is not None:
                store = self._operated.watched_store(store, self.settings.limits)
                back = self._operated.watched(back, self._observer, store)
                self._operated.back = self.back
            observer = traced(self._observer, self.label)
            self._engine = Engine(
                back, self.settings, store=store, observer=observer, forward_key=self.forward_key
            )
            if self._operated is not None:
                self._operated.attend(self._engine)
        return self._engine

    def operate(self, operated: Operated) -> None:
        """Log, count and show the calls of this server. Call it before anything uses the engine."""
        self._operated = operated
        operated.log.server = self.label

    def adopt(self, part: Served, name: str) -> Observer:
        """Take a server as a part of this one; operators see it under its own name. Return its observer."""
        operated = None if self._operated is None else self._operated.part(name)
        return part.belong(self, name, operated, self._given_observer)

    def belong(
        self, whole: Served, name: str, operated: Operated | None, observer: Observer | None
    ) -> Observer:
        """Be a part of another server; return the observer."""
        self.whole = whole
        self.label = f"{whole.label or whole.name}/{name}"
        self._given_observer = self._given_observer or observer
        if operated is not None:
            self.operate(operated)
        return self._observer

    @property
    def is_built(self) -> bool:
        """True if this process has built the engine."""
        return self._engine is not None

    def asgi(self, path: str = "/mcp", **http: Unpack[HttpOptions]) -> Mount:
        """Return an ASGI application that serves this server at a path.

        Further arguments are those of `HttpSettings`. The application starts on the lifespan event or on the
        first request, in the process that serves.
        """
        from limpet.server.running.launch import Mount  # noqa: PLC0415 - only a server that runs needs it

        settings = HttpSettings(path=path, **http)
        return Mount(lambda: self.front(settings), host_signals=settings.host_signals)

    def front(self, settings: HttpSettings) -> HttpFront:
        """Build the HTTP endpoint, and the engine if it does not exist yet.

        Raises:
            ConfigError: the settings do not fit this server.
        """
        from limpet.server.running.launch import HttpFront, applications, card_routes  # noqa: PLC0415 - only a server that runs needs it

        pages = [*self.pages(self, settings), *card_routes(self, settings)]
        routes = applications(pages, self.settings.limits.body_seconds)
        return HttpFront(self.engine, settings, verifier=self.verifier, routes=routes)

    def pages(self, host: Served, settings: HttpSettings) -> list[Route]:  # noqa: ARG002 - for servers in front of others
        """Prepare for the clients of an endpoint of `host`: of this server, or of one that includes it.

        Return the pages beside it.

        Raises:
            ConfigError: it cannot serve these clients.
        """
        return self.routes

    def run(
        self,
        transport: Transport = "stdio",
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        path: str = "/mcp",
        admin: AdminSettings | None = None,
        **http: Unpack[HttpOptions],
    ) -> None:
        """Serve until the client closes stdin (stdio) or a signal arrives; running calls may finish first.

        `admin` serves metrics, state and dashboard on its own address. Further arguments are those of
        `HttpSettings`.

        Raises:
            ConfigError: the address cannot be bound, other machines could call without a verifier, the admin surface
                has no token, or HTTP options were given for stdio.
        """
        from limpet.server.running.launch import (  # noqa: PLC0415 - only a server that runs needs it
            administered,
            check_http_system,
            run_http,
            run_stdio,
            trimmed,
        )

        if transport not in get_args(Transport):
            raise ConfigError(f"a server runs on stdio or http, not {transport!r}")
        if transport == "stdio" and (http or (host, port, path) != ("127.0.0.1", 8000, "/mcp")):
            raise ConfigError('these options are for HTTP, and run() serves stdio: write run("http", ...)')
        if transport == "http":
            check_http_system()
        try:
            with administered([self], admin) as beside:
                if transport == "stdio":
                    run_stdio(self.engine, beside=beside)
                else:
                    front = self.front(HttpSettings(path=path, **http))
                    run_http(front, host, port, ready=self._say_where, beside=beside)
        except Exception as error:  # noqa: BLE001 - raised again, without frames of Limpet
            raise trimmed(error) from error.__cause__

    def _say_where(self, url: str) -> None:
        sys.stderr.write(f"{self.name}: serving {url}\n")
        sys.stderr.flush()
