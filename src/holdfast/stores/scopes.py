"""The two kinds of scopes, distinguished by their names, and the limits of each.

The name of a handle's scope is a hash: a principal may have many, and each belongs to the principal that began it.
A principal's own state (`Settings.state`) is one scope whose name is derived from the principal, so
that every replica finds the same scope, also if several replicas begin it at once. Both kinds are
counted and limited separately: handles never take the room of principals, nor the other way round.
"""

from hashlib import sha256
from typing import Final

from holdfast.config import Limits

OWN: Final = "p:"
"""How the name of a principal's own scope begins. A hash, and a session's key, never do."""


def own_scope(principal: str) -> str:
    """Return the name of a principal's own state. The principal cannot be computed from it."""
    return f"{OWN}{sha256(principal.encode()).hexdigest()}"


def is_own(scope: str) -> bool:
    """Return True if a scope is a principal's own state, and not a handle's."""
    return scope.startswith(OWN)


def most_scopes(scope: str, limits: Limits) -> int:
    """Return the limit for scopes of this kind."""
    return limits.principal_states if is_own(scope) else limits.handles


def most_of_one(scope: str, principal: str, limits: Limits) -> int | None:
    """Return how many scopes of this kind one principal may have; None: no limit except the common one."""
    return None if is_own(scope) or not principal else limits.handles_per_principal


def most_bytes(scope: str, limits: Limits) -> int:
    """Return the limit for the bytes of the state under a name: a session's, a handle's or a principal's."""
    return limits.principal_state_bytes if is_own(scope) else limits.state_bytes
