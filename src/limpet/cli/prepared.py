"""The servers of a plan: loaded, with their options applied, behind one front.

An error names the server of the file.
"""

import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from limpet import __version__
from limpet.auth import Verifier
from limpet.backs.proxy.scopes import ScopeTable
from limpet.cli import banner, stores
from limpet.cli.behind import ServerSource
from limpet.cli.behind_options import ShownComponentOptions
from limpet.cli.config.plan import Endpoint
from limpet.cli.options import Options
from limpet.cli.secrets import forward_key, secret
from limpet.cli.target import load_verifier
from limpet.errors import ConfigError, Exposed, StoreUnavailable
from limpet.fronts.http.front import HttpFront
from limpet.fronts.http.router import Router
from limpet.ops.log import LOGGER
from limpet.ops.operated import Operated

if TYPE_CHECKING:
    from limpet.server.running.operations import Operations
    from limpet.server.served import Served

_SINGLE: Final = ("concurrency", "strict", "home")
"""The options for a server in front of another one that have their own flags."""
_NEEDED: Final = "the URL of this server as clients know it, for which tokens are issued"
_PORT: Final = re.compile(r":[0-9]+$")


class Prepared:
    """The servers of a plan, by name. A target of the command line has an empty name."""

    def __init__(self, endpoints: Sequence[Endpoint], operations: "Operations | None" = None) -> None:
        """Load the servers. Nothing is connected or started. `operations`: operators see them on an admin surface.

        Raises:
            ConfigError: an option cannot work.
        """
        self._endpoints = {endpoint.name: endpoint for endpoint in endpoints}
        self._operations = operations
        self.behind: dict[str, list[str]] = {}
        """In words, whether each server behind answers; set by `probing.py`."""
        self.empty: set[str] = set()
        """The servers whose hosted object lists no component; set by `probing.py`."""
        self.servers: Mapping[str, Served] = {
            name: self._prepare(endpoint) for name, endpoint in self._endpoints.items()
        }

    def _prepare(self, endpoint: Endpoint) -> "Served":
        with self.explained(lambda: endpoint.name):
            server = prepare(endpoint.source, endpoint.options)
            server.label = endpoint.options.name or endpoint.name
            if self._operations is not None:
                self._operations.take(server)
            elif LOGGER.isEnabledFor(logging.INFO) and not server.is_built:
                server.operate(Operated())
            return server

    def each(self) -> Iterator[tuple[str, "Served", Endpoint]]:
        """Yield the servers with their names and their places in the plan."""
        return ((name, server, self._endpoints[name]) for name, server in self.servers.items())

    @property
    def patience(self) -> float:
        """Seconds that stopping may take."""
        every = [server.settings.times for server in self.servers.values()]
        return max(times.drain_notice + times.drain for times in every)

    def front(self) -> HttpFront | Router:
        """Build the HTTP endpoints: the one of the command line, or a router for those of a file.

        Raises:
            ConfigError: servers do not fit their settings, or do not fit together.
        """
        from limpet.server.servers import check_apart  # noqa: PLC0415 - `--help` does not need it

        check_apart(self.servers)
        fronts: dict[str, HttpFront] = {}
        cards: list[dict[str, str]] = []
        for name, server in self.servers.items():
            server.cards = cards
            with self.explained(lambda: name):  # noqa: B023 - it is called in this pass of the loop
                fronts[name] = server.front(self._endpoints[name].options.http())
        return fronts[""] if "" in fronts else Router(fronts)

    @contextlib.contextmanager
    def explained(self, failed: Callable[[], str]) -> Iterator[None]:
        """Name the server, and its store, in an error at start. `failed` returns the server's name."""
        try:
            yield
        except StoreUnavailable as error:
            name = failed()
            server = self.servers[name]
            kept = "in memory" if server.store is None else stores.shown(server.store, server.namespace)
            # The text of the database is for the operator. Some errors have it already.
            cause = str(error.__cause__ or "")
            more = f" ({cause})" if cause not in str(error) else ""
            raise ConfigError(
                f"{self._where(name)}the store {kept} cannot be used: {error}{more}; "
                "start it, correct that, or name another with --store URL"
            ) from None
        except Exposed:
            # It names the server itself, and the command line adds the commands to use.
            raise
        except ConfigError as error:
            named = ConfigError(f"{self._where(failed())}{error}")
            # The traceback has the line of the author's code.
            raise named.with_traceback(error.__traceback__) from None
        except Exception as error:
            if where := self._where(failed()):
                error.add_note(f"limpet: {where}could not start")
            raise

    def _where(self, name: str) -> str:
        endpoint = self._endpoints.get(name)
        return f"{endpoint.where} " if endpoint is not None and endpoint.where else ""

    def running(self, front: HttpFront | Router) -> contextlib.AbstractContextManager[None]:
        """Name the server that cannot start in the error of the process."""
        return self.explained(lambda: front.engine.failed if isinstance(front, Router) else "")

    def report(self, url: str) -> banner.ReadyReport:
        """Return the facts for the banner. The URL is that of the only endpoint, or of the root."""
        servers = (self._facts(name, server, url) for name, server in self.servers.items())
        return banner.ReadyReport(servers=tuple(servers), patience=self.patience)

    def _facts(self, name: str, server: "Served", url: str) -> banner.ServerFacts:
        options = self._endpoints[name].options
        own = url + (options.path or "") if name else url
        hosts = [host for host in options.allowed_hosts or () if host != "*" and not _PORT.search(host)]
        public = options.public_url or (banner.callable_url(own, hosts[0]) if hosts else own)
        facts = banner.facts(server, url=own, public="" if public == own else public)
        return replace(
            facts,
            behind=tuple(self.behind.get(name, ())),
            is_empty=facts.is_empty or name in self.empty,
        )


