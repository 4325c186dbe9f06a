"""The base of the targets by which `Remote`, `Process` and `Hosted` describe the server behind them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from limpet.backs.proxy.passing import NOTHING, Passing
from limpet.engine.caller import Caller
from limpet.errors import ConfigError, LifespanEnded
from limpet.ports import Ports
from limpet.upstream.connectors import Connector
from limpet.upstream.negotiation import EraMemory
from limpet.upstream.settings import ClientLimits, ClientTimes


class UpstreamClient(Struct, frozen=True):
    """The client for which an upstream is opened."""

    caller: Caller
    info: dict[str, Any]
    """Name and version of the client's software, as it says."""
    capabilities: dict[str, Any]
    session: str = ""
    """The key of its session; empty for a client of 2026-07-28."""
    meta: dict[str, Any] = {}
    """`_meta` of the `initialize` of its session."""
    is_single: bool = False
    """True if the upstream serves one exchange only: then nothing is read ahead for it."""
    is_shared: bool = False
    """True if several sessions share the upstream by the operator's choice: then the server may not ask."""
    passed: dict[str, str] = {}
    """The client's headers that go with requests outside of calls. The upstream replaces them when they change."""

    def __repr__(self) -> str:
        # Without headers: they may hold a credential.
        return f"<UpstreamClient {self.info.get('name')!r}{' in a session' if self.session else ''}>"


class Target(ABC):
    """The server behind a proxy back. Each kind says how it is connected."""

    names_calls: bool = False
    """True if every message of the server says to which call it belongs."""
    has_headers: bool = False
    """True if requests to the server have HTTP headers."""
    needs_credentials: bool = False
    """True if the server gets data of a client's request that may be a credential: its token, a header or a claim.
    Then the home of a session needs it too."""
    passing: Passing = NOTHING
    """The headers of a client that it receives."""

    def __init__(self, name: str, *, version: str, limits: ClientLimits, times: ClientTimes) -> None:
        self.name: str = name
        """For logs, the banner and the namespace in a store."""
        self.version: str = version
        """The protocol version to speak: one of `limpet.upstream.negotiation.VERSIONS`."""
        self.limits: ClientLimits = limits
        self.times: ClientTimes = times
        self.eras: EraMemory = EraMemory()
        """The eras that the server has refused."""
        self.masks_errors: bool = False
        """True if texts of the server's own failures are for the log only."""
        self._ports: Ports | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def ports(self) -> Ports:
        """Clock, random numbers and observer of the process that serves.

        Raises:
            ConfigError: the target has not been started.
        """
        if self._ports is None:
            raise ConfigError("the target has not been started")
        return self._ports

    async def start(self, ports: Ports, failed: Callable[[LifespanEnded], None]) -> None:  # noqa: ARG002 - most servers live elsewhere
        """Get ready in the process that serves: once, before the first connector.

        `failed`: it cannot answer any more.
        """
        self._ports = ports

    @abstractmethod
    def connector(self, client: UpstreamClient) -> Connector:
        """Return the connector for this client.

        Raises:
            McpError: this client cannot be connected, for example because a header is missing.
        """

    def key(self, client: UpstreamClient) -> bytes:  # noqa: ARG002 - most servers treat all clients alike
        """Return the bytes that two clients must have in common, besides the principal, to share an upstream.

        Mostly none.

        Raises:
            McpError: this client cannot be connected, for example because a header is missing.
        """
        return b""

    async def stop(self) -> None:  # noqa: B027 - most kinds have nothing to release
        """Release everything: once, after the last connection has ended."""
