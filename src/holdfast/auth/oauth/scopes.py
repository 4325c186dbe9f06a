"""Which scopes to ask for. Pure: what was demanded, what is listed, what was asked before."""

from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.auth.oauth.challenges import Demand

OFFLINE: Final = "offline_access"
Scopes = tuple[str, ...]


def union(*sets: Iterable[str]) -> Scopes:
    """Return every scope once, in the order of first mention."""
    return tuple(dict.fromkeys(scope for scopes in sets for scope in scopes))


def wanted(demand: Demand, configured: Sequence[str], listed: Sequence[str] | None) -> Scopes:
    """Return the scopes for a first authorization: the challenge's, else the resource's; none leaves them out.

    What the application configured is asked for in any case, and then in place of the resource's list.
    """
    return union(demand.scopes, configured) or union(listed or ())


def is_step_up(demand: Demand, asked: Sequence[str]) -> bool:
    """Tell whether asking again can help: only for a scope that was not asked for yet."""
    return not set(demand.scopes) <= set(asked)


def with_offline(scopes: Scopes, supported: Sequence[str] | None, grants: Sequence[str] | None) -> Scopes:
    """Add `offline_access` where the authorization server offers it.

    Alone it would replace the scopes that an authorization server grants by default, so it is never sent alone.
    """
    offered = OFFLINE in (supported or ()) and (grants is None or "refresh_token" in grants)
    return union(scopes, (OFFLINE,)) if scopes and offered else scopes