def prepare(source: ServerSource, options: Options) -> "Served":
    """Return the server that is named, with the options applied.

    Raises:
        ConfigError: the options cannot work.
    """
    if options.store is not None:
        stores.check(options.store)
    server = _made_of(source, options) if source.parts else source.server(options)
    before = (server.settings, server.store, server.namespace)
    wanted = (
        options.over(server.settings),
        server.store if options.store is None else options.store,
        options.namespace or server.namespace,
    )
    key, proxied, scopes = (
        forward_key(options.forward_key_file),
        _proxied(options),
        {} if source.parts else _scopes(options),
    )
    shown = {name: getattr(options, name) for name in ShownComponentOptions.__struct_fields__}
    components = {name: value for name, value in shown.items() if value}
    if wanted != before or proxied or scopes or components or key is not None:
        if server.is_built:
            raise ConfigError(
                f"{source.object} built its engine while it was imported, so options cannot change it"
            )
        server.settings, server.store, server.namespace = wanted
        server.forward_key = key or server.forward_key
    if (verifier := verifier_of(options)) is not None:
        server.verifier = verifier
    if options.verifier is not None:
        server.verifier = load_verifier(options.verifier, source.directory)
    if proxied:
        _set_proxied(server, proxied)
    if scopes:
        _set_scopes(server, scopes)
    server.server_card = bool(options.server_card) or server.server_card
    if components:
        from limpet.backs.components import ComponentTable  # noqa: PLC0415 - `--help` does not need it

        server.components = ComponentTable(**components)
    return server


def _made_of(source: ServerSource, options: Options) -> "Served":
    """Return a server of a file that is made of others: `servers = ["github", "files"]`.

    Nothing is connected or started.

    Raises:
        ConfigError: one of them cannot be a part, or two of them have a component of one name.
    """
    from limpet.server.app import Server  # noqa: PLC0415 - `--help` does not need it
    from limpet.server.proxy import Proxy  # noqa: PLC0415

    whole = Server(source.name, version=__version__, scopes=options.oidc_scopes or ())
    for part in source.parts:
        try:
            server = prepare(part.source, part.options)
            if not isinstance(server, Server | Proxy):
                raise ConfigError(f"{server!r} cannot be a part of another server")  # noqa: TRY301 - with the place of its table
            server.label = server.label or part.name
            whole.include(server, part.prefix or None, name=part.name)
        except ConfigError as error:
            raise ConfigError(f"{part.where} {error}") from None
    return whole


def _proxied(options: Options) -> dict[str, Any]:
    """Return the options for a server in front of another one that were given."""
    single = {name: getattr(options, name) for name in _SINGLE}
    return {**(options.proxy or {}), **{name: value for name, value in single.items() if value is not None}}


def _scopes(options: Options) -> dict[str, Any]:
    """Return the table of scopes, with those that every component needs by an option."""
    given = options.scopes or {}
    if options.oidc_scopes is None:
        return given
    return {**given, "server": (*given.get("server", ()), *options.oidc_scopes)}


def _set_proxied(server: "Served", given: dict[str, Any]) -> None:
    from limpet.server.proxy import Proxy  # noqa: PLC0415 - `--help` does not need it

    if not isinstance(server, Proxy):
        name = next(iter(given))
        flag = f"--{name}" if name in _SINGLE else f"--proxy-limit {name}"
        raise ConfigError(
            f"{flag} is for a server in front of another one, and this is a limpet.Server: its calls "
            "are limited by limits.running and in_order, and any process answers for it"
        )
    server.options = replace(server.options, **given)


def _set_scopes(server: "Served", given: dict[str, Any]) -> None:
    from limpet.server.proxy import Proxy  # noqa: PLC0415 - `--help` does not need it

    if not isinstance(server, Proxy):
        raise ConfigError(
            "scopes is for a server in front of another one, and this is a limpet.Server: its functions declare "
            "their scopes, as in @server.tool(scopes={...})"
        )
    server.scopes = ScopeTable(**given)


def verifier_of(options: Options) -> Verifier | None:
    """Return the verifier that the options describe; None: they describe none.

    Raises:
        ConfigError: an option is missing or invalid.
    """
    issuer, url = options.oidc_issuer or "", options.introspection_url or ""
    if not issuer and not url:
        for name in ("oidc_audience", "introspection_id", "introspection_key"):
            if getattr(options, name) is not None:
                raise ConfigError(
                    f"--{name.replace('_', '-')} needs --oidc-issuer URL or --introspection-url URL"
                )
        return None
    if options.verifier is not None:
        raise ConfigError(
            "--verifier checks tokens, and so does --oidc-issuer or --introspection-url: use one of them"
        )
    audience = options.oidc_audience or ((options.public_url,) if options.public_url else ())
    if not audience:
        raise ConfigError(
            f"--oidc-issuer and --introspection-url need --oidc-audience or --public-url: {_NEEDED}"
        )
    from limpet.auth.verifiers import Introspection, JwtVerifier  # noqa: PLC0415 - only for these options

    if not url:
        return JwtVerifier(issuer=issuer, audience=audience)
    client = options.introspection_id
    shared = secret(options.introspection_key, "--introspection-key", "LIMPET_INTROSPECTION_SECRET")
    if not client or shared is None:
        raise ConfigError("--introspection-url needs --introspection-id ID and --introspection-key PATH")
    return Introspection(url, client_id=client, client_secret=shared, audience=audience, issuer=issuer)
