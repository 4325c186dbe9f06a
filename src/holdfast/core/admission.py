"""A gate decides which calls and asks start now, which wait, and which are refused.

The gate has no task and no future. It decides, and returns the ticket that may start next;
the caller acts (law 13).
"""

from collections import OrderedDict
from collections.abc import Hashable
from enum import Enum
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)
_EMPTY: Final[OrderedDict[Any, None]] = OrderedDict()
"""The queue of every gate at which no ticket has waited yet: each session has two gates, and most have no queue."""


class Admission(Enum):
    """The decision of the gate about a ticket."""

    START = "start"
    WAIT = "wait"
    REFUSE = "refuse"


class Gate(Generic[T]):
    """At most `places` tickets are inside, and at most `queue` tickets wait, in the order of their arrival."""

    __slots__ = ("_inside", "_places", "_queue", "_waiting")

    def __init__(self, places: int, queue: int) -> None:
        self._places = places
        self._queue = queue
        self._inside = 0
        self._waiting: OrderedDict[T, None] = _EMPTY

    def __repr__(self) -> str:
        return f"<Gate {self._inside}/{self._places} inside, {len(self._waiting)}/{self._queue} waiting>"

    @property
    def inside(self) -> int:
        """The number of tickets inside."""
        return self._inside

    @property
    def waiting(self) -> int:
        """The number of tickets that wait."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """True if the next ticket has to wait, or is refused."""
        return self._inside >= self._places or bool(self._waiting)

    @property
    def refuses(self) -> bool:
        """True if the next ticket is refused."""
        return self._inside >= self._places and len(self._waiting) >= self._queue

    def enter(self, ticket: T) -> Admission:
        """Let the ticket in, queue it, or refuse it. Tickets that wait go first."""
        if self._inside < self._places and not self._waiting:
            self._inside += 1
            return Admission.START
        if len(self._waiting) < self._queue:
            if self._waiting is _EMPTY:
                self._waiting = OrderedDict()
            self._waiting[ticket] = None
            return Admission.WAIT
        return Admission.REFUSE

    def leave(self) -> T | None:
        """Free one place. If a ticket waits, it gets the place, and this method returns the ticket."""
        if self._waiting:
            return self._waiting.popitem(last=False)[0]
        self._inside -= 1
        return None

    def abandon(self, ticket: T) -> bool:
        """Remove a ticket from the queue. Return False if it is not in the queue: then it has a place and must leave."""
        if ticket in self._waiting:
            del self._waiting[ticket]
            return True
        return False
