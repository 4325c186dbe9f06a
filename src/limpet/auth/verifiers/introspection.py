"""Tokens that only their authorization server can read: it is asked about each of them (RFC 7662).

Every client can send a token that must be asked about. How many are asked about at the same time is decided where the
addresses of the clients are known (`fronts/http/decide/identity.py`). Refused tokens are remembered beside accepted
ones, so that many of them do not make accepted ones forgotten.
"""

import base64
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from limpet.auth import Principal
from limpet.auth.known_tokens import KnownTokens
from limpet.auth.oauth.web import OK, Bounds, open_web
from limpet.auth.urls import check_trusted
from limpet.auth.verifiers.claims import Claims, Rules, audiences_of, principal_of, read_claims, refused
from limpet.config import KIB
from limpet.errors import AuthorizationFailed, ConfigError
from limpet.ports import Clock, SystemClock
from limpet.single_flight import SingleFlight

_KNOWN_SECONDS: Final = 30.0
_ANSWER_BYTES: Final = 64 * KIB


class Introspection:
    """Asks the authorization server about tokens, once for all requests that carry the same one within 30 seconds."""

    def __init__(
        self,
        url: str,
        *,
        client_id: str,
        client_secret: str,
        audience: str | Sequence[str],
        issuer: str = "",
        leeway: float = 30.0,
        cache_seconds: float = _KNOWN_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        """Describe the server that is asked. Read the secret from a file or a variable.

        url             the introspection endpoint: https, or this machine
        client_id, client_secret   how this server signs in there
        audience        the URL of this server as clients know it, or several; the answer must name one of them as `aud`
        issuer          the authorization server, for clients that have no token yet
        cache_seconds   how long an answer is used again; a revoked token is accepted until then

        Raises:
            ConfigError: a value is invalid.
        """
        try:
            check_trusted(url, near=url)
        except AuthorizationFailed as error:
            raise ConfigError(str(error)) from None
        if not client_id or not client_secret:
            raise ConfigError("Introspection needs client_id and client_secret: the endpoint is not public")
        audiences = audiences_of(audience, "Introspection")
        self.authorization_servers: tuple[str, ...] = (issuer,) if issuer else ()
        """The servers that give tokens: clients learn them from the metadata of the endpoint."""
        self.asked: str = url.partition("?")[0]
        """The endpoint, for operators."""
        self.resource: str = audiences[0]
        """The URL of the endpoint, unless its settings name another one."""
        self._url = url
        self._rules = Rules(audiences=frozenset(audiences), leeway=leeway, needs_expiry=False)
        self._known = KnownTokens(cache_seconds)
        self._refused = KnownTokens(cache_seconds)
        self.memories: tuple[KnownTokens, ...] = (self._known, self._refused)
        """What is remembered of tokens."""
        self._flight: SingleFlight[tuple[Claims, int]] = SingleFlight()
        self._clock = clock or SystemClock()
        pair = f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}"
        self._headers = {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    def __repr__(self) -> str:
        return f"<Introspection at {self._url}>"

    def known(self, token: str) -> tuple[Principal, float] | None:
        """Return the principal of a token that was accepted recently, and the date until which that is valid."""
        return self._known.accepted(token, self._clock.wall())

    async def __call__(self, token: str) -> Principal | None:
        """Return the principal of an active token; None otherwise.

        Raises:
            LimpetError: the authorization server gave no usable answer.
        """
        now = self._clock.wall()
        known = self._known.get(token, now) or self._refused.get(token, now)
        if known is not None:
            return known[0]
        claims, size = await self._flight.join(token, lambda: self._ask(token))
        if claims.get("active") is not True or refused(claims, self._rules, now):
            self._refused.put(token, None, now)
            return None
        principal = principal_of(claims, self._rules)
        self._known.put(token, principal, now, size)
        return principal

    async def _ask(self, token: str) -> tuple[Claims, int]:
        fields = {"token": token, "token_type_hint": "access_token"}
        async with open_web(self._url, Bounds(document=_ANSWER_BYTES)) as web:
            reply = await web.post(self._url, fields, self._headers)
        if reply.status != OK:
            raise AuthorizationFailed(f"{self._url} answered {reply.status} to an introspection")
        try:
            return read_claims(reply.body)
        except ValueError:
            raise AuthorizationFailed(
                f"the answer of {self._url} is not a JSON object, or too large"
            ) from None
