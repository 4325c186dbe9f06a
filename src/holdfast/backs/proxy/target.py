"""The interface by which `Remote`, `Process` and `Hosted` describe the server behind them."""

from typing import Any, Protocol

from msgspec import Struct

from holdfast.backs.proxy.passing import Passing
from holdfast.engine.caller import Caller
from holdfast.ports import Clock, Observer, Random
from holdfast.upstream.connectors import Connector
from holdfast.upstream.settings import ClientLimits, ClientTimes

Ports = tuple[Clock, Random, Observer]


class UpstreamClient(Struct, frozen=True):
    """The client for which an upstream is opened."""

    caller: Caller
    info: dict[str, Any]
    """Name and version of the client's software, as it says."""
    capabilities: dict[str, Any]
    session: str = ""
    """The key of its session; empty for a client of 2026-07-28."""
    is_single: bool = False
    """True if the upstream serves one exchange only: then nothing is read ahead for it."""
    is_shared: bool = False
    """True if several sessions share the upstream by the operator's choice: then the server may not ask."""
    passed: dict[str, str] = {}
    """The client's headers that go with requests outside of calls. The upstream replaces them when they change."""

    def __repr__(self) -> str:
        # Without headers: they may hold a credential.
        return f"<UpstreamClient {self.info.get('name')!r}{' in a session' if self.session else ''}>"


class Target(Protocol):
    """The server behind a proxy back."""

    name: str
    """For logs, the banner and the namespace in a store."""
    names_calls: bool
    """True if every message of the server says to which call it belongs."""
    needs_credentials: bool
    """True if the server gets data of a client's request that may be a credential: its token, a header or a claim.
    Then the home of a session needs it too."""
    version: str
    """The protocol version to speak: one of `holdfast.upstream.negotiation.VERSIONS`."""
    passing: Passing
    """The headers of a client that it receives."""
    limits: ClientLimits
    times: ClientTimes

    async def start(self, ports: Ports) -> None:
        """Get ready in the process that serves: once, before the first connector."""
        ...

    def connector(self, client: UpstreamClient) -> Connector:
        """Return the connector for this client.

        Raises:
            McpError: this client cannot be connected, for example because a header is missing.
        """
        ...

    def key(self, client: UpstreamClient) -> bytes:
        """Return the bytes that two clients must have in common, besides the principal, to share an upstream; mostly none.

        Raises:
            McpError: this client cannot be connected, for example because a header is missing.
        """
        ...

    async def stop(self) -> None:
        """Release everything: once, after the last connection has ended."""
        ...
