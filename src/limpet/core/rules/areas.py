"""Areas: state under a name, which belongs to a principal and ends when it is not used. There are two kinds.

The name of a handle's area is a hash: a principal may have many, and each belongs to the principal that began it.
A principal's own state (`Settings.state`) is one area whose name is derived from the principal, so
that every replica finds the same area, also if several replicas begin it at once. Both kinds are
counted and limited separately: handles never take the room of principals, nor the other way round.
"""

from hashlib import sha256
from typing import Final, NamedTuple, Protocol

from limpet.config import Limits
from limpet.core.rules.state import StateRoom

OWN: Final = "p:"
"""How the name of a principal's own area begins. A hash, and a session's key, never do."""


def own_area(principal: str) -> str:
    """Return the name of a principal's own state. The principal cannot be computed from it."""
    return f"{OWN}{sha256(principal.encode()).hexdigest()}"


def is_own(area: str) -> bool:
    """Return True if an area is a principal's own state, and not a handle's."""
    return area.startswith(OWN)


class AreaOwner(Protocol):
    """Whose an area is, and for how long."""

    principal: str
    ttl: float
    due: float
    """When it ends if it is not used until then."""


def use(area: AreaOwner | None, principal: str, now: float) -> bool:
    """Let the time of an area start again. False if it is unknown, expired or another principal's."""
    if area is None or area.due <= now or area.principal != principal:
        return False
    area.due = now + area.ttl
    return True


class AreaBounds(NamedTuple):
    """How many areas of one kind there may be."""

    all: int
    own: int | None
    """Of one principal; None: no bound besides."""

    @classmethod
    def of(cls, area: str, principal: str, limits: Limits) -> "AreaBounds":
        """Return the bounds for areas of the same kind as this one."""
        if is_own(area):
            return cls(limits.principal_states, None)
        return cls(limits.handles, limits.handles_per_principal if principal else None)

    def allow(self, others: int, own: int) -> bool:
        """Return True if there may be one more; the numbers are those of its kind, and of its principal."""
        return others < self.all and (self.own is None or own < self.own)


def room(area: str, limits: Limits, kept: float) -> StateRoom:
    """Return how much state there may be under a name, if it may keep so much."""
    most = limits.principal_state_bytes if is_own(area) else limits.state_bytes
    return StateRoom(most, limits.principal_kept_bytes, kept)
