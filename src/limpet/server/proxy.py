"""`Proxy`: a server in front of another one, whose sessions, ids, replay and limits are then ours.

`Remote`, `Process` and `Hosted` are its kinds, each in its own module. They are served as a `Server` is. The server
behind keeps the state of a session in one process, its home; a request that another process receives is forwarded there
(`engine/home.py`). With `home="any"` each process answers by itself.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypedDict, TypeVar

from msgspec.structs import replace
from typing_extensions import override

from limpet.auth import Verifier
from limpet.auth.forward_key import HOW_TO_MAKE, ForwardKey
from limpet.backs.components import ComponentTable
from limpet.backs.proxy.back import ProxyBack
from limpet.backs.proxy.options import Home, ProxyOptions
from limpet.backs.proxy.passing import principal_of_token
from limpet.backs.proxy.scopes import NO_TABLE, ScopeTable
from limpet.backs.proxy.target import Target
from limpet.backs.shown import shown_back
from limpet.config import HttpSettings, Settings
from limpet.engine.back import Back
from limpet.engine.engine import Engine
from limpet.errors import ConfigError
from limpet.ports import Observer, Ports, SystemClock, SystemRandom
from limpet.protocol.subscriptions import Change
from limpet.server.authoring.middleware import Middleware
from limpet.server.authoring.routes import Route
from limpet.server.functions.options import check_options
from limpet.server.host import Host
from limpet.server.running.proxied_middleware import middleware_back
from limpet.server.served import Served
from limpet.stores.base import Store
from limpet.tracing import traced
from limpet.upstream.negotiation import VERSIONS
from limpet.upstream.settings import ClientLimits, ClientTimes

M = TypeVar("M", bound=Middleware)


class ProxyArguments(TypedDict, total=False):
    """The arguments that `Remote`, `Process` and `Hosted` share. All of them have a default."""

    concurrency: int | None
    """How many calls of one upstream connection run at once; None: no limit."""
    strict: bool
    """Close a session when the server behind loses its own."""
    home: Home
    """any: the server behind keeps nothing between two calls, so each process answers with its own connections."""
    options: ProxyOptions
    """The limits of a proxy. `concurrency`, `strict` and `home` override its members."""
    limits: ClientLimits
    """The limits of a connection to the server behind."""
    times: ClientTimes
    """The times of a connection to the server behind."""
    settings: Settings
    """As for `Server`; so are the following ones."""
    store: Store | str | None
    namespace: str | None
    verifier: Verifier | None
    scopes: ScopeTable
    """The scopes that callers need, by the names of tools, resources and prompts."""
    components: ComponentTable
    """Which tools, resources and prompts clients see, and under which names."""
    middleware: Sequence[Middleware]
    """Functions around every request except initialize, as `Server.middleware` adds them; the first is outermost."""
    observer: Observer | None
    forward_key: str | None
    """The key for clients' credentials that go from one process to another: 32 random bytes as base64. All processes
    need the same key, and it is not kept in the store."""


class Proxy(Served, Host):
    """A server in front of another one. `Remote`, `Process` and `Hosted` are its kinds."""

    def __init__(self, target: Target, given: ProxyArguments, **own: Any) -> None:
        check_options(given, ProxyArguments, "a server in front of another one")
        if target.version not in VERSIONS:
            raise ConfigError(f"the protocol version is one of {', '.join(VERSIONS)}; not {target.version!r}")
        self._target = target
        self.options: ProxyOptions = _overridden(given, own)
        self.scopes: ScopeTable = given.get("scopes", NO_TABLE)
        self.components: ComponentTable | None = given.get("components")
        self._middleware: list[Middleware] = list(given.get("middleware", ()))
        self._set_up(
            target.name,
            given.get("settings", Settings()),
            store=given.get("store"),
            namespace=given.get("namespace"),
            verifier=given.get("verifier"),
            observer=given.get("observer"),
        )
        if (key := given.get("forward_key")) is not None:
            self.forward_key: ForwardKey | None = ForwardKey(key, "forward_key")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def name(self) -> str:
        """The name of the server behind, as far as it is known without a connection."""
        return self._target.name

    @property
    def version(self) -> str:
        """Unknown before a client connects."""
        return ""

    @property
    def lifespan_value(self) -> Any:
        """None: a server behind has its own lifespan."""
        return None

    def middleware(self, middleware: M) -> M:
        """Put `async (request, call_next) -> result` around every request; the first added is outermost."""
        self._middleware.append(middleware)
        return middleware

    async def resource_updated(self, uri: str) -> None:
        """Notify every client that subscribed to this resource of the server behind."""
        shown = self.name_for_clients("resources", uri)
        if shown is not None and self.is_built and self.engine.started:
            await self.engine.changed(Change("resource", shown))

    @override
    def shown(self) -> Back:
        back = middleware_back(self.back, self._middleware, self)
        return shown_back(back, self.naming, self.back.is_hidden, self._observer)

    @cached_property
    def back(self) -> ProxyBack:
        """The back that the engine calls."""
        ports = Ports(SystemClock(), SystemRandom(), traced(self._observer))
        return ProxyBack(self._target, self.options, ports, self.scopes)

    @property
    def engine(self) -> Engine:
        """The engine: of this server, or of the one that includes it. It is built on first use.

        Raises:
            ConfigError: the settings or the store cannot work in front of another server.
        """
        if self.whole is not None:
            return self.whole.engine
        self.check_settings(self.settings)
        engine = super().engine
        self.check_key(self, is_shared=engine.store.is_shared)
        return engine

    def check_settings(self, settings: Settings) -> None:
        """Use the settings of the server that answers: this one, or one that includes it.

        Raises:
            ConfigError: they cannot work in front of another server.
        """
        if settings.stateless:
            raise ConfigError(
                f"{self!r} cannot be stateless: the server behind it keeps a session for each of our sessions"
            )
        self._target.masks_errors = settings.mask_errors

    def check_key(self, host: Served, *, is_shared: bool) -> None:
        """Refuse a server that answers without the key that it needs: this one, or one that includes it.

        Raises:
            ConfigError: it has no key.
        """
        if is_shared and self.back.needs_credentials and host.forward_key is None:
            raise ConfigError(
                f"{self!r} uses credentials of its clients, and a request may be answered by another process than the "
                "one that receives it: give all processes a key with --forward-key-file PATH, the variable "
                f"LIMPET_FORWARD_KEY or forward_key=. {HOW_TO_MAKE.capitalize()}"
            )

    @override
    def pages(self, host: Served, settings: HttpSettings) -> list[Route]:
        """Prepare for the clients of an endpoint: of this server, or of one that includes it.

        Return the pages beside it.

        Raises:
            ConfigError: the table has scopes, and there is no verifier that knows the scopes of a token.
        """
        verifier = host.verifier
        if not self.scopes.is_empty and (verifier is None or verifier is principal_of_token):
            raise ConfigError(
                f"the components of {self!r} need scopes, and {'it' if host is self else repr(host)} has no verifier that "
                "reads the scopes of a token: give it one (verifier=…, --verifier FILE:NAME)"
            )
        if verifier is None:
            # Anonymous clients of other machines may be different people: they must not share an upstream.
            self.back.shares_anonymous = not settings.serves_strangers
        return super().pages(host, settings)


def _overridden(given: ProxyArguments, own: dict[str, Any]) -> ProxyOptions:
    """Return the options, with the single arguments that were given. `own` are those of one class; None: not given.

    Raises:
        ConfigError: an argument is invalid.
    """
    single = {
        "concurrency": given.get("concurrency"),
        "strict": given.get("strict") or None,
        "home": given.get("home"),
        **own,
    }
    options = given.get("options", ProxyOptions())
    return replace(options, **{name: value for name, value in single.items() if value is not None})
