"""The tokens of a client for one MCP server, and how they are renewed when they expire or are refused.

Two rules keep many concurrent requests from disturbing each other. Every change of the tokens holds one lock. And
requests that need the same change share one run of it (`single_flight`), so a token is renewed once, not once per
request.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from limpet.auth.authorizer import Challenge
from limpet.auth.oauth.challenges import OAuthChallenge, oauth_challenge
from limpet.auth.oauth.discovery import TokenSource, discover, find_server
from limpet.auth.oauth.dpop import CHALLENGE, Prover
from limpet.auth.oauth.grants import Grant, GrantRequest
from limpet.auth.oauth.identity import ClientIdentity
from limpet.auth.oauth.pkce import Begun
from limpet.auth.oauth.registration import Application, is_usable, known_client, register
from limpet.auth.oauth.scopes import Scopes, is_step_up, union, wanted
from limpet.auth.oauth.storage import Credentials, TokenStorage, turn_of
from limpet.auth.oauth.token_endpoint import TokenEndpoint
from limpet.auth.oauth.tokens import Tokens
from limpet.auth.oauth.web import Bounds, Web, open_web
from limpet.errors import AuthorizationFailed, LinkError
from limpet.ports import Clock, Random
from limpet.single_flight import SingleFlight

UNAUTHORIZED: Final = 401
INSUFFICIENT: Final = "insufficient_scope"


class Setup(Struct, frozen=True, kw_only=True):
    """How tokens are obtained and stored."""

    grant: Grant
    application: Application
    storage: TokenStorage
    scopes: Scopes
    bounds: Bounds
    guess: bool
    ports: tuple[Clock, Random]


class OAuthAccount:
    """Tokens for one server URL."""

    def __init__(self, server: str, setup: Setup) -> None:
        self._server = server
        self._setup = setup
        client = setup.application.client
        # Tokens belong to a client: two applications of a user may be registered by hand under two ids.
        self._stored_as = f"{server}#{client.id}" if client else server
        self._clock, self._random = setup.ports
        self._lock = asyncio.Lock()
        self._flights: SingleFlight[bool] = SingleFlight()
        self._is_loaded = False
        self._kept: Credentials | None = None
        self._prover: Prover | None = None
        self._granted = ""
        """The last token of the grant. If the server refuses it, a new token of the same grant would be refused too."""

    # For requests

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers for a request, with renewed tokens if needed; empty if there are no tokens."""
        await self._load()
        due = self._tokens
        if due is not None and due.is_due(self._clock.wall()):
            await self._flights.join(("renew", due.access), partial(self._renew, due))
        tokens = self._tokens
        if tokens is None:
            return {}
        if self._prover is None:
            return {"authorization": tokens.header}
        return {"authorization": tokens.header, "dpop": self._prover.proof(method, url, tokens.access)}

    async def challenged(self, challenge: Challenge) -> bool:
        await self._load()
        demand = oauth_challenge(challenge.headers)
        sent = challenge.sent.get("authorization", "")
        if self._tokens is not None and sent != self._tokens.header:
            return True
        if self._prover is not None and demand.error == CHALLENGE:
            nonce = next(iter(challenge.headers.get("dpop-nonce", ())), "")
            self._prover.learn(challenge.url, nonce)
            return bool(nonce)
        if not self._is_hopeful(challenge, demand):
            return False
        # The token was already refreshed for this request and refused again: refreshing does not help.
        may_refresh = challenge.attempt == 1 and demand.error != INSUFFICIENT
        key = (may_refresh, sent, demand.scopes)
        return await self._flights.join(key, lambda: self._satisfy(demand, sent, may_refresh=may_refresh))

    def _is_hopeful(self, challenge: Challenge, demand: OAuthChallenge) -> bool:
        """True if another token could help this request."""
        if challenge.status != UNAUTHORIZED:
            asked = self._kept.scopes if self._kept and self._tokens else ()
            return demand.error == INSUFFICIENT and is_step_up(demand, asked)
        return challenge.attempt == 1 or self._tokens is None or self._tokens.access != self._granted

    @property
    def _tokens(self) -> Tokens | None:
        return self._kept.tokens if self._kept else None

    # Changes of the tokens

    async def _satisfy(self, demand: OAuthChallenge, sent: str, *, may_refresh: bool) -> bool:
        async with self._lock:
            before = self._tokens
            if (before is not None and before.header != sent) or await self._take_stored(sent):
                return True
            async with open_web(self._server, self._setup.bounds) as web:
                place = await discover(
                    web, self._server, demand, prefer=self._preferred(), guess=self._setup.guess
                )
                is_same = self._kept is not None and self._kept.issuer == place.server.issuer
                if may_refresh and is_same and await self._refresh(web, place):
                    return True
                scopes = wanted(demand, self._setup.scopes, place.scopes)
                await self._authorize(web, place, scopes)
        return True

    async def finish(self, demand: OAuthChallenge, begun: Begun, redirect: str) -> None:
        """Exchange the code of an authorization that has begun in another run, perhaps in another process.

        Raises:
            AuthorizationFailed: the user or the server has refused it.
            LinkError: a server cannot be reached.
        """
        await self._load()
        async with self._lock, open_web(self._server, self._setup.bounds) as web:
            prefer = [begun.request.issuer]
            place = await discover(web, self._server, demand, prefer=prefer, guess=self._setup.guess)
            await self._authorize(web, place, begun.scopes, (begun, redirect))

    async def _take_stored(self, sent: str) -> bool:
        """Use the tokens that another process has stored; False if there are none besides those that were refused."""
        stored = await self._setup.storage.load(self._stored_as)
        if stored is None or stored.tokens is None or stored.tokens.header == sent:
            return False
        if stored.key != (self._prover.pem if self._prover else "") or stored.tokens == self._tokens:
            return False
        self._kept = stored
        return True

    async def _renew(self, due: Tokens) -> bool:
        """Renew tokens: take those of another process, refresh them, or repeat a grant that needs no user."""
        async with self._lock:
            kept = self._kept
            if kept is None or kept.tokens != due or await self._adopt(kept):
                return True
            try:
                async with open_web(self._server, self._setup.bounds) as web:
                    server = await find_server(web, kept.issuer)
                    place = TokenSource(server=server, resource=kept.resource)
                    if not await self._refresh(web, place) and self._setup.grant.is_silent:
                        await self._authorize(web, place, kept.scopes)
            except (LinkError, AuthorizationFailed) as error:
                # If a user can still be asked, continue: the server's refusal starts that.
                is_final = isinstance(error, LinkError) or self._setup.grant.is_silent
                if is_final and due.is_over(self._clock.wall()):
                    raise
            if self._tokens == due and due.is_over(self._clock.wall()):
                await self._keep(replace(kept, tokens=None))
        return True

    async def _refresh(self, web: Web, place: TokenSource) -> bool:
        """Use the refresh token; False without a refresh token, or if it is refused."""
        kept = self._kept
        client = self._client(kept, place) if kept else None
        if kept is None or kept.tokens is None or not kept.tokens.refresh or client is None:
            return False
        fields = {
            "grant_type": "refresh_token",
            "refresh_token": kept.tokens.refresh,
            "resource": kept.resource,
        }
        async with turn_of(self._setup.storage):
            if await self._adopt(kept):
                return True
            try:
                tokens = await self._token_endpoint(web, place).ask(client, fields, kept.tokens)
            except AuthorizationFailed:
                if not await self._adopt(kept):
                    await self._keep(replace(kept, tokens=None))
                    return False
            else:
                await self._keep(replace(kept, tokens=tokens))
        return True

    async def _adopt(self, kept: Credentials) -> bool:
        """Use the tokens that another process has stored meanwhile; False if there are none."""
        stored = await self._setup.storage.load(self._stored_as, kept.issuer)
        if stored is None or stored.tokens is None or stored.tokens == kept.tokens:
            return False
        if stored.tokens.is_due(self._clock.wall()) or stored.key != kept.key:
            return False
        self._kept = stored
        return True

    async def _authorize(
        self, web: Web, place: TokenSource, scopes: Scopes, came_back: tuple[Begun, str] | None = None
    ) -> None:
        """Run the whole grant. Scopes that were requested earlier from this server are requested again."""
        issuer = place.server.issuer
        earlier = self._kept
        if earlier is None or earlier.issuer != issuer:
            earlier = await self._setup.storage.load(self._stored_as, issuer)
        asked = union(earlier.scopes, scopes) if earlier else scopes
        found: list[ClientIdentity] = [] if came_back is None else [came_back[0].client]

        async def identify(redirect_uri: str) -> ClientIdentity:
            found[:] = [await self._identify(web, place, earlier, redirect_uri)]
            return found[0]

        case = GrantRequest(
            web=web,
            place=place,
            token_endpoint=self._token_endpoint(web, place),
            scopes=asked,
            random=self._random,
            bounds=self._setup.bounds,
            identify=identify,
            redirect_uri=earlier.client.redirect_uri if earlier and earlier.client else "",
            came_back=came_back,
        )
        try:
            tokens = await self._setup.grant.obtain(case)
        except AuthorizationFailed as error:
            if error.error == "invalid_client" and earlier is not None:
                # Register again next time.
                await self._keep(replace(earlier, client=None, tokens=None))
            raise
        registered = next((client for client in found if client != self._setup.application.client), None)
        self._granted = tokens.access
        await self._keep(
            Credentials(
                issuer=issuer,
                resource=place.resource,
                scopes=asked,
                tokens=tokens,
                client=registered,
                key=self._prover.pem if self._prover else "",
            )
        )

    # Parts

    async def _identify(
        self, web: Web, place: TokenSource, earlier: Credentials | None, redirect_uri: str
    ) -> ClientIdentity:
        known = known_client(self._setup.application, place.server, self._kept.issuer if self._kept else "")
        if known is not None:
            return known
        client = earlier.client if earlier else None
        if client is not None and is_usable(client, place.server, redirect_uri, self._clock.wall()):
            return client
        return await register(web, place.server, self._setup.application, redirect_uri)

    def _client(self, kept: Credentials, place: TokenSource) -> ClientIdentity | None:
        return kept.client or known_client(self._setup.application, place.server, kept.issuer)

    def _token_endpoint(self, web: Web, place: TokenSource) -> TokenEndpoint:
        return TokenEndpoint(web, place.server, self._setup.ports, self._prover)

    def _preferred(self) -> list[str]:
        client = self._setup.application.client
        named = client.issuer if client else ""
        return [issuer for issuer in (named, self._kept.issuer if self._kept else "") if issuer]

    async def _load(self) -> None:
        if self._is_loaded:
            return
        kept = await self._setup.storage.load(self._stored_as)
        if not self._is_loaded:
            self._is_loaded = True
            if self._setup.application.is_proving:
                self._prover = Prover(self._clock, self._random, kept.key if kept else "")
            self._kept = replace(kept, tokens=None) if kept and bool(kept.key) != bool(self._prover) else kept

    async def _keep(self, kept: Credentials) -> None:
        self._kept = kept
        await self._setup.storage.save(self._stored_as, kept)
