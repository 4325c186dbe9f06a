"""`Remote` and `Process`: another server, served by Holdfast. Its sessions, ids, replay and limits are then ours.

They are served as a `Server` is. A proxy lives in one process for now: the server behind keeps the state of a
session in one place, and other replicas cannot reach it there. So a store that several processes share is refused.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from holdfast.auth import Verifier
from holdfast.auth.authorizer import Authorizer, Bearer, Token
from holdfast.backs.process import ProcessTarget
from holdfast.backs.proxy.back import ProxyBack
from holdfast.backs.proxy.options import ProxyOptions
from holdfast.backs.proxy.target import Target
from holdfast.backs.remote import RemoteTarget
from holdfast.config import LOOPBACK_HOSTS, HttpSettings, Settings
from holdfast.engine.engine import Engine
from holdfast.errors import ConfigError
from holdfast.fronts.http.front import HttpFront
from holdfast.ports import Observer, SystemClock, SystemRandom
from holdfast.server.served import Served
from holdfast.stores.base import Store
from holdfast.upstream.negotiation import VERSIONS
from holdfast.upstream.settings import ClientLimits, ClientTimes

CHILDREN: Final = 64
"""How many children one process starts unless told otherwise."""
_OURS: Final = "HOLDFAST_"


class Proxy(Served):
    """A server in front of another one. `Remote` and `Process` say which."""

    def __init__(
        self,
        target: Target,
        options: ProxyOptions,
        *,
        settings: Settings,
        store: Store | str | None,
        namespace: str | None,
        verifier: Verifier | None,
        observer: Observer | None,
    ) -> None:
        if target.version not in VERSIONS:
            raise ConfigError(f"the protocol version is one of {', '.join(VERSIONS)}; not {target.version!r}")
        self._target = target
        self.options: ProxyOptions = options
        self._set_up(
            target.name, settings, store=store, namespace=namespace, verifier=verifier, observer=observer
        )

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
        return ProxyBack(self._target, self.options, (SystemClock(), SystemRandom(), self._observer))

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
        if engine.store.is_shared:
            raise ConfigError(
                f"{self!r} cannot use {engine.store!r}: the sessions of a server in front of another one live in one "
                "process for now. Leave out the store and serve with one worker"
            )
        return engine

    def front(self, settings: HttpSettings) -> HttpFront:
        """Build the HTTP endpoint, and the engine if it does not exist yet."""
        if self.verifier is None:
            # Anonymous clients of other machines may be different people: they must not share an upstream.
            others = set(settings.allowed_hosts) - set(LOOPBACK_HOSTS)
            self.back.shares_anonymous = not settings.allow_anonymous and not others
        return super().front(settings)


class Remote(Proxy):
    """A server behind a URL, of either era, served by Holdfast."""

    def __init__(  # noqa: PLR0913 - everything but the URL has a default
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        token: Token | Authorizer | None = None,
        concurrency: int | None = None,
        strict: bool = False,
        options: ProxyOptions = ProxyOptions(),  # noqa: B008 - frozen
        protocol_version: str = "auto",
        limits: ClientLimits = ClientLimits(),  # noqa: B008 - frozen
        times: ClientTimes = ClientTimes(),  # noqa: B008 - frozen
        settings: Settings = Settings(),
        store: Store | str | None = None,
        namespace: str | None = None,
        verifier: Verifier | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Describe the server. Nothing is connected before the first client.

        headers              sent with every request to the URL; no header of a client is passed on
        token                a bearer token for the URL, a function that returns one, or an Authorizer
        concurrency          how many calls of one session run at once there; None: no limit
        strict               close a session when the server behind loses its own
        options              the limits of a proxy; `concurrency` and `strict` override its members
        protocol_version     auto, modern, legacy, or one revision and no other, for the URL
        limits, times        of the connections to the URL

        The other arguments are those of `Server`.

        Raises:
            ConfigError: the URL or an option is invalid.
        """
        target = RemoteTarget(
            checked_url(url),
            headers=headers or {},
            authorizer=Bearer(token) if isinstance(token, str) or callable(token) else token,
            version=protocol_version,
            limits=limits,
            times=times,
        )
        super().__init__(
            target,
            overridden(options, concurrency=concurrency, strict=strict),
            settings=settings,
            store=store,
            namespace=namespace,
            verifier=verifier,
            observer=observer,
        )
        self.url: str = url

    @property
    def summary(self) -> str:
        """The URL without its query, which may hold a secret."""
        return f"in front of {self.url.partition('?')[0]}"


class Process(Proxy):
    """A program that speaks MCP on its standard input and output, served by Holdfast. Each session has its own child."""

    def __init__(  # noqa: PLR0913 - everything but the command has a default
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        children: int = CHILDREN,
        concurrency: int | None = None,
        strict: bool = False,
        options: ProxyOptions = ProxyOptions(),  # noqa: B008 - frozen
        protocol_version: str = "auto",
        limits: ClientLimits = ClientLimits(),  # noqa: B008 - frozen
        times: ClientTimes = ClientTimes(),  # noqa: B008 - frozen
        settings: Settings = Settings(),
        store: Store | str | None = None,
        namespace: str | None = None,
        verifier: Verifier | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Describe the program. Nothing is started before the first client.

        command              the program and its arguments
        env                  variables in addition to the few that every child inherits; never `HOLDFAST_*`
        cwd                  the directory to run in
        children             how many children may run; the next client is refused as busy
        concurrency          how many calls of one child run at once; None: no limit
        strict               close a session when its child ends
        options              the limits of a proxy; the arguments above override its members
        protocol_version     auto, modern, legacy, or one revision and no other, for the program
        limits, times        of the connections to the program

        The other arguments are those of `Server`.

        Raises:
            ConfigError: the command or an option is invalid.
        """
        words = [command] if isinstance(command, str) else list(command)
        if not words or not words[0]:
            raise ConfigError('a process needs a command: Process(["npx", "-y", "some-server"])')
        target = ProcessTarget(
            words,
            env=checked_env(env or {}),
            cwd=cwd,
            version=protocol_version,
            limits=limits,
            times=times,
        )
        super().__init__(
            target,
            overridden(options, concurrency=concurrency, strict=strict, upstreams=children),
            settings=settings,
            store=store,
            namespace=namespace,
            verifier=verifier,
            observer=observer,
        )
        self.command: tuple[str, ...] = target.command

    @property
    def summary(self) -> str:
        """The program, without its arguments: they may hold a secret."""
        return f"in front of the program {self.command[0]}"


def overridden(
    options: ProxyOptions, *, concurrency: int | None, strict: bool, upstreams: int | None = None
) -> ProxyOptions:
    """Return the options, with the arguments that were given.

    Raises:
        ConfigError: an argument is invalid.
    """
    given = {"concurrency": concurrency, "strict": strict or None, "upstreams": upstreams}
    return replace(options, **{name: value for name, value in given.items() if value is not None})


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


def checked_env(env: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables of a child.

    Raises:
        ConfigError: a name is invalid or one of ours.
    """
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise ConfigError(f"a variable is NAME=VALUE without NUL characters, not {name[:64]!r}")
        if name.upper().startswith(_OURS):
            raise ConfigError(f"{name} is a variable of Holdfast itself and is never given to a child")
    return env
