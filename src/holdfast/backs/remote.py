"""A server behind a URL, as the target of a proxy back. All its upstreams share one pool of connections.

The URL and the headers come from the configuration only. No header and no credential of a client is sent to the
server, except the `Mcp-Param-*` headers by which 2026-07-28 repeats parameters.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.auth.authorizer import Authorizer
from holdfast.backs.proxy.target import Ports, UpstreamClient
from holdfast.errors import ConfigError
from holdfast.upstream.connectors import Connector, HttpConnector
from holdfast.upstream.settings import ClientLimits, ClientTimes

if TYPE_CHECKING:
    from holdfast.transports.http import HttpTransport


class RemoteTarget:
    """A URL, and how we sign in there."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        authorizer: Authorizer | None,
        version: str,
        limits: ClientLimits,
        times: ClientTimes,
    ) -> None:
        self.url: str = url
        self.name: str = urlsplit(url).hostname or url
        self.names_calls: bool = True
        self.needs_credentials: bool = False
        self.version: str = version
        self.limits: ClientLimits = limits
        self.times: ClientTimes = times
        self._headers = dict(headers)
        self._authorizer = authorizer
        self._pool: HttpTransport | None = None
        self._ports: Ports | None = None

    def __repr__(self) -> str:
        return f"<RemoteTarget {self.name}>"

    async def start(self, ports: Ports) -> None:
        """Make the pool of connections.

        Raises:
            ConfigError: aiohttp is not installed.
        """
        try:
            from holdfast.transports.http import HttpOptions, HttpTransport  # noqa: PLC0415 - aiohttp is an extra
        except ImportError:
            raise ConfigError("a server behind a URL needs aiohttp: pip install 'holdfast[client]'") from None
        self._ports = ports
        self._pool = HttpTransport(HttpOptions(connect_seconds=self.times.connect))

    def connector(self, client: UpstreamClient) -> Connector:  # noqa: ARG002 - all clients connect in the same way
        """Return a connector that uses the pool."""
        if self._pool is None or self._ports is None:
            raise ConfigError("the target has not been started")
        return HttpConnector(
            self.url,
            authorizer=self._authorizer,
            headers=self._headers,
            limits=self.limits,
            times=self.times,
            ports=self._ports,
            transport=self._pool,
        )

    async def stop(self) -> None:
        """Close every connection."""
        if self._pool is not None:
            await self._pool.aclose()
