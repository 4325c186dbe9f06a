"""`Remote`: a server behind a URL, served by Limpet, and how it is reached.

All its upstreams share one pool of connections.

The URL comes from the configuration only. No header and no credential of a client is sent to the server, except the
`Mcp-Param-*` headers by which 2026-07-28 repeats parameters, and those that the operator has named
(`backs/proxy/passing.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Unpack
from urllib.parse import urlsplit

from typing_extensions import override

from limpet.auth.authorizer import Authorizer, Challenge, Token, authorizer_of
from limpet.auth.forward_key import HOW_TO_MAKE
from limpet.auth.oauth.oauth import OAuth
from limpet.auth.oauth.users import LastingSignIn, UserOAuth, machine_oauth
from limpet.auth.scopes import NO_SCOPES
from limpet.backs.proxy.lists import digest
from limpet.backs.proxy.passing import Passing, passing, principal_of_token
from limpet.backs.proxy.target import Target, UpstreamClient
from limpet.config import HttpSettings
from limpet.engine.audit import short
from limpet.errors import (
    INVALID_REQUEST,
    AuthorizationFailed,
    ConfigError,
    LifespanEnded,
    LinkError,
    McpError,
)
from limpet.ports import Observer, Ports
from limpet.server.authoring.routes import HttpRequest, HttpResponse, Route
from limpet.server.proxy import Proxy, ProxyArguments
from limpet.server.running.namespaces import distinct_namespace
from limpet.server.served import Served
from limpet.transports.http import HttpClientOptions, HttpTransport, head_of, is_http_url, place_of, shown
from limpet.upstream.connectors import Connector, HttpConnector
from limpet.upstream.settings import ClientLimits, ClientTimes


class PassedHeaders:
    """An authorizer that adds the newest headers of one client to those of our own sign-in."""

    def __init__(self, passed: Mapping[str, str], own: Authorizer | None) -> None:
        self._passed = passed
        self._own = own

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
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
        await super().start(ports, failed)
        self._pool = HttpTransport(HttpClientOptions(connect_seconds=self.times.connect))

    def connector(self, client: UpstreamClient) -> Connector:
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
        return digest(self.passing.of(client.caller.headers)) if self.passing.names else b""

    async def stop(self) -> None:
        """Close every connection, and end every sign-in that runs."""
        if isinstance(self._authorizer, LastingSignIn):
            await self._authorizer.aclose()
        if self._users is not None:
            await self._users.aclose()
        if self._pool is not None:
            await self._pool.aclose()


class Remote(Proxy):
    """A server behind a URL, of either era, served by Limpet."""

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
        if not is_http_url(url):
            raise ConfigError(f"{url[:200]!r} is not an http:// or https:// URL with a host")
        users = oauth if isinstance(oauth, UserOAuth) else None
        if oauth and not isinstance(oauth, UserOAuth):
            token = LastingSignIn(oauth if isinstance(oauth, OAuth) else machine_oauth())
        if pass_token and shared.get("verifier") is None:
            shared["verifier"] = principal_of_token
        target = RemoteTarget(
            url,
            passing=passing(pass_headers, token=pass_token, configured=headers or {}),
            headers=headers or {},
            users=users,
            authorizer=authorizer_of(token),
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
    def pages(self, host: Served, settings: HttpSettings) -> list[Route]:
        """Return the page for the sign-in of users, if they sign in.

        Raises:
            ConfigError: the sign-in does not fit the clients that may call.
        """
        pages = super().pages(host, settings)
        if self._uses_browser and (host.verifier is not None or not self.back.shares_anonymous):
            raise ConfigError(
                "oauth signs in as the user of this machine, and other users may call here: let each of them sign in, "
                "with oauth=UserOAuth(...) or --oauth-callback URL"
            )
        if self._users is None:
            return pages
        if host.verifier is None:
            raise ConfigError("each user signs in to the server behind, so a verifier must distinguish users")
        if host.engine.store.is_shared and host.forward_key is None:
            raise ConfigError(
                "the tokens of users are kept in the store, sealed: give all processes a key with --forward-key-file PATH, the "
                f"variable LIMPET_FORWARD_KEY or forward_key=. {HOW_TO_MAKE.capitalize()}"
            )
        self._users.keep_in(host.engine.state, host.forward_key, self.url)
        # Several servers of one host may have one callback.
        users = host.sign_ins.setdefault(self._users.path, [])
        users += [self._users] if self._users not in users else []
        return [*pages, _sign_in_page(self._users.path, users, self._observer)]

    @property
    def summary(self) -> str:
        """The URL without its secrets."""
        return f"in front of {shown(self.url)}"


# The page to which a browser is redirected when a user has signed in to the server behind (`auth/oauth/users.py`)

_HEADERS: Final = {
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'",
    "x-content-type-options": "nosniff",
}
_DONE: Final = "You are signed in. You can close this window and go back to the application."
_FAILED: Final = "You are not signed in: you or the server has refused it. Start again in the application."
_UNKNOWN: Final = (
    "You have started no sign-in that waits for this page, or it took too long. Nothing was changed. If another person "
    "sent you the link, do not use it. Otherwise start again in the application."
)


def _sign_in_page(path: str, users: Sequence[UserOAuth], observer: Observer) -> Route:
    """Return the route of a callback, for one server behind or several.

    It demands a principal, and accepts only the one that started the sign-in.
    """

    async def finish(request: HttpRequest) -> HttpResponse:
        owner = request.principal.key if request.principal is not None else ""
        try:
            for one in users:
                if await one.finish(owner, request.query):
                    return _page(200, _DONE)
        except (AuthorizationFailed, LinkError) as error:
            observer.note("sign_in.failed", principal=short(owner), error=error)
            return _page(200, _FAILED)
        observer.note("sign_in.refused", principal=short(owner))
        return _page(403, _UNKNOWN)

    return Route(path, ("GET",), finish, NO_SCOPES)


def _page(status: int, text: str) -> HttpResponse:
    body = f"<!doctype html><title>Limpet</title><p>{text}</p>"
    return HttpResponse(body.encode(), status, _HEADERS)
