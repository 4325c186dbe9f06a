"""`Servers`: several servers in one process, behind one HTTP server. Each has its own path, engine and sessions."""

import sys
from collections.abc import Mapping
from typing import Unpack

from msgspec.structs import replace

from limpet.config import AdminSettings, HttpOptions, HttpSettings
from limpet.errors import ConfigError
from limpet.fronts.http.asgi_host.mount import Mount
from limpet.fronts.http.front import HttpFront
from limpet.fronts.http.router import Router
from limpet.fronts.http.serve import run_http
from limpet.ops.tracebacks import trimmed
from limpet.server.served import Served
from limpet.transports.loops import check_http_system


class Servers:
    """Several servers, each at its own path: `Servers({"/weather/mcp": weather, "/files/mcp": files})`.

    A value is a `Server`, `Remote`, `Process` or `Hosted`. They share the HTTP server and nothing else: a session of
    one is unknown to the others. `/healthz` and `/readyz` answer for all of them. `public_url` is the URL of the root:
    that of a server is it and the path of the server.
    """

    def __init__(self, servers: Mapping[str, Served]) -> None:
        """Take servers by their paths.

        Raises:
            ConfigError: there is no server, or two of them would use one namespace of one store.
        """
        if not servers:
            raise ConfigError('Servers needs at least one server: Servers({"/mcp": server})')
        check_apart(servers)
        self._servers = dict(servers)

    def __repr__(self) -> str:
        return f"<Servers at {', '.join(self._servers)}>"

    def asgi(self, **http: Unpack[HttpOptions]) -> Mount:
        """Return one ASGI application that serves all. The arguments are those of `HttpSettings`, for every server."""
        settings = HttpSettings(**http)
        return Mount(lambda: self.front(settings), host_signals=settings.host_signals)

    def run(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        admin: AdminSettings | None = None,
        **http: Unpack[HttpOptions],
    ) -> None:
        """Serve over HTTP until a signal arrives; running calls may finish first.

        `admin` serves metrics, state and dashboard of all servers on its own address. Further arguments are those
        of `HttpSettings`, for every server.

        Raises:
            ConfigError: the address cannot be bound, two servers answer one path, other machines could call a server
                that has no verifier, or the admin surface has no token.
        """
        from limpet.server.running.launch import administered  # noqa: PLC0415 - only a server that runs needs it

        check_http_system()
        try:
            with administered(self._servers.values(), admin) as beside:
                front = self.front(HttpSettings(**http))
                run_http(front, host, port, ready=self._say_where, beside=beside)
        except Exception as error:  # noqa: BLE001 - raised again, without frames of Limpet
            raise trimmed(error) from error.__cause__

    def front(self, settings: HttpSettings) -> Router:
        """Build the HTTP endpoints, and the engines that do not exist yet.

        Raises:
            ConfigError: two servers answer one path, or the settings do not fit a server.
        """
        root, cards = settings.public_url.rstrip("/"), list[dict[str, str]]()
        fronts: dict[str, HttpFront] = {}
        for path, server in self._servers.items():
            server.cards = cards
            own = replace(settings, path=path, public_url=root and f"{root}{path}")
            fronts[path] = server.front(own)
        return Router(fronts)

    def _say_where(self, url: str) -> None:
        for path, server in self._servers.items():
            sys.stderr.write(f"{server.name}: serving {url}{path}\n")
        sys.stderr.flush()


def check_apart(servers: Mapping[str, Served]) -> None:
    """Refuse servers that would share sessions. The keys are names for the error.

    Raises:
        ConfigError: two are the same object, or use one namespace of one store.
    """
    seen: dict[object, str] = {}
    for name, server in servers.items():
        is_kept = isinstance(server.store, str) and not server.store.startswith("memory:")
        records = (server.store, server.namespace) if is_kept else None
        for key in (id(server), records):
            if key is not None and (other := seen.setdefault(key, name)) != name:
                raise ConfigError(
                    f"{name} and {other} are the same server object: serve it once"
                    if key is not records
                    else f"{name} and {other} would share their sessions: both use the namespace {server.namespace!r} of "
                    "one store. Give one of them another namespace"
                )
