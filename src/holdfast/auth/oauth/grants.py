"""The ways to a first token: a user who agrees, a client that is trusted by itself, or somebody's signed word."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from holdfast.auth.oauth.browser import Browser, Loopback, OpenBrowser, Scripted
from holdfast.auth.oauth.discovery import Place
from holdfast.auth.oauth.door import TokenDoor
from holdfast.auth.oauth.identity import ClientIdentity
from holdfast.auth.oauth.metadata import ErrorAnswer, TokenAnswer, read
from holdfast.auth.oauth.pkce import METHOD, authorization_url, new_ticket, read_redirect, told
from holdfast.auth.oauth.scopes import Scopes, with_offline
from holdfast.auth.oauth.tokens import Tokens
from holdfast.auth.oauth.web import OK, Bounds, Web
from holdfast.errors import AuthorizationFailed, ConfigError, LinkError
from holdfast.ports import Random

JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
TYPES: Final = "urn:ietf:params:oauth:token-type:"


class Case(Struct, frozen=True, kw_only=True):
    """One authorization under way."""

    web: Web
    place: Place
    door: TokenDoor
    scopes: Scopes
    random: Random
    bounds: Bounds
    identify: Callable[[str], Awaitable[ClientIdentity]]
    """Return the client for a redirect URI, registered if need be."""
    redirect_uri: str = ""
    """Where the browser came back to last time."""

    def fields(self, grant: str, scopes: Scopes) -> dict[str, str]:
        """Return what every token request says."""
        scope = {"scope": " ".join(scopes)} if scopes else {}
        return {"grant_type": grant, "resource": self.place.resource, **scope}


class Grant(Protocol):
    """A way to a first token."""

    is_silent: bool
    """No user is needed: another token can be had the same way whenever one ends."""

    async def obtain(self, case: Case) -> Tokens:
        """Return tokens.

        Raises:
            AuthorizationFailed: there are none.
            NotSent: there may be some later.
        """
        ...


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
        """Describe the way.

        open_browser   shows a URL, returns the one that the browser was sent to; needs `redirect_uri`
        browser        instead of both: what listens by itself; left out, the system's browser
        offline        ask for a refresh token where the authorization server has a scope for it
        """
        if open_browser is not None and not redirect_uri:
            raise ConfigError("with open_browser, say where the browser comes back to: redirect_uri=")
        self._browser = Scripted(open_browser, redirect_uri) if open_browser else browser or Loopback()
        self._offline = offline

    def __repr__(self) -> str:
        return f"<AuthorizationCode by {self._browser}>"

    async def obtain(self, case: Case) -> Tokens:
        """Send the user there, and take the code to the token endpoint."""
        server = case.place.server
        if METHOD not in (server.code_challenge_methods_supported or ()):
            raise AuthorizationFailed(f"{server.issuer} does not protect codes (PKCE, {METHOD})")
        if not server.authorization_endpoint:
            raise AuthorizationFailed(f"{server.issuer} has no page where a user could agree")
        scopes = case.scopes
        if self._offline:
            scopes = with_offline(scopes, server.scopes_supported, server.grant_types_supported)
        async with self._browser.visit(case.redirect_uri) as visit:
            client = await case.identify(visit.redirect_uri)
            ticket = new_ticket(case.random, server.issuer, visit.redirect_uri)
            url = authorization_url(
                server.authorization_endpoint, ticket, client.id, case.place.resource, scopes
            )
            try:
                async with asyncio.timeout(case.bounds.browser):
                    redirect = await visit.go(url, ticket.state)
            except TimeoutError:
                raise AuthorizationFailed(f"nobody agreed in {case.bounds.browser:g} seconds") from None
        says_issuer = bool(server.authorization_response_iss_parameter_supported)
        code = read_redirect(ticket, redirect, says_issuer=says_issuer)
        fields = {"code": code, "redirect_uri": ticket.redirect_uri, "code_verifier": ticket.verifier}
        try:
            return await case.door.ask(client, {**case.fields("authorization_code", ()), **fields})
        except LinkError as error:
            # Not to be repeated by itself: the user would have to agree again.
            raise AuthorizationFailed(f"the user agreed, but no token came: {error}") from None


class ClientCredentials:
    """The client is trusted by itself: its secret or its key is all there is."""

    is_silent = True

    def __repr__(self) -> str:
        return "<ClientCredentials>"

    async def obtain(self, case: Case) -> Tokens:
        """Ask."""
        client = await case.identify("")
        return await case.door.ask(client, case.fields("client_credentials", case.scopes))


class Audience(Struct, frozen=True):
    """Whom a signed word is for."""

    issuer: str
    resource: str
    web: Web


Assertion = str | Callable[[Audience], Awaitable[str]]


class JwtBearer:
    """Somebody else's signed word (RFC 7523): a workload's token, or what an identity provider gives for a user."""

    is_silent = True

    def __init__(self, assertion: Assertion, *, issuer: str = "") -> None:
        """Give the word, or a function that makes one for an audience.

        issuer   the only authorization server that receives it; a fixed word requires it, because whoever
                 receives the word can use it
        """
        if isinstance(assertion, str) and not issuer:
            raise ConfigError(
                "a fixed assertion is a secret: name the authorization server that alone may receive it, "
                'JwtBearer(..., issuer="https://...")'
            )
        self._assertion = assertion
        self._issuer = issuer

    def __repr__(self) -> str:
        return "<JwtBearer>"

    async def obtain(self, case: Case) -> Tokens:
        """Hand the word over. A refusal is final: no other grant is tried."""
        issuer = case.place.server.issuer
        if self._issuer and self._issuer != issuer:
            raise AuthorizationFailed(f"the assertion is for {self._issuer}, and the server names {issuer}")
        client = await case.identify("")
        word = self._assertion
        if not isinstance(word, str):
            word = await word(Audience(issuer, case.place.resource, case.web))
        return await case.door.ask(client, {**case.fields(JWT_BEARER, case.scopes), "assertion": word})


class IdentityAssertion:
    """Exchanges a user's ID token for a word to one authorization server (enterprise-managed authorization)."""

    def __init__(
        self, id_token: Callable[[], Awaitable[str]] | str, *, token_endpoint: str, client_id: str
    ) -> None:
        """Name the identity provider's token endpoint, and the client as it is known there."""
        self._id_token = id_token
        self._endpoint = token_endpoint
        self._client_id = client_id

    def __repr__(self) -> str:
        return f"<IdentityAssertion by {self._endpoint}>"

    async def __call__(self, audience: Audience) -> str:
        """Return the word.

        Raises:
            AuthorizationFailed: the identity provider gives none.
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
            refused = read(reply.body, ErrorAnswer) or ErrorAnswer(f"HTTP {reply.status}")
            raise AuthorizationFailed(
                f"the identity provider refused: {told(refused.error, refused.error_description)}",
                error=refused.error,
            )
        return answer.access_token
