"""JWTs, checked with the keys that their authorization server publishes.

The header of a token is written by the sender. It chooses among the keys and algorithms that the operator allows, and
nothing else: no key in the header (`jwk`, `x5c`) and no address in it (`jku`, `x5u`) is used. Symmetric algorithms and
`none` cannot be allowed at all. A header with `crit` demands something that we may not understand: refused.
"""

from collections.abc import Sequence
from typing import Final

from limpet.auth import Principal
from limpet.auth.known_tokens import KnownTokens
from limpet.auth.urls import check_trusted
from limpet.auth.verifiers.claims import Claims, Rules, audiences_of, principal_of, read_claims, refused
from limpet.auth.verifiers.key_set import ASYMMETRIC, KeySet, import_jwt
from limpet.errors import AuthorizationFailed, ConfigError
from limpet.ports import Clock, SystemClock

ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA")
_KNOWN_SECONDS: Final = 60.0
"""How long an accepted token is not checked again: after this time the removal of a key takes effect."""
_MOST_BYTES: Final = 16 * 1024


class JwtVerifier:
    """Accepts the JWTs of one authorization server for one audience."""

    def __init__(
        self,
        *,
        issuer: str,
        audience: str | Sequence[str],
        jwks_url: str = "",
        algorithms: Sequence[str] = ALGORITHMS,
        leeway: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        """Describe the tokens. Nothing is fetched before the first one comes.

        issuer       the authorization server: its exact `iss`; https, or this machine
        audience     the URL of this server as clients know it, or several; a token must be for one of them
        jwks_url     where the keys are; without it, the metadata of the issuer says where
        algorithms   the signatures that are accepted; only asymmetric ones can be
        leeway       seconds by which the clocks of the two servers may differ
        clock        for tests

        Raises:
            ConfigError: a value is invalid, or PyJWT is not installed.
        """
        audiences = audiences_of(audience, "JwtVerifier")
        unknown = set(algorithms) - ASYMMETRIC
        if unknown or not algorithms:
            raise ConfigError(
                f"JwtVerifier cannot use the algorithms {', '.join(sorted(unknown)) or 'of an empty list'}: choose from "
                f"{', '.join(sorted(ASYMMETRIC))}"
            )
        try:
            for url in filter(None, (issuer, jwks_url)):
                check_trusted(url, near=issuer)
        except AuthorizationFailed as error:
            raise ConfigError(str(error)) from None
        if not issuer:
            raise ConfigError("JwtVerifier needs an issuer: the URL of the authorization server")
        self.authorization_servers: tuple[str, ...] = (issuer,)
        """The servers that give tokens: clients learn them from the metadata of the endpoint."""
        self.resource: str = audiences[0]
        """The URL of the endpoint, unless its settings name another one."""
        self._jwt = import_jwt()
        self._rules = Rules(issuer=issuer, audiences=frozenset(audiences), leeway=leeway)
        self._algorithms = frozenset(algorithms)
        self._clock = clock or SystemClock()
        self._keys = KeySet(issuer, jwks_url, self._algorithms, self._clock)
        self._known = KnownTokens(_KNOWN_SECONDS)
        self.memories: tuple[KnownTokens, ...] = (self._known,)
        """What is remembered of tokens."""

    def __repr__(self) -> str:
        return f"<JwtVerifier of {self._rules.issuer}>"

    def known(self, token: str) -> tuple[Principal, float] | None:
        """Return the principal of a token that was accepted recently, and the date until which that is valid."""
        return self._known.accepted(token, self._clock.wall())

    async def __call__(self, token: str) -> Principal | None:
        """Return the principal of a valid token; None otherwise.

        Raises:
            LimpetError: the keys cannot be fetched, so it is not known whether the token is valid.
        """
        now = self._clock.wall()
        known = self._known.get(token, now)
        if known is not None:
            return known[0]
        claims, size = await self._verify(token) or (None, 0)
        if claims is None or refused(claims, self._rules, now):
            return None
        principal = principal_of(claims, self._rules)
        self._known.put(token, principal, now, size)
        return principal

    async def _verify(self, token: str) -> tuple[Claims, int] | None:
        """Return the claims of a token with a valid signature, and the memory that they take."""
        jwt = self._jwt
        if len(token) > _MOST_BYTES:
            return None
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            return None
        algorithm, kid = header.get("alg"), header.get("kid")
        # The sender writes the header, so each member may have any type.
        if (
            not isinstance(algorithm, str)
            or algorithm not in self._algorithms
            or "crit" in header
            or not isinstance(kid, str | None)
        ):
            return None
        for key in await self._keys.find(kid, algorithm):
            try:
                return read_claims(jwt.api_jws.decode(token, key, algorithms=[algorithm]))
            except (jwt.PyJWTError, ValueError):
                continue
        return None
