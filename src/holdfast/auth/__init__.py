"""Who a request is from. A verifier turns a bearer token into a principal; the engine only compares keys."""

import hashlib
from typing import Any, Protocol

from msgspec import Struct

from holdfast.errors import ConfigError


class Principal(Struct, frozen=True, kw_only=True):
    """Who a verified token speaks for."""

    subject: str
    """The user. Without one, all users of a gateway would be one principal: it is required."""
    issuer: str = ""
    client: str = ""
    scopes: frozenset[str] = frozenset()
    expires: float | None = None
    """Unix time; streams end soon after it and the client authenticates again."""
    claims: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if not self.subject:
            raise ConfigError("a principal needs a subject; a token without one cannot own a session")
        if any("\0" in part for part in (self.issuer, self.subject, self.client)):
            # The key joins them with NUL: a part that has one could imitate another principal.
            raise ConfigError("a principal's issuer, subject and client may not contain NUL (\\x00)")

    def is_over(self, now: float) -> bool:
        """Tell whether its time is over at this date: it is no longer served."""
        return self.expires is not None and self.expires <= now

    @property
    def key(self) -> str:
        """What sessions are bound to: issuer, subject and client, none able to imitate another."""
        parts = (self.issuer, self.subject, self.client)
        return hashlib.sha256(b"\0".join(part.encode() for part in parts)).hexdigest()


class Verifier(Protocol):
    """Checks a bearer token."""

    async def __call__(self, token: str) -> Principal | None:
        """Return who the token speaks for; None if it is not valid (the client gets 401)."""
        ...
