"""A gate decides which calls and asks start now, which wait, and which are refused.

A gate has no task and no future. It decides, and returns the ticket that may start next;
the caller acts (law 13).

`Gate` has one owner: the calls of a session, for example. `SharedGate` has places that several owners want: the threads
of a process, the calls without a session, the slots of a server behind. An owner is a principal, or the address of an
anonymous client. Two rules prevent that one of them takes everything:

- **In turn.** A free place goes to the owner whose turn it is, not to the ticket that has waited for the longest time.
- **Something stays free.** An owner that has `SHARE` times as many places as are free gets no more. So one owner alone
  gets seven eighths, two get seven fifteenths each, and one that comes now finds a place. Less than eight places are
  given out all: then no eighth exists. The places of the queue have the same rule.
"""

from collections import OrderedDict
from collections.abc import Hashable
from enum import Enum
from typing import Any, Final, Generic, TypeVar

SHARE: Final = 7
"""How many times as many places as are free one owner of a shared gate may have."""

T = TypeVar("T", bound=Hashable)
_EMPTY: Final[OrderedDict[Any, None]] = OrderedDict()
"""The queue of every gate at which no ticket has waited yet: each session has two gates, and most have no queue."""


class Admission(Enum):
    """The decision of the gate about a ticket."""

    START = "start"
    WAIT = "wait"
    REFUSE = "refuse"


_START: Final = Admission.START
"""Python 3.11 looks up a member of an enumeration slowly, and each plain call enters a gate."""


class Gate(Generic[T]):
    """At most `places` tickets are inside, and at most `queue` tickets wait, in the order of their arrival."""

    __slots__ = ("_inside", "_places", "_queue", "_waiting")

    def __init__(self, places: int, queue: int) -> None:
        self._places = places
        self._queue = queue
        self._inside = 0
        self._waiting: OrderedDict[T, None] = _EMPTY

    @property
    def inside(self) -> int:
        """The number of tickets inside."""
        return self._inside

    @property
    def waiting(self) -> int:
        """The number of tickets that wait."""
        return len(self._waiting)

    def refuses(self) -> bool:
        """Return True if the next ticket is refused. No property: Python 3.11 calls it slowly."""
        return self._inside >= self._places and len(self._waiting) >= self._queue

    def enter(self, ticket: T) -> Admission:
        """Let the ticket in, queue it, or refuse it. Tickets that wait go first."""
        if self._inside < self._places and not self._waiting:
            self._inside += 1
            return _START
        if len(self._waiting) < self._queue:
            if self._waiting is _EMPTY:
                self._waiting = OrderedDict()
            self._waiting[ticket] = None
            return Admission.WAIT
        return Admission.REFUSE

    def stay(self) -> None:
        """Take one more place for a ticket that is inside: its place stays in use after it has left once."""
        self._inside += 1

    def leave(self) -> T | None:
        """Free one place. If a ticket waits, it gets the place, and this method returns the ticket."""
        if self._waiting:
            return self._waiting.popitem(last=False)[0]
        self._inside -= 1
        return None

    def abandon(self, ticket: T) -> bool:
        """Remove a ticket from the queue.

        Return False if it is not in the queue: then it has a place and must leave.
        """
        if ticket in self._waiting:
            del self._waiting[ticket]
            return True
        return False


class SharedGate(Generic[T]):
    """`places` and a queue that owners share. The head of this module has the rules."""

    __slots__ = ("_held", "_inside", "_places", "_queue", "_waiting", "waiting")

    def __init__(self, places: int, queue: int) -> None:
        self._places = places
        self._queue = queue
        self._inside = 0
        self._held: dict[str, int] = {}
        """Places by owner."""
        self._waiting: dict[str, dict[T, None]] = {}
        """Tickets by owner. The owner whose turn is next is the first."""
        self.waiting: int = 0
        """The number of tickets that wait."""

    def enter(self, owner: str, ticket: T) -> Admission:
        """Let the ticket of an owner in, queue it, or refuse it. Tickets of the same owner that wait go first."""
        held = self._held.get(owner, 0)
        if held < SHARE * (self._places - self._inside) and owner not in self._waiting:
            self._held[owner] = held + 1
            self._inside += 1
            return Admission.START
        queue = self._waiting.get(owner, {})
        if len(queue) < SHARE * (self._queue - self.waiting):
            self._waiting.setdefault(owner, queue)[ticket] = None
            self.waiting += 1
            return Admission.WAIT
        return Admission.REFUSE

    def leave(self, owner: str) -> T | None:
        """Free one place of an owner. If a ticket gets it, return the ticket."""
        held = self._held.pop(owner) - 1
        if held:
            self._held[owner] = held
        self._inside -= 1
        most = SHARE * (self._places - self._inside)
        for other, queue in self._waiting.items():
            if self._held.get(other, 0) < most:
                self._held[other] = self._held.get(other, 0) + 1
                self._inside += 1
                ticket = next(iter(queue))
                self._take(other, ticket)
                return ticket
        return None

    def _take(self, owner: str, ticket: T) -> None:
        """Take a ticket out of the queue. The next turn of its owner comes after those of all others."""
        queue = self._waiting.pop(owner)
        del queue[ticket]
        self.waiting -= 1
        if queue:
            self._waiting[owner] = queue

    def abandon(self, owner: str, ticket: T) -> bool:
        """Remove a ticket from the queue.

        Return False if it is not in the queue: then it has a place and must leave.
        """
        if ticket not in self._waiting.get(owner, ()):
            return False
        self._take(owner, ticket)
        return True
