"""`Proxy`: a server in front of another one, whose sessions, ids, replay and limits are then ours.

`Remote`, `Process` and `Hosted` are its kinds, each in its own module. They are served as a `Server` is. The server behind
keeps the state of a session in one process, its home; a request that another process receives is forwarded there
(`engine/home.py`). With `home="any"` each process answers by itself.
"""

from functools import cached_property
from typing import Any, TypedDict

from msgspec.structs import replace

from holdfast.auth import Verifier
from holdfast.auth.forward_key import HOW_TO_MAKE, ForwardKey
from holdfast.backs.proxy.back import ProxyBack
from holdfast.backs.proxy.options import Home, ProxyOptions
from holdfast.backs.proxy.passing import principal_of_token
from holdfast.backs.proxy.scopes import NO_TABLE, ScopeTable
from holdfast.backs.proxy.target import Target
from holdfast.config import HttpSettings, Settings
from holdfast.engine.engine import Engine
from holdfast.errors import ConfigError
from holdfast.fronts.http.front import HttpFront
from holdfast.ports import Observer, Ports, SystemClock, SystemRandom
from holdfast.server.functions.options import check_options
from holdfast.server.served import Served
from holdfast.stores.base import Store
from holdfast.upstream.negotiation import VERSIONS
from holdfast.upstream.settings import ClientLimits, ClientTimes


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
    observer: Observer | None
    forward_key: str | None
    """The key for clients' credentials that go from one process to another: 32 random bytes as base64. All processes need
    the same key, and it is not kept in the store."""


class Proxy(Served):
    """A server in front of another one. `Remote`, `Process` and `Hosted` are its kinds."""

    def __init__(self, target: Target, given: ProxyArguments, **own: Any) -> None:
        check_options(given, ProxyArguments, "a server in front of another one")
        if target.version not in VERSIONS:
            raise ConfigError(f"the protocol version is one of {', '.join(VERSIONS)}; not {target.version!r}")
        self._target = target
        self.options: ProxyOptions = _overridden(given, own)
        self.scopes: ScopeTable = given.get("scopes", NO_TABLE)
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

    @cached_property
    def back(self) -> ProxyBack:
        """The back that the engine calls."""
        ports = Ports(SystemClock(), SystemRandom(), self._observer)
        return ProxyBack(self._target, self.options, ports, self.scopes)

    @property
    def engine(self) -> Engine:
        """The engine. It is built on first use.

        Raises:
            ConfigError: the settings or the store cannot work in front of another server.
        """
        if self.settings.stateless:
            raise ConfigError(
                f"{self!r} cannot be stateless: the server behind it keeps a session for each of our sessions"
            )
        self._target.masks_errors = self.settings.mask_errors
        engine = super().engine
        if engine.store.is_shared and self.back.needs_credentials and self.forward_key is None:
            raise ConfigError(
                f"{self!r} uses credentials of its clients, and a request may be answered by another process than the "
                "one that receives it: give all processes a key with --forward-key-file PATH, the variable "
                f"HOLDFAST_FORWARD_KEY or forward_key=. {HOW_TO_MAKE.capitalize()}"
            )
        return engine

    def front(self, settings: HttpSettings) -> HttpFront:
        """Build the HTTP endpoint, and the engine if it does not exist yet.

        Raises:
            ConfigError: the table has scopes, and there is no verifier that knows the scopes of a token.
        """
        if not self.scopes.is_empty and (self.verifier is None or self.verifier is principal_of_token):
            raise ConfigError(
                f"the components of {self!r} need scopes, and it has no verifier that reads the scopes of a token: give "
                "it one (verifier=…, --verifier FILE:NAME)"
            )
        if self.verifier is None:
            # Anonymous clients of other machines may be different people: they must not share an upstream.
            self.back.shares_anonymous = not settings.serves_strangers
        return super().front(settings)


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
