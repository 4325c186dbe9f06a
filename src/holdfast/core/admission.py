"""Which calls and asks may start now, which wait, and which are refused: a gate.

The gate holds no task and no future. It decides, and hands back the ticket whose turn it is;
the caller acts (law 13).
"""

from collections import OrderedDict
from collections.abc import Hashable
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Admission(Enum):
    """What the gate decides for a ticket."""

    START = "start"
    WAIT = "wait"
    REFUSE = "refuse"


class Gate(Generic[T]):
    """At most `places` tickets inside, at most `queue` waiting in the order they came."""

    __slots__ = ("_inside", "_places", "_queue", "_waiting")

    def __init__(self, places: int, queue: int) -> None:
        self._places = places
        self._queue = queue
        self._inside = 0
        self._waiting: OrderedDict[T, None] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Gate {self._inside}/{self._places} inside, {len(self._waiting)}/{self._queue} waiting>"

    @property
    def inside(self) -> int:
        """How many tickets are inside."""
        return self._inside

    @property
    def waiting(self) -> int:
        """How many tickets wait."""
        return len(self._waiting)

    def enter(self, ticket: T) -> Admission:
        """Let the ticket in, queue it, or refuse it. Tickets that wait go first."""
        if self._inside < self._places and not self._waiting:
            self._inside += 1
            return Admission.START
        if len(self._waiting) < self._queue:
            self._waiting[ticket] = None
            return Admission.WAIT
        return Admission.REFUSE

    def is_waiting(self, ticket: T) -> bool:
        """True if the ticket is in the queue."""
        return ticket in self._waiting

    def leave(self) -> T | None:
        """Give a place back; return the ticket that now has it, if one waited."""
        if self._waiting:
            return self._waiting.popitem(last=False)[0]
        self._inside -= 1
        return None

    def abandon(self, ticket: T) -> bool:
        """Stop waiting. False if the ticket no longer waits: it has a place and must leave."""
        if ticket in self._waiting:
            del self._waiting[ticket]
            return True
        return False
