"""Proofs of possession (RFC 9449): a stolen token is useless without the key, and no server receives the key."""

import base64
import hashlib
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from limpet.auth.oauth.identity import sign
from limpet.auth.urls import origin
from limpet.errors import ConfigError
from limpet.ports import Clock, Random

ALGORITHM: Final = "ES256"
CHALLENGE: Final = "use_dpop_nonce"
MOST_NONCES: Final = 64


class Prover:
    """A key, and the nonces that servers require in the proofs."""

    def __init__(self, clock: Clock, random: Random, pem: str = "") -> None:
        self._clock = clock
        self._random = random
        self.pem: str
        self._key, self.pem = _key(pem)
        self._jwk = _public(self._key)
        self._nonces: dict[str, str] = {}

    def learn(self, url: str, nonce: str) -> bool:
        """Remember a server's nonce. True if it is a new one."""
        if not nonce or self._nonces.get(origin(url)) == nonce:
            return False
        if len(self._nonces) >= MOST_NONCES:
            self._nonces.pop(next(iter(self._nonces)))
        self._nonces[origin(url)] = nonce
        return True

    def proof(self, method: str, url: str, access: str = "") -> str:
        """Return a proof that is valid for one request only."""
        parts = urlsplit(url)
        claims: dict[str, Any] = {
            "jti": self._random.token(16),
            "htm": method,
            "htu": urlunsplit((parts.scheme, parts.netloc, parts.path, "", "")),
            "iat": int(self._clock.wall()),
        }
        if access:
            claims["ath"] = (
                base64.urlsafe_b64encode(hashlib.sha256(access.encode()).digest()).decode().rstrip("=")
            )
        if nonce := self._nonces.get(origin(url)):
            claims["nonce"] = nonce
        return sign(claims, self._key, ALGORITHM, {"typ": "dpop+jwt", "jwk": self._jwk})


def _key(pem: str) -> tuple[Any, str]:
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - only for this
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - only for this
    except ImportError:
        raise ConfigError("DPoP needs cryptography: pip install 'PyJWT[crypto]'") from None
    if pem:
        return serialization.load_pem_private_key(pem.encode(), password=None), pem
    key = ec.generate_private_key(ec.SECP256R1())
    form = (
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return key, key.private_bytes(*form).decode()


def _public(key: Any) -> dict[str, Any]:
    try:
        from jwt.algorithms import ECAlgorithm  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigError("DPoP needs PyJWT: pip install 'PyJWT[crypto]'") from None
    found: dict[str, Any] = msgspec.json.decode(ECAlgorithm.to_jwk(key.public_key()))
    return {name: found[name] for name in ("kty", "crv", "x", "y")}
