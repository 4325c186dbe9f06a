"""The two kinds of areas, distinguished by their names, and the limits of each.

The name of a handle's area is a hash: a principal may have many, and each belongs to the principal that began it.
A principal's own state (`Settings.state`) is one area whose name is derived from the principal, so
that every replica finds the same area, also if several replicas begin it at once. Both kinds are
counted and limited separately: handles never take the room of principals, nor the other way round.
"""

from hashlib import sha256
from typing import Final

from holdfast.config import Limits

OWN: Final = "p:"
"""How the name of a principal's own area begins. A hash, and a session's key, never do."""


def own_area(principal: str) -> str:
    """Return the name of a principal's own state. The principal cannot be computed from it."""
    return f"{OWN}{sha256(principal.encode()).hexdigest()}"


def is_own(area: str) -> bool:
    """Return True if an area is a principal's own state, and not a handle's."""
    return area.startswith(OWN)


def most_areas(area: str, limits: Limits) -> int:
    """Return the limit for areas of this kind."""
    return limits.principal_states if is_own(area) else limits.handles


def most_of_one(area: str, principal: str, limits: Limits) -> int | None:
    """Return how many areas of this kind one principal may have; None: no limit except the common one."""
    return None if is_own(area) or not principal else limits.handles_per_principal


def most_bytes(area: str, limits: Limits) -> int:
    """Return the limit for the bytes of the state under a name: a session's, a handle's or a principal's."""
    return limits.principal_state_bytes if is_own(area) else limits.state_bytes
