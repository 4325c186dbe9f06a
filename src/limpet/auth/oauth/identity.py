"""The client as an authorization server knows it, and how it authenticates at the token endpoint."""

import base64
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from msgspec import Struct

from limpet.errors import AuthorizationFailed, ConfigError
from limpet.ports import Clock, Random

ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_SECONDS: Final = 60
NONE, BASIC, POST, KEY = "none", "client_secret_basic", "client_secret_post", "private_key_jwt"


class ClientIdentity(Struct, frozen=True, omit_defaults=True):
    """A client as an authorization server knows it.

    issuer        the authorization server that it is registered with; no other one receives it. It is required for a
                  client with a secret: otherwise every MCP server could choose the receiver of the secret
    private_key   PEM, for `private_key_jwt`
    method        how to authenticate; by default, a method that the authorization server supports
    """

    id: str
    secret: str = ""
    private_key: str = ""
    algorithm: str = "ES256"
    issuer: str = ""
    method: str = ""
    redirect_uri: str = ""
    """The redirect URI of a dynamic registration."""
    expires: float | None = None
    """The date at which the secret expires."""

    def __post_init__(self) -> None:
        if self.secret and not self.issuer:
            raise ConfigError(
                f"client {self.id!r} has a secret: name the authorization server that it is registered with, "
                'which is the only one that receives the secret: issuer="https://..."'
            )

    def __repr__(self) -> str:
        return f"<ClientIdentity {self.id!r} at {self.issuer or 'the first authorization server'}>"


def choose_method(identity: ClientIdentity, supported: Sequence[str] | None) -> str:
    """Return the authentication method. A server without a list accepts `client_secret_basic` (RFC 8414)."""
    if identity.method:
        return identity.method
    if identity.private_key:
        return KEY
    if not identity.secret:
        return NONE
    return next((method for method in (BASIC, POST, NONE) if method in (supported or (BASIC,))), BASIC)


class Proof(Struct, frozen=True):
    """The fields and headers by which a token request authenticates."""

    fields: dict[str, str]
    headers: dict[str, str]

    def __repr__(self) -> str:
        return "<Proof>"


def prove(
    identity: ClientIdentity, issuer: str, supported: Sequence[str] | None, clock: Clock, random: Random
) -> Proof:
    """Return the proof for one request.

    Raises:
        AuthorizationFailed: the client does not belong to this issuer.
    """
    if identity.issuer and identity.issuer != issuer:
        raise AuthorizationFailed(f"the client is registered with {identity.issuer}, not with {issuer}")
    match choose_method(identity, supported):
        case "client_secret_basic":
            pair = f"{quote(identity.id, safe='')}:{quote(identity.secret, safe='')}"
            return Proof({}, {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"})
        case "client_secret_post":
            return Proof({"client_id": identity.id, "client_secret": identity.secret}, {})
        case "private_key_jwt":
            assertion = _assertion(identity, issuer, clock, random)
            fields = {"client_assertion_type": ASSERTION, "client_assertion": assertion}
            return Proof({"client_id": identity.id, **fields}, {})
        case "none":
            return Proof({"client_id": identity.id}, {})
        case method:
            raise AuthorizationFailed(
                f"the authorization server requires the method {method[:50]!r}, which is not supported"
            )


def _assertion(identity: ClientIdentity, issuer: str, clock: Clock, random: Random) -> str:
    now = int(clock.wall())
    claims = {
        "iss": identity.id,
        "sub": identity.id,
        "aud": issuer,
        "iat": now,
        "exp": now + ASSERTION_SECONDS,
        "jti": random.token(16),
    }
    return sign(claims, identity.private_key, identity.algorithm)


def sign(claims: dict[str, Any], key: Any, algorithm: str, headers: dict[str, Any] | None = None) -> str:
    """Return a signed JWT.

    Raises:
        ConfigError: PyJWT is missing, or the key does not fit.
    """
    try:
        import jwt  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigError("signing needs PyJWT: pip install 'PyJWT[crypto]'") from None
    try:
        return jwt.encode(claims, key, algorithm=algorithm, headers=headers)
    except (jwt.PyJWTError, ValueError, TypeError, NotImplementedError) as error:
        # Without the cause: it may contain the key.
        raise ConfigError(f"the private key does not fit {algorithm}: {type(error).__name__}") from None
