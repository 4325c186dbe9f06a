"""The sender of a request.

A verifier turns a bearer token into a principal; the engine only compares principals' keys.
"""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Protocol, cast

from msgspec import Struct

from limpet.errors import ConfigError


class Principal(Struct, frozen=True, kw_only=True, dict=True, weakref=True):
    """The identity of a verified token."""

    subject: str
    """The user. It is required: without it all users of a gateway would be one principal."""
    issuer: str = ""
    client: str = ""
    scopes: frozenset[str] = frozenset()
    expires: float | None = None
    """Unix time. Streams end soon after it, and the client authenticates again."""
    claims: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if not self.subject:
            raise ConfigError("a principal needs a subject; a token without one cannot own a session")
        if any("\0" in part for part in (self.issuer, self.subject, self.client)):
            # The key joins them with NUL: a part that contains NUL could produce another principal's key.
            raise ConfigError("a principal's issuer, subject and client may not contain NUL (\\x00)")
        if not isinstance(self.scopes, set | frozenset):
            raise ConfigError("a principal's scopes are a set of texts: frozenset({'mail.read'})")

    def is_over(self, now: float) -> bool:
        """True if the principal has expired at this date: its requests are refused."""
        return self.expires is not None and self.expires <= now

    @cached_property
    def key(self) -> str:
        """A hash of issuer, subject and client. Sessions are bound to it; different principals have different keys."""
        parts = (self.issuer, self.subject, self.client)
        return hashlib.sha256(b"\0".join(part.encode() for part in parts)).hexdigest()


class AuthRequest(Struct, frozen=True):
    """The part of a request that a verifier receives in addition to its token."""

    headers: Mapping[str, str]
    """By lower-case name. Clients write them, unless a proxy removes headers that clients must not write."""
    address: str
    """The address that the connection comes from: the client's, or that of the last proxy."""


class TokenVerifier(Protocol):
    """Checks a bearer token."""

    async def __call__(self, token: str, /) -> Principal | None:
        """Return the principal of a token; None if the token is not valid (the client gets 401)."""


class RequestVerifier(Protocol):
    """Checks a request by its bearer token, its headers and its address."""

    async def __call__(self, token: str, request: AuthRequest, /) -> Principal | None:
        """Return the principal of a request; None if it has none (the client gets 401).

        `token` is empty without one.
        """


KnownPrincipal = Callable[[str], tuple[Principal, float] | None]
"""Returns the principal of a token that was accepted recently, and the date until which that is valid. It does not
wait.

A verifier may have such a method, `known`: it is then not called before that date for the same token."""
Verifier = TokenVerifier | RequestVerifier
"""The type of a server's `verifier`: a function of the token, or of the token and the request."""


def known_by(verifier: Verifier) -> KnownPrincipal | None:
    """Return the method `known` of a verifier; None if it must be called for each request.

    A class that changes `__call__` and inherits `known` must be called: its base class remembers tokens that the
    changed method has not checked.
    """
    for kind in type(verifier).__mro__:
        if "known" in vars(kind):
            known: KnownPrincipal = getattr(verifier, "known")  # noqa: B009 - the protocols do not have it
            return known
        if "__call__" in vars(kind):
            break
    return None


def with_request(verifier: Verifier) -> RequestVerifier | None:
    """Return the verifier if it takes the request; None if it takes only the token.

    Raises:
        ConfigError: it takes neither one nor two arguments.
    """
    for count in (1, 2):
        try:
            inspect.signature(verifier).bind(*[None] * count)
        except TypeError:
            continue
        return cast("RequestVerifier", verifier) if count == 2 else None  # noqa: PLR2004
    raise ConfigError("a verifier takes the token, or the token and the request")
