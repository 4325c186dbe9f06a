"""How the first token is obtained: by a user who agrees, by own credentials, or by a signed assertion."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from limpet.auth.oauth.browser import Browser, BrowserFunction, Loopback, OpenBrowser
from limpet.auth.oauth.discovery import TokenSource
from limpet.auth.oauth.identity import ClientIdentity
from limpet.auth.oauth.metadata import TokenAnswer, read
from limpet.auth.oauth.pkce import (
    METHOD,
    Begun,
    authorization_url,
    new_authorization_request,
    read_redirect,
)
from limpet.auth.oauth.scopes import Scopes, with_offline
from limpet.auth.oauth.token_endpoint import TokenEndpoint
from limpet.auth.oauth.tokens import Tokens
from limpet.auth.oauth.web import OK, Bounds, Web, refusal
from limpet.errors import AuthorizationFailed, ConfigError, LinkError
from limpet.ports import Random

JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
TYPES: Final = "urn:ietf:params:oauth:token-type:"


class GrantRequest(Struct, frozen=True, kw_only=True):
    """Everything that a grant needs for one authorization."""

    web: Web
    place: TokenSource
    token_endpoint: TokenEndpoint
    scopes: Scopes
    random: Random
    bounds: Bounds
    identify: Callable[[str], Awaitable[ClientIdentity]]
    """Returns the client for a redirect URI; registers it if necessary."""
    redirect_uri: str = ""
    """The redirect URI of the last authorization."""
    came_back: tuple[Begun, str] | None = None
    """An authorization that another run has begun, and its redirect: only the code has to be exchanged."""

    def fields(self, grant: str, scopes: Scopes) -> dict[str, str]:
        """Return the fields that every token request has."""
        scope = {"scope": " ".join(scopes)} if scopes else {}
        return {"grant_type": grant, "resource": self.place.resource, **scope}


class Grant(Protocol):
    """Obtains the first token."""

    is_silent: bool
    """True if no user is needed: the grant can be repeated whenever a token expires."""

    async def obtain(self, case: GrantRequest) -> Tokens:
        """Return tokens.

        Raises:
            AuthorizationFailed: the grant was refused.
            NotSent: a server cannot be reached now.
        """


class AuthorizationCode:
    """A user agrees in a browser (OAuth 2.1 with PKCE)."""

    is_silent = False

    def __init__(
        self,
        open_browser: OpenBrowser | None = None,
        *,
        redirect_uri: str = "",
        browser: Browser | None = None,
        offline: bool = True,
    ) -> None:
        """Choose the browser.

        open_browser   a function that shows a URL and returns the URL of the redirect; needs `redirect_uri`
        browser        instead of both: a Browser with its own listener; by default the system's browser
        offline        request a refresh token if the authorization server has a scope for it
        """
        if open_browser is not None and not redirect_uri:
            raise ConfigError("open_browser needs redirect_uri=, the URL that the browser is redirected to")
        self._browser = browser or Loopback()
        if open_browser is not None:
            # `read_redirect` checks what the function returns.
            self._browser = BrowserFunction(lambda url, _: open_browser(url), redirect_uri)
        self._offline = offline

    def __repr__(self) -> str:
        return f"<AuthorizationCode by {self._browser}>"

    async def obtain(self, case: GrantRequest) -> Tokens:
        """Let the user agree in the browser, then exchange the code at the token endpoint."""
        server = case.place.server
        if METHOD not in (server.code_challenge_methods_supported or ()):
            raise AuthorizationFailed(f"{server.issuer} does not protect codes (PKCE, {METHOD})")
        if not server.authorization_endpoint:
            raise AuthorizationFailed(
                f"{server.issuer} has no authorization endpoint, where a user could agree"
            )
        begun, redirect = case.came_back or await self._visit(case, server.authorization_endpoint)
        ticket = begun.request
        if ticket.issuer != server.issuer:
            raise AuthorizationFailed(f"the sign-in has begun at {ticket.issuer}, and not at {server.issuer}")
        says_issuer = bool(server.authorization_response_iss_parameter_supported)
        code = read_redirect(ticket, redirect, says_issuer=says_issuer)
        fields = {"code": code, "redirect_uri": ticket.redirect_uri, "code_verifier": ticket.verifier}
        try:
            return await case.token_endpoint.ask(
                begun.client, {**case.fields("authorization_code", ()), **fields}
            )
        except LinkError as error:
            # Not a LinkError, which would be retried: the user would have to agree again.
            raise AuthorizationFailed(f"the user agreed, but no token came: {error}") from None

    async def _visit(self, case: GrantRequest, endpoint: str) -> tuple[Begun, str]:
        """Let the user agree; return the authorization and its redirect."""
        server, scopes = case.place.server, case.scopes
        if self._offline:
            scopes = with_offline(scopes, server.scopes_supported, server.grant_types_supported)
        async with self._browser.visit(case.redirect_uri) as visit:
            client = await case.identify(visit.redirect_uri)
            ticket = new_authorization_request(case.random, server.issuer, visit.redirect_uri)
            url = authorization_url(endpoint, ticket, client.id, case.place.resource, scopes)
            begun = Begun(request=ticket, client=client, scopes=case.scopes)
            try:
                async with asyncio.timeout(case.bounds.browser):
                    return begun, await visit.go(url, begun)
            except TimeoutError:
                raise AuthorizationFailed(
                    f"the user did not agree within {case.bounds.browser:g} seconds"
                ) from None


class ClientCredentials:
    """The client authenticates with its own secret or key; there is no user."""

    is_silent = True

    async def obtain(self, case: GrantRequest) -> Tokens:
        client = await case.identify("")
        return await case.token_endpoint.ask(client, case.fields("client_credentials", case.scopes))


class Audience(Struct, frozen=True):
    """The authorization server and the resource that an assertion is for."""

    issuer: str
    resource: str
    web: Web


Assertion = str | Callable[[Audience], Awaitable[str]]


class JwtBearer:
    """A signed assertion of a third party (RFC 7523): the token of a workload, or of a user's identity provider."""

    is_silent = True

    def __init__(self, assertion: Assertion, *, issuer: str = "") -> None:
        """Pass the assertion, or a function that makes one for an audience.

        issuer   the only authorization server that receives it. A fixed assertion requires it, because a server that
                 receives an assertion can use it
        """
        if isinstance(assertion, str) and not issuer:
            raise ConfigError(
                "a fixed assertion is a secret: name the only authorization server that may receive it, "
                'JwtBearer(..., issuer="https://...")'
            )
        self._assertion = assertion
        self._issuer = issuer

    async def obtain(self, case: GrantRequest) -> Tokens:
        """Send the assertion. A refusal is final: no other grant is tried."""
        issuer = case.place.server.issuer
        if self._issuer and self._issuer != issuer:
            raise AuthorizationFailed(f"the assertion is for {self._issuer}, and the server names {issuer}")
        client = await case.identify("")
        assertion = self._assertion
        if not isinstance(assertion, str):
            assertion = await assertion(Audience(issuer, case.place.resource, case.web))
        return await case.token_endpoint.ask(
            client, {**case.fields(JWT_BEARER, case.scopes), "assertion": assertion}
        )


class IdentityAssertion:
    """Exchanges a user's ID token for an assertion to one authorization server (enterprise-managed authorization)."""

    def __init__(
        self, id_token: Callable[[], Awaitable[str]] | str, *, token_endpoint: str, client_id: str
    ) -> None:
        """Name the identity provider's token endpoint, and the id of the client there."""
        self._id_token = id_token
        self._endpoint = token_endpoint
        self._client_id = client_id

    async def __call__(self, audience: Audience) -> str:
        """Return the assertion.

        Raises:
            AuthorizationFailed: the identity provider refuses.
        """
        fields: Mapping[str, str] = {
            "grant_type": EXCHANGE,
            "requested_token_type": f"{TYPES}id-jag",
            "audience": audience.issuer,
            "resource": audience.resource,
            "subject_token": self._id_token if isinstance(self._id_token, str) else await self._id_token(),
            "subject_token_type": f"{TYPES}id_token",
            "client_id": self._client_id,
        }
        # The endpoint was named by the application, not by the server.
        reply = await audience.web.near(self._endpoint).post(self._endpoint, fields, {})
        answer = read(reply.body, TokenAnswer) if reply.status == OK else None
        if answer is None:
            raise refusal(reply, "the identity provider refused")
        return answer.access_token
