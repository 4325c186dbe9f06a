"""A Python object of another framework, as the target of a proxy back."""

from typing import Any

from holdfast.backs.hosted.connector import HostedConnector
from holdfast.backs.hosted.frameworks import core_of, major_version
from holdfast.backs.hosted.lifespan import Lifespan
from holdfast.backs.hosted.pipe import Dialect
from holdfast.backs.proxy.passing import NOTHING, Passing
from holdfast.backs.proxy.target import Ports, UpstreamClient
from holdfast.errors import ConfigError
from holdfast.upstream.connectors import Connector
from holdfast.upstream.settings import ClientLimits, ClientTimes


class HostedTarget:
    """An object and its lifespan."""

    def __init__(
        self, found: object, *, place: str, version: str, limits: ClientLimits, times: ClientTimes
    ) -> None:
        self._server: Any = core_of(found, place=place)
        self.name: str = str(self._server.name)
        self.names_calls: bool = True
        self.needs_credentials: bool = True
        self.passing: Passing = NOTHING
        self.version: str = version
        self.limits: ClientLimits = limits
        self.times: ClientTimes = times
        self._ports: Ports | None = None
        self._lifespan: Lifespan | None = None
        self._dialect: Dialect | None = None

    def __repr__(self) -> str:
        return f"<HostedTarget {self.name}>"

    async def start(self, ports: Ports) -> None:
        """Enter the lifespan of the object.

        Raises:
            ConfigError: the author's code failed.
        """
        self._ports = ports
        self._dialect = Dialect(major_version("mcp"))
        lifespan = Lifespan(self._server, ports[2])
        await lifespan.start()
        self._lifespan = lifespan

    def connector(self, client: UpstreamClient) -> Connector:
        """Return a connector that runs the object."""
        if self._lifespan is None or self._dialect is None or self._ports is None:
            raise ConfigError("the target has not been started")
        return HostedConnector(
            self._server, self._dialect, self._lifespan, client.caller, self.times, self._ports[2]
        )

    def key(self, client: UpstreamClient) -> bytes:  # noqa: ARG002
        """Return no bytes: all clients of a principal are connected in the same way."""
        return b""

    async def stop(self) -> None:
        """Leave the lifespan."""
        if self._lifespan is not None:
            await self._lifespan.stop()
            self._lifespan = None
