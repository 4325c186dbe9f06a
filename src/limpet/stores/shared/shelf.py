"""What a store has to do for sessions that several processes share: keep numbers, fields and events; compare; erase.

Index.

`sessions.py` makes the commands of a session from this and the rules. A backend understands neither fields nor rules.

Each method is one atomic step for one session. A method that changes something may be sent twice: a commit is
recognised by its number (`commit.fate`), the others find their work done. All methods raise StoreUnavailable if the
store cannot be reached, or refuses.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from limpet.core.lifecycle import SessionInput
from limpet.core.records import SessionRecord, WakeUp
from limpet.core.stream import Event
from limpet.errors import LimpetError, StoreUnavailable
from limpet.stores.shared.commit import Commit, Reply


class Stored(Struct, frozen=True):
    """A session as it is stored."""

    numbers: bytes
    fields: Mapping[str, bytes] | None
    """All fields, with `o:<writer>` for each writer: the number of its last commit, as decimal digits. None: the
    numbers are the known ones."""


class Piece(Struct, frozen=True):
    """A part of a log."""

    head: bytes
    """The field `l:<stream>`, or the one that a closing has left (`Erasure.left`)."""
    tag: int | None
    """The tag of the event with the number that was asked for, if it is still there."""
    events: Sequence[Event]
    """The following events. At least one if there is any, beyond it as many as the limits allow."""


class Erasure(Struct, frozen=True):
    """The end of a session."""

    exact: bytes
    """The numbers that the closer knows: the session ends only if they are the stored ones."""
    reason: SessionInput
    record: SessionRecord
    event: str
    """The name of this closing, which no other one has."""
    left: Mapping[str, bytes]
    """Streams that stay readable for LINGER_SECONDS: their heads. `read` finds them, `load` does not."""
    events: Mapping[str, Sequence[Event]]
    """Events that are added to the streams that stay."""
    size: int
    """The bytes of the streams that stay."""
    told: Sequence[tuple[WakeUp, str, str]]
    """Wake-ups to send, as `Commit.told`. CLOSED goes to the replicas of all writers, and to the home."""
    writers: Sequence[str]
    subscriptions: Sequence[str]


class NoRoom(StoreUnavailable):
    """The store keeps nothing new now, and has not applied the commit. One that only `frees` would be applied."""


class NotKept(LimpetError):
    """The principal of the session may not keep so much. Nothing of the commit is applied."""


class Shelf(Protocol):
    """The primitives for documents and logs."""

    async def stored(self, key: str, known: bytes = b"") -> Stored | None:
        """Return a session. If its numbers are the `known` ones, the fields need not be read. None if there is none."""

    async def create(self, record: SessionRecord, numbers: bytes, fields: Mapping[str, bytes]) -> bool:
        """Keep a new session, for which there is a place.

        False, and nothing changes, if there is one under this key.
        """

    async def commit(self, key: str, commit: Commit) -> Reply:
        """Apply a commit.

        The steps, in this order:

        1. No session: None.
        2. `commit.exact` are the stored numbers: apply, and the new numbers are `commit.after`.
        3. Else compare `commit.number` (`fate`): it may have been applied before (Done with the stored numbers), or
           writes are lost (LostWrites).
        4. Without `commit.compare`: Stale, with all fields.
        5. Else compare fields and numbers (`merged`): Stale if any differs. Else apply, with the merged numbers.

        Before it is applied: NotKept is raised if `commit.keeps` is more than the principal may still add.

        To apply is: store the numbers, the fields, the events, and `o:<writer>`, which becomes `commit.number`; send
        the wake-ups.
        """

    async def remove(self, key: str, erasure: Erasure) -> bool:
        """End a session: delete all fields, logs and state, keep the streams that are left, send the wake-ups.

        The closing is kept until `closing_reported`. False, and nothing has changed, if the session is not exactly the
        known one. If this
        very closing was done before: True.
        """

    async def tell(self, key: str, told: Sequence[tuple[WakeUp, str, str]]) -> None:
        """Send wake-ups without a commit, as `Commit.told`."""

    async def piece(self, key: str, stream: str, seq: int, max_events: int, max_bytes: int) -> Piece | None:
        """Return the tag of the event with the number `seq`, and the events after it.

        None if there is no such stream.
        """

    async def sizes(self, key: str, stream: str) -> Sequence[tuple[int, int, int]]:
        """Return number, tag and size of each event of a stream, oldest first."""
