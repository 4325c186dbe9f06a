"""Tokens, and when they must be renewed. Their values never appear in a log, a traceback or a repr."""

import re
from typing import Final

from msgspec import Struct

from limpet.auth.oauth.metadata import TokenAnswer
from limpet.errors import AuthorizationFailed

EARLY: Final = 30.0
"""How long before it expires a token is renewed; for tokens with a short life, a fifth of it."""
KINDS: Final = {"bearer": "Bearer", "dpop": "DPoP"}
_SENDABLE: Final = re.compile(r"[\x21-\x7e]{1,16384}")


class Tokens(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tokens of one response of an authorization server."""

    access: str
    kind: str = "Bearer"
    refresh: str = ""
    renew: float | None = None
    """The date from which the token is renewed; None: it is renewed when it is refused."""
    expires: float | None = None

    def __repr__(self) -> str:
        return f"<Tokens {self.kind}{', refreshable' if self.refresh else ''}, expires {self.expires}>"

    @property
    def header(self) -> str:
        return f"{self.kind} {self.access}"

    def is_due(self, wall: float) -> bool:
        return self.renew is not None and wall >= self.renew

    def is_over(self, wall: float) -> bool:
        return self.expires is not None and wall >= self.expires


def tokens_from(answer: TokenAnswer, wall: float, before: Tokens | None = None) -> Tokens:
    """Return the tokens of a response. If it has no refresh token, the earlier one stays valid.

    Raises:
        AuthorizationFailed: the token type is not supported.
    """
    kind = KINDS.get(answer.token_type.lower())
    if kind is None or not _SENDABLE.fullmatch(answer.access_token):
        raise AuthorizationFailed("the authorization server gave a token of an unknown type")
    life = answer.expires_in
    return Tokens(
        access=answer.access_token,
        kind=kind,
        refresh=answer.refresh_token or (before.refresh if before else ""),
        renew=None if life is None else wall + life - min(EARLY, life / 5),
        expires=None if life is None else wall + life,
    )
