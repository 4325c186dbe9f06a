"""`Remote` and `Process`: another server, served by Holdfast (`Hosted` is in its own module). Its sessions, ids, replay and limits are then ours.

They are served as a `Server` is. The server behind keeps the state of a session in one process, and other replicas
cannot reach it there for now. So a store that several processes share is refused, except with `home="any"`.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack
from urllib.parse import urlsplit

from msgspec.structs import replace
from typing_extensions import override

from holdfast.auth import Verifier
from holdfast.auth.authorizer import Authorizer, Bearer, Token
from holdfast.auth.forward_key import HOW_TO_MAKE, ForwardKey
from holdfast.auth.oauth.oauth import OAuth
from holdfast.auth.oauth.users import LastingSignIn, UserOAuth, machine_oauth
from holdfast.backs.environment import Environment, FromClaim, FromHeader, Value
from holdfast.backs.process import ProcessTarget
from holdfast.backs.proxy.back import ProxyBack
from holdfast.backs.proxy.options import Home, ProxyOptions
from holdfast.backs.proxy.passing import passing, principal_of_token
from holdfast.backs.proxy.scopes import NO_TABLE, ScopeTable
from holdfast.backs.proxy.target import Target
from holdfast.backs.remote import RemoteTarget
from holdfast.config import LOOPBACK_HOSTS, HttpSettings, Settings
from holdfast.engine.engine import Engine
from holdfast.errors import ConfigError
from holdfast.fronts.http.front import HttpFront
from holdfast.ports import Observer, Ports, SystemClock, SystemRandom
from holdfast.server.functions.options import check_options
from holdfast.server.running.namespaces import distinct_namespace
from holdfast.server.running.route_applications import applications
from holdfast.server.served import Served
from holdfast.server.sign_in_page import sign_in_page
from holdfast.stores.base import Store
from holdfast.transports.http import shown
from holdfast.upstream.negotiation import VERSIONS
from holdfast.upstream.settings import ClientLimits, ClientTimes

START_SECONDS: Final = 60.0
"""How long a child may take from its start to its first answer: `npx -y` and `uvx` may first download a package."""
CHILDREN: Final = 64
"""How many children one process starts by default."""


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
            others = set(settings.allowed_hosts) - set(LOOPBACK_HOSTS)
            self.back.shares_anonymous = not settings.allow_anonymous and not others
        return super().front(settings)


class Remote(Proxy):
    """A server behind a URL, of either era, served by Holdfast."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        token: Token | Authorizer | None = None,
        oauth: bool | OAuth | UserOAuth = False,
        pass_token: bool = False,
        pass_headers: Sequence[str] = (),
        protocol_version: str = "auto",
        **shared: Unpack[ProxyArguments],
    ) -> None:
        """Describe the server. Nothing is connected before the first client.

        headers              sent with every request to the URL
        token                a bearer token for the URL, a function that returns one, or an Authorizer
        oauth                sign in with OAuth: True or an OAuth with the browser of this machine; UserOAuth for each
                             principal
        pass_token           send the client's own bearer token to the URL. Without a verifier each token is a principal
        pass_headers         names of headers of the client that are sent to the URL; no other header is passed on
        protocol_version     auto, sessions, sessionless, or one revision and no other, for the URL

        The other arguments are those of `ProxyArguments`.

        Raises:
            ConfigError: the URL or an option is invalid.
        """
        if (token is not None) + bool(oauth) + pass_token > 1:
            raise ConfigError("use one of token, oauth and pass_token: a request has one token of one source")
        users = oauth if isinstance(oauth, UserOAuth) else None
        if oauth and not isinstance(oauth, UserOAuth):
            token = LastingSignIn(oauth if isinstance(oauth, OAuth) else machine_oauth())
        if pass_token and shared.get("verifier") is None:
            shared["verifier"] = principal_of_token
        target = RemoteTarget(
            checked_url(url),
            passing=passing(pass_headers, token=pass_token, configured=headers or {}),
            headers=headers or {},
            users=users,
            authorizer=Bearer(token) if isinstance(token, str) or callable(token) else token,
            version=protocol_version,
            limits=shared.get("limits", ClientLimits()),
            times=shared.get("times", ClientTimes()),
        )
        shared["namespace"] = shared.get("namespace") or distinct_namespace(target.name, url)
        super().__init__(target, shared)
        self.url: str = url
        self._users = users
        self._uses_browser = bool(oauth) and users is None

    @override
    def front(self, settings: HttpSettings) -> HttpFront:
        """Build the HTTP endpoint, and the page for the sign-in of users.

        Raises:
            ConfigError: the sign-in does not fit the clients that may call.
        """
        front = super().front(settings)
        if self._uses_browser and (self.verifier is not None or not self.back.shares_anonymous):
            raise ConfigError(
                "oauth signs in as the user of this machine, and other users may call here: let each of them sign in, "
                "with oauth=UserOAuth(...) or --oauth-callback URL"
            )
        if self._users is None:
            return front
        if self.verifier is None:
            raise ConfigError("each user signs in to the server behind, so a verifier must distinguish users")
        if self.engine.store.is_shared:
            raise ConfigError(
                "a sign-in of users waits in one process: leave out the store, and serve with one worker"
            )
        page = sign_in_page(self._users, self.engine)
        seconds = self.settings.limits.body_seconds
        return HttpFront(self.engine, settings, verifier=self.verifier, routes=applications([page], seconds))

    @property
    def summary(self) -> str:
        """The URL without its secrets."""
        return f"in front of {shown(self.url)}"


