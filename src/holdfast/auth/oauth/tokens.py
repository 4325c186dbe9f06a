"""Tokens, and when they are due. Never shown: not in a log, not in a traceback, not by repr."""

import re
from typing import Final

from msgspec import Struct

from holdfast.auth.oauth.metadata import TokenAnswer
from holdfast.errors import AuthorizationFailed

EARLY: Final = 30.0
"""How long before its end a token is renewed, at most; a fifth of its life for those that live shortly."""
KINDS: Final = {"bearer": "Bearer", "dpop": "DPoP"}
_SENDABLE: Final = re.compile(r"[\x21-\x7e]{1,16384}")


class Tokens(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an authorization server gave."""

    access: str
    kind: str = "Bearer"
    refresh: str = ""
    renew: float | None = None
    """The date from which on a new one is asked for; None: when this one is refused."""
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
    """Return the tokens of an answer. A refresh token stays good until another takes its place.

    Raises:
        AuthorizationFailed: they are of a kind that cannot be shown to a server.
    """
    kind = KINDS.get(answer.token_type.lower())
    if kind is None or not _SENDABLE.fullmatch(answer.access_token):
        raise AuthorizationFailed("the authorization server gave a token of a kind that is not known here")
    life = answer.expires_in
    return Tokens(
        access=answer.access_token,
        kind=kind,
        refresh=answer.refresh_token or (before.refresh if before else ""),
        renew=None if life is None else wall + life - min(EARLY, life / 5),
        expires=None if life is None else wall + life,
    )
