"""The public keys of an authorization server (JWKS): fetched once for many tokens, and again after a rotation.

When are the keys fetched?

    none are known                    now; the token waits
    the token names an unknown key    now; the token waits
    the keys are older than `_FRESH`  in the background; the token is checked with the old ones meanwhile

A client can name any key, so fetches are limited: `_BURST` of them in a row, which lets tokens of a new key pass at
once, and then one every `_PAUSE` seconds. A token that comes while a fetch runs waits for it.

A key that the server has removed is unknown after the next fetch. If the server cannot be reached, the old keys stay in
use: a server that restarts must not lock all clients out. Without any key, the token cannot be checked (503, not 401).

Keys that are not for signatures, symmetric keys and keys that cannot be read are left out. A symmetric key in a public
document would let every reader of the document sign.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from limpet.auth.oauth.metadata import read
from limpet.auth.oauth.web import OK, Bounds, Web, open_web
from limpet.auth.urls import issuer_urls
from limpet.errors import AuthorizationFailed, ConfigError, LimpetError
from limpet.ports import Clock
from limpet.single_flight import SingleFlight

if TYPE_CHECKING:
    from jwt import PyJWK

_FRESH: Final = 600.0
_PAUSE: Final = 10.0
_BURST: Final = 5
_BURST_SECONDS: Final = 60.0
"""The time after which a burst is allowed again."""
_MOST_KEYS: Final = 100


class KeySet:
    """The keys of one authorization server."""

    def __init__(self, issuer: str, url: str, algorithms: frozenset[str], clock: Clock) -> None:
        """`url` is the address of the keys; empty: it is in the metadata of the issuer."""
        self._issuer = issuer
        self._url = url
        self._algorithms = algorithms
        self._now = clock.now
        self._keys: list[PyJWK] = []
        self._fetched = float("-inf")
        self._tried = deque([float("-inf")] * _BURST, maxlen=_BURST)
        """When the last fetches began."""
        self._failure: LimpetError | None = None
        self._flight: SingleFlight[None] = SingleFlight()
        self._renewing: asyncio.Task[None] | None = None

    async def find(self, kid: str | None, algorithm: str) -> "list[PyJWK]":
        """Return the keys that may have signed a token: those of its key id, or all of the algorithm if it has none.

        Raises:
            LimpetError: the keys cannot be fetched.
        """
        found = self._matching(kid, algorithm)
        if not found and (self._flight.is_running("keys") or self._may_fetch()):
            await self._flight.join("keys", self._fetch)
            found = self._matching(kid, algorithm)
        elif self._is_old() and self._may_fetch():
            self._renewing = asyncio.get_running_loop().create_task(self._renew())
        if not found and self._failure is not None:
            # The key may be a new one that could not be fetched: it is not known whether the token is invalid.
            raise AuthorizationFailed(str(self._failure))
        return found

    def _is_old(self) -> bool:
        """True if the keys should be fetched again, and no task does it."""
        is_renewed = self._renewing is not None and not self._renewing.done()
        return self._now() - self._fetched >= _FRESH and not is_renewed

    def _may_fetch(self) -> bool:
        now = self._now()
        return now - self._tried[-1] >= _PAUSE or now - self._tried[0] >= _BURST_SECONDS

    def _matching(self, kid: str | None, algorithm: str) -> "list[PyJWK]":
        return [
            key
            for key in self._keys
            if (kid is None or key.key_id is None or key.key_id == kid) and key.algorithm_name == algorithm
        ]

    async def _renew(self) -> None:
        try:
            await self._flight.join("keys", self._fetch)
        except LimpetError:
            # `_failure` has the error, and the old keys stay in use.
            return

    async def _fetch(self) -> None:
        self._tried.append(self._now())
        # Until the keys are here: a fetch that is cancelled, because no token waits any more, has failed too.
        self._failure = AuthorizationFailed(f"{self._issuer} did not answer in time")
        try:
            async with open_web(self._issuer, Bounds()) as web:
                document = await _document(web, self._url or await self._discover(web))
        except LimpetError as error:
            self._failure = error
            raise
        self._keys = _read(document, self._algorithms)
        self._fetched, self._failure = self._now(), None

    async def _discover(self, web: Web) -> str:
        """Return the address of the keys. It is asked for each time, because it may change."""
        for url in issuer_urls(self._issuer):
            reply = await web.get(url)
            if reply.status != OK:
                continue
            metadata = _object(reply.body, url)
            if metadata.get("issuer") != self._issuer:
                raise AuthorizationFailed(f"{url} describes another issuer than {self._issuer}")
            if isinstance(address := metadata.get("jwks_uri"), str):
                return address
        raise AuthorizationFailed(f"{self._issuer} publishes no address of its keys (jwks_uri): set jwks_url")


async def _document(web: Web, url: str) -> dict[str, Any]:
    reply = await web.get(url)
    if reply.status != OK:
        raise AuthorizationFailed(f"{url} answered {reply.status} instead of the keys")
    return _object(reply.body, url)


def _object(body: bytes, url: str) -> dict[str, Any]:
    found = read(body, dict[str, Any])
    if found is None:
        raise AuthorizationFailed(f"the answer of {url} is not a JSON object")
    return found


def _read(document: dict[str, Any], algorithms: frozenset[str]) -> "list[PyJWK]":
    """Return the usable keys. A key without `alg` is usable with each algorithm of its type."""
    jwt = import_jwt()
    keys: list[PyJWK] = []
    entries = document.get("keys")
    for entry in entries[:_MOST_KEYS] if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or entry.get("kty") == "oct" or entry.get("use", "sig") != "sig":
            continue
        try:
            named = entry.get("alg")
            fitting = [named] if named else _FITTING.get((entry.get("kty"), entry.get("crv")), ())
            keys.extend(jwt.PyJWK(entry, algorithm) for algorithm in fitting if algorithm in algorithms)
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            continue
    return keys


_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_FITTING: Final[dict[tuple[Any, Any], tuple[str, ...]]] = {
    ("RSA", None): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""By type and curve of a key: the algorithms that it fits."""
ASYMMETRIC: Final = frozenset(algorithm for fitting in _FITTING.values() for algorithm in fitting)


def import_jwt() -> Any:
    """Return PyJWT.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import jwt  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigError("JWTs need PyJWT: pip install 'PyJWT[crypto]'") from None
    return jwt
