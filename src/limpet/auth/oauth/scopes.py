"""Which scopes to request: those of the challenge, of the metadata, and of earlier requests. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from limpet.auth.oauth.challenges import OAuthChallenge

OFFLINE: Final = "offline_access"
Scopes = tuple[str, ...]


def union(*sets: Iterable[str]) -> Scopes:
    """Return every scope once, in the order of first mention."""
    return tuple(dict.fromkeys(scope for scopes in sets for scope in scopes))


def wanted(demand: OAuthChallenge, configured: Sequence[str], listed: Sequence[str] | None) -> Scopes:
    """Return the scopes for a first authorization: those of the challenge, else those that the resource lists.

    The scopes that the application configured are always requested, and they replace the list of the resource.
    """
    return union(demand.scopes, configured) or union(listed or ())


def is_step_up(demand: OAuthChallenge, asked: Sequence[str]) -> bool:
    """True if another authorization can help: the challenge names a scope that was not requested yet."""
    return not set(demand.scopes) <= set(asked)


def with_offline(scopes: Scopes, supported: Sequence[str] | None, grants: Sequence[str] | None) -> Scopes:
    """Add `offline_access` if the authorization server supports it.

    Alone it would replace the scopes that an authorization server grants by default, so it is never sent alone.
    """
    offered = OFFLINE in (supported or ()) and (grants is None or "refresh_token" in grants)
    return union(scopes, (OFFLINE,)) if scopes and offered else scopes
