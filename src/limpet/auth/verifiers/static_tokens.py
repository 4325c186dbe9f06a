"""A few fixed tokens: for development, and for machines that cannot sign in."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from limpet.auth import Principal
from limpet.errors import ConfigError

_SHORTEST: Final = 16


class StaticTokens:
    """Accepts the given tokens. Only their hashes are kept, so the time of a comparison says nothing about a token."""

    def __init__(self, tokens: Mapping[str, Principal | str]) -> None:
        """Take tokens with their principals; a text is the subject of a principal. Read them from a file or a variable.

        Raises:
            ConfigError: there is no token, or one is too short to be secret.
        """
        if not tokens or any(len(token) < _SHORTEST for token in tokens):
            raise ConfigError(f"StaticTokens needs tokens of at least {_SHORTEST} characters")
        self._principals = {
            _hash(token): Principal(subject=who) if isinstance(who, str) else who
            for token, who in tokens.items()
        }

    def __repr__(self) -> str:
        return f"<StaticTokens, {len(self._principals)}>"

    async def __call__(self, token: str) -> Principal | None:
        """Return the principal of a token that was given; None for others."""
        return self._principals.get(_hash(token))


def _hash(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