class Process(Proxy):
    """A program that speaks MCP on its standard input and output, served by Holdfast. Each session has its own child."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, Value] | None = None,
        cwd: str | Path | None = None,
        children: int = CHILDREN,
        shared: bool = False,
        shared_between: Sequence[str] = (),
        protocol_version: str = "auto",
        **arguments: Unpack[ProxyArguments],
    ) -> None:
        """Describe the program. Nothing is started before the first client.

        command              the program and its arguments
        env                  variables in addition to the few that every child inherits; never `HOLDFAST_*`. A value is text,
                             or comes from the client: `FromHeader("X-Api-Key")`, `FromClaim("sub")`
        cwd                  the directory to run in
        children             how many children may run; the next client is refused as busy
        shared               the sessions of one principal share a child, which may not ask them anything
        shared_between       the subjects of the principals that share one child with each other
        protocol_version     auto, sessions, sessionless, or one revision and no other, for the program

        The other arguments are those of `ProxyArguments`.

        Raises:
            ConfigError: the command or an option is invalid.
        """
        words = [command] if isinstance(command, str) else list(command)
        if not words or not words[0]:
            raise ConfigError('a process needs a command: Process(["npx", "-y", "some-server"])')
        target = ProcessTarget(
            words,
            env=Environment(env or {}),
            cwd=cwd,
            version=protocol_version,
            limits=arguments.get("limits", ClientLimits()),
            times=arguments.get("times", ClientTimes(connect=START_SECONDS)),
        )
        arguments["namespace"] = arguments.get("namespace") or distinct_namespace(
            target.name, "\0".join(words)
        )
        super().__init__(
            target,
            arguments,
            upstreams=children,
            shared=shared or None,
            shared_between=tuple(shared_between) or None,
        )
        self.command: tuple[str, ...] = target.command

    @property
    def summary(self) -> str:
        """The program, without its arguments: they may hold a secret."""
        return f"in front of the program {self.command[0]}"


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


def checked_url(url: str) -> str:
    """Return the URL of a server.

    Raises:
        ConfigError: it is not an http:// or https:// URL with a host.
    """
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConfigError(f"{url[:200]!r} is not an http:// or https:// URL with a host")
    return url


def variables(texts: Mapping[str, str]) -> dict[str, Value]:
    """Return the variables of a command line: `header:NAME` and `claim:NAME` are values that come from the client."""
    made: dict[str, Value] = {}
    for name, text in texts.items():
        kind, separator, source = text.partition(":")
        if separator and kind == "header":
            made[name] = FromHeader(source)
        else:
            made[name] = FromClaim(source) if separator and kind == "claim" else text
    return made
