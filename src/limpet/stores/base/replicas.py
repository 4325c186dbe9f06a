"""Replicas: several processes that serve the same sessions from the same store.

Each process is a replica with a name. It holds a lease, and every lease has an incarnation: a number that is new each
time the replica comes back after it was declared dead. The exchanges, readers, asks and tasks of a replica belong to
its incarnation. When a lease has ended, another replica declares that incarnation dead (`orphans`), and its exchanges
are ended under a new fence (`reap`). Replicas also forward requests to each other, share secrets, announce changes to
all, and report each closing to listeners at least once.

A store for one process inherits `OneProcess` and implements none of this.
"""

from collections.abc import Collection
from typing import Final, NamedTuple, Protocol

from limpet.core.records import Closed, Orphan
from limpet.errors import StoreUnavailable

INBOX: Final = 10_000
INBOX_BYTES: Final = 16 * 1024 * 1024
"""Forwarded requests that may wait for one replica, and their bytes: it reads all of them at once. The first one may
be longer."""
UNREPORTED_SECONDS: Final = 30.0
"""A closing that was returned and not reported for this long is returned again."""


def is_inbox_full(waiting: Collection[bytes], payload: bytes) -> bool:
    """Return True if a request has no room beside those that wait."""
    return len(waiting) >= INBOX or (bool(waiting) and sum(map(len, waiting)) + len(payload) > INBOX_BYTES)


def lease_ended() -> StoreUnavailable:
    """Return the error of a replica without a lease.

    After it was declared dead it may begin no work: no other replica would find the work.
    """
    return StoreUnavailable("the lease of this replica has ended, and it has not got another yet")


class Forwarded(NamedTuple):
    """A request that another replica has forwarded to this one."""

    name: str
    payload: bytes


class Announced(NamedTuple):
    """Announcements to all replicas, and the cursor after them."""

    cursor: str
    events: list[bytes]
    missed: bool = False
    """Events between the cursor of the caller and these may be gone."""


class LeaseHandle(Protocol):
    """The calls that the thread needs which renews the lease."""

    async def renew(self, seconds: float) -> int:
        """As `ReplicaPart.renew`."""

    async def aclose(self) -> None:
        """Release the handle."""


class ReplicaPart(Protocol):
    """The calls for replicas."""

    is_shared: bool
    """Other processes may serve the same sessions, and sessions outlive this process."""
    replica: str
    """The name of this process among the replicas."""

    def twin(self) -> LeaseHandle:
        """Return another handle on the store for the same replica and incarnation, for the loop of another thread.

        So the lease does not end because this loop is busy.
        """

    # Leases

    async def renew(self, seconds: float) -> int:
        """Take this replica's lease for so many seconds from now by the store's clock, or make it longer.

        Return the incarnation. If the number has changed, this replica was declared dead meanwhile, and its work is
        reaped. Later claims, readers and asks belong to this incarnation. A lease that has ended continues as
        the same incarnation, with all its work, if no replica has declared it dead (see `orphans`). A replica that was
        declared dead comes back as a new incarnation: writes for the work of the old one raise Fenced once that is
        reaped. A replica that shares its store must renew before its first claim, and at least three times in each
        lease.
        """

    async def release(self) -> None:
        """Give the lease back, after everything has stopped.

        Work that this incarnation still owns is orphaned at once.
        """

    async def replicas(self) -> dict[str, float]:
        """Return the replicas whose lease runs, each with the seconds until its lease ends."""

    # The work of dead replicas

    async def orphans(self) -> list[Orphan]:
        """Declare replicas dead whose lease has ended, and return the exchanges they ran, to be reaped.

        Only a replica that has itself reached the store for one whole lease may declare others dead: in that time
        every living replica could renew too. The condition: it has renewed for one lease, and never more than half a
        lease apart, by the store's clock, which was not set back by more than that. To declare an owner dead and to
        renew its lease exclude each other: the first of the two decides. A replica that gave its lease back is dead
        at once, for all.

        The readers of a dead replica are gone: this call detaches the sessions that have no other reader, and their
        grace begins. It also finds exchanges that a failover of the store has brought back although they had ended
        here. May return only some; call it again.
        """

    async def reap(self, orphan: Orphan, terminal: bytes, *, tag: int) -> bool:
        """End an orphan in place of its owner: terminal message last, stream complete, answer kept for a repeat.

        True for exactly one of all callers, and only while the exchange is still that owner's and in flight. Later
        writes of the owner raise Fenced.
        """

    # Between replicas

    async def forward(self, replica: str, name: str, payload: bytes, *, seconds: float) -> bool:
        """Put a request into a replica's inbox and send FORWARD there. `name` identifies it: a repeat changes nothing.

        False if that replica's lease has ended, or its inbox is full. It is dropped if it is not taken within so many
        seconds. A reply is put into the sender's inbox in the same way.
        """

    async def inbox(self) -> list[Forwarded]:
        """Return the requests forwarded to this replica. Each is returned until it is removed."""

    async def remove_forwarded(self, name: str, *, replica: str = "") -> bool:
        """Remove a request from the inbox, once it is claimed or refused. True if it was there.

        With a `replica`, the sender takes the request back from the inbox of that replica.
        """

    async def announce(self, name: str, event: bytes) -> None:
        """Send an event to every replica, this one included, and NEWS.

        `name` identifies it: a repeat is the same event.
        """

    async def announced(self, after: str) -> Announced:
        """Return the announcements after a cursor, oldest first, and the cursor to continue from.

        An empty cursor returns no event, only the cursor to begin with. Events are kept for a bounded time and
        number: they say that something has changed, and a replica that has `missed` some must assume that everything
        has.
        """

    async def secret(self, name: str, candidate: bytes, *, seconds: float) -> bytes:
        """Return the secret of this name: the first candidate that any replica offered, the same for all.

        It is kept for `seconds` after its last use, and forgotten by a later sweep.
        """

    async def post_notice(self, notice: bytes, *, seconds: float) -> list[bytes]:
        """Put a notice where the other replicas read it, in place of this replica's last one; return theirs.

        A notice is kept for so many seconds. An empty one writes nothing. Replicas call this once a second to compare
        their counts, in one round trip.
        """

    # Closings

    async def closing_reported(self, closed: Closed) -> None:
        """Note that the listeners were called for a closing."""

    async def unreported_closings(self) -> list[Closed]:
        """Return closings that were returned to a caller which has not reported them for a while.

        So listeners are called for every closing at least once, if any replica lives; `event` identifies a repeat.
        """
