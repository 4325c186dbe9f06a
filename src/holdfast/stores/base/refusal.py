"""Why a store did nothing: the refusals that several calls return."""

from enum import Enum


class Refusal(Enum):
    """The reason why a call changed nothing."""

    NO_SESSION = "no session"
    """The session is unknown, closed or another principal's. The three cannot be distinguished."""
    BUSY = "busy"
    """`claim`: the session has its limit of calls. `attach` with `since`: another reader has the place."""
    FULL = "full"
    """`open`, `open_task`: the store or the principal has its limit."""
    UNRESUMABLE = "unresumable"
    """`attach`: the session has no such stream or position, or has forgotten it."""
    UNBEGUN = "unbegun"
    """`attach`: the exchange is in flight, and its stream does not exist yet."""
    WITHDRAWN = "withdrawn"
    """`claim`, `attach`: the claim of the exchange was given back, and nothing of it has run or will run."""
