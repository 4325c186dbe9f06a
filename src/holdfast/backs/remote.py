"""A server behind a URL, as the target of a proxy back. All its upstreams share one pool of connections.

The URL comes from the configuration only. No header and no credential of a client is sent to the server, except the
`Mcp-Param-*` headers by which 2026-07-28 repeats parameters, and those that the operator has named (`passing.py`).
"""

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from holdfast.auth.authorizer import Authorizer, Challenge
from holdfast.auth.oauth.users import LastingSignIn, UserOAuth
from holdfast.backs.proxy.lists import digest
from holdfast.backs.proxy.passing import Passing
from holdfast.backs.proxy.target import Target, UpstreamClient
from holdfast.errors import INVALID_REQUEST, AuthorizationFailed, ConfigError, LifespanEnded, McpError
from holdfast.ports import Ports
from holdfast.transports.http import HttpOptions, HttpTransport, head_of, place_of
from holdfast.upstream.connectors import Connector, HttpConnector
from holdfast.upstream.settings import ClientLimits, ClientTimes


class PassedHeaders:
    """An authorizer that adds the newest headers of one client to those of our own sign-in."""

    def __init__(self, passed: Mapping[str, str], own: Authorizer | None) -> None:
        self._passed = passed
        self._own = own

    def __repr__(self) -> str:
        return f"<PassedHeaders {', '.join(self._passed)}>"

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return both."""
        own = await self._own.headers(method, url) if self._own is not None else {}
        return {**self._passed, **own}

    async def challenged(self, challenge: Challenge) -> bool:
        """Let our own sign-in handle a refusal. The client's token cannot be renewed here."""
        return await self._own.challenged(challenge) if self._own is not None else False


class RemoteTarget(Target):
    """A URL, and how we sign in there."""

    has_headers: bool = True

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        authorizer: Authorizer | None,
        users: UserOAuth | None = None,
        passing: Passing,
        version: str,
        limits: ClientLimits,
        times: ClientTimes,
    ) -> None:
        # Refuses at start a setting with which every request would fail.
        head_of("POST", place_of(url), headers, None)
        super().__init__(urlsplit(url).hostname or url, version=version, limits=limits, times=times)
        self.url: str = url
        self.passing: Passing = passing
        self.needs_credentials: bool = bool(passing.names)
        self._headers = dict(headers)
        self._authorizer = authorizer
        self._users = users
        self._pool: HttpTransport | None = None

    async def start(self, ports: Ports, failed: Callable[[LifespanEnded], None]) -> None:
        """Make the pool of connections."""
        await super().start(ports, failed)
        self._pool = HttpTransport(HttpOptions(connect_seconds=self.times.connect))

    def connector(self, client: UpstreamClient) -> Connector:
        """Return a connector that uses the pool."""
        if self._pool is None:
            raise ConfigError("the target has not been started")
        try:
            own = self._authorizer if self._users is None else self._users.of(client.caller.key)
        except AuthorizationFailed as error:
            raise McpError(INVALID_REQUEST, str(error)) from error
        return HttpConnector(
            self.url,
            authorizer=PassedHeaders(client.passed, own) if self.passing.names else own,
            headers=self._headers,
            limits=self.limits,
            times=self.times,
            ports=self.ports,
            transport=self._pool,
        )

    def key(self, client: UpstreamClient) -> bytes:
        """Return a hash of the client's headers that we pass on."""
        return digest(self.passing.of(client.caller.headers)) if self.passing.names else b""

    async def stop(self) -> None:
        """Close every connection, and end every sign-in that runs."""
        if isinstance(self._authorizer, LastingSignIn):
            await self._authorizer.aclose()
        if self._users is not None:
            await self._users.aclose()
        if self._pool is not None:
            await self._pool.aclose()
