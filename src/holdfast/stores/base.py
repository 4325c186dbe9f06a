"""The contract between the engine and a store. Anyone may write a store; `holdfast.testing` has the test kit.

The laws every store keeps:

- One call is one atomic step. Two calls never see half of each other.
- Every mutating call may be sent twice (a lost reply is sent again) and counts once.
- The principal is part of every call made for a client. An unknown, a closed and somebody
  else's session are the same answer: NO_SESSION.
- Deadlines are the store's, by the store's clock: they outlive the process that set them.
- A bell carries no data. It says where to look; a lost one costs time, never a message.
- Nothing grows without bound: the limits are given when the store is made.

Keys are hashes and tokens minted by the server, never a client's text. Values are bytes.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct

from holdfast.core.lifecycle import Input
from holdfast.core.stream import Page, Position
from holdfast.wire.jsonrpc import RequestId, encode

STANDALONE_FENCE: Final = -1
"""The fence of the standalone stream: every replica may write it, and no exchange has this fence."""
REMEMBERED_ANSWERS: Final = 256
"""Answers of one stream, and of a session's exchanges that have ended, that are told from others when they come again."""
REMEMBERED_SECONDS: Final = 300.0
"""How long an answer is remembered after the end of its exchange."""
LINGER_SECONDS: Final = 10.0
"""How long a stream of a closed session stays readable for the reader that it had."""
LINGER_SHARE: Final = 8
"""Such streams have at most this part of `Limits.store_bytes`, beside it; beyond: the oldest go."""


class SessionRecord(Struct, kw_only=True):
    """What is known of a session. Everything here can be written as JSON."""

    key: str
    """Hash of the session id; the id itself is never stored."""
    principal: str
    version: str
    standalone: str
    """The stream of what belongs to no request."""
    client: dict[str, Any]
    capabilities: dict[str, Any]
    grace: float
    idle: float
    lifetime: float
    level: str = ""
    """The log level the client asked for; empty: it asked for none."""
    initialized: bool = False
    isolate: bool = False
    """Requests with an id already in flight run beside the first instead of being refused."""


class Found(Struct, frozen=True):
    """A session whose client is here."""

    record: SessionRecord
    returned: bool
    """The session was detached, and this brought it back."""


class Refusal(Enum):
    """Why a store did nothing."""

    NO_SESSION = "no session"
    BUSY = "busy"
    FULL = "full"
    UNRESUMABLE = "unresumable"
    UNBEGUN = "unbegun"
    """The exchange is in flight, and its stream does not exist yet."""


class Claim(Struct, frozen=True):
    """One request about to be answered."""

    id: RequestId
    stream: str
    """The exchange's key and the name of its stream, minted by the server."""
    digest: bytes
    """Of the request's bytes: tells a repeated POST from a reused id."""
    control: bool = False
    """Control traffic: not counted against the limit of calls."""
    payload: bytes = b""
    """What another replica would need to run it again; empty: it must not. Kept while it is in flight, if the
    session has room for it (`Limits.rerun_bytes`)."""


class Claimed(Struct, frozen=True):
    """The exchange is registered: it may start, once."""

    record: SessionRecord
    fence: int
    returned: bool
    """The session was detached, and this request brought it back."""


class Duplicate(Struct, frozen=True):
    """The id is in flight, or its result is kept for exactly this request."""

    stream: str
    same: bool
    """The bytes are the same: it may be a repeat of a POST that was cut."""
    finished: bool
    """The handler has ended and its result was kept because our write failed."""
    has_reader: bool
    version: str


class Probed(Struct, frozen=True):
    """What is known of an exchange and of its reader."""

    running: bool
    kept: bool
    """It has ended, and its result is kept for a repeat."""
    reader: str
    """The replica that has the stream's reader; empty: it has none."""
    word: int
    """Another number after each `vouch`; odd if that said that the reader is there."""


class Attached(Struct, frozen=True):
    """The caller is the stream's reader."""

    record: SessionRecord
    generation: int
    cursor: Position
    returned: bool
    """The session was detached, and this call attached it again."""
    finished: bool
    """The stream is complete and its last event is at `cursor`: a read returns no event, now or later."""


class Closed(Struct, frozen=True):
    """The one closing transition of a session."""

    record: SessionRecord
    reason: Input
    event: str = ""
    """Names this closing to listeners, who may hear of it more than once."""


class Ending(Struct, frozen=True):
    """The terminal message of each exchange that a closing finds in flight: what comes before and after its id."""

    before: bytes
    after: bytes
    tag: int
    """Of the terminal message in each stream."""

    def message(self, request_id: RequestId) -> bytes:
        """Return the terminal message of the exchange with this id."""
        return self.before + encode(request_id) + self.after


class Orphan(Struct, frozen=True):
    """An exchange in flight whose owner was declared dead."""

    session: str
    stream: str
    id: RequestId
    owner: str
    """The dead replica's incarnation."""
    runs: int = 0
    """How often it has begun, where its payload is kept; 0: it cannot be adopted."""


class Adopted(Struct, frozen=True):
    """An orphan is this replica's: it may start, once more."""

    record: SessionRecord
    claim: Claim
    fence: int
    position: Position
    """The end of its stream, which exists from now on."""


class Lease(Struct, frozen=True):
    """A replica's right to be taken for alive."""

    replica: str
    incarnation: int
    """Another number means that this replica was declared dead meanwhile: what it owned before is reaped."""
    seconds: float


class Forwarded(NamedTuple):
    """A request that another replica has put to this one."""

    name: str
    payload: bytes


class Announced(NamedTuple):
    """What all replicas were told, and the cursor after it."""

    cursor: str
    events: list[bytes]


class Answered(Enum):
    """What became of a client's answer."""

    FIRST = "first"
    AGAIN = "again"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


class Cell(NamedTuple):
    """One field of state. Version 0 means absent."""

    value: bytes
    version: int


class OrphanTask(NamedTuple):
    """A task that works or waits for input, and whose owner was declared dead."""

    key: str
    principal: str
    owner: str
    """The dead replica's incarnation."""
    cell: Cell
    """What is kept of it; the version decides whether it may still be ended."""


TASK_END_BYTES: Final = 1_024
"""The end of a task always has room if it is not longer than this: an error without details."""


class WakeUp(Enum):
    """What a bell is about."""

    STREAM = "stream"
    ANSWER = "answer"
    CANCEL = "cancel"
    CLOSED = "closed"
    TASK = "task"
    TURN = "turn"
    """The call may start, where calls run in order; look."""
    TAKEN = "taken"
    """Another replica has the stream's reader now: whoever reads it here no longer does."""
    PROBE = "probe"
    """Another replica wants to know whether the stream's reader, which this one has, is still there: `vouch`."""
    FORWARD = "forward"
    """The inbox may have something (session and name are empty). May ring for nothing."""
    NEWS = "news"
    """Something may have been announced (session and name are empty). May ring for nothing."""


OnWake = Callable[[WakeUp, str, str], None]
"""Called with what, the session's (or task's) key, and the stream or ask it concerns. Must not wait or raise."""


class Store(Protocol):
    """Sessions, exchanges, streams, asks and state. See the module's laws."""

    def bind(self, on_wake: OnWake) -> None:
        """Tell the store whom to ring in this process; a store that was closed is open again.

        The first call of a process that serves: a store that was made before a fork takes a replica
        name of its own here, unless it was given one.
        """
        ...

    async def aclose(self) -> None:
        """Let go of everything held: threads, connections, and what only this process knows."""
        ...

    async def prove(self) -> None:
        """Write something of no meaning, as new work would be written.

        Raises:
            StoreUnavailable: new work cannot be written now.
        """
        ...

    # Sessions

    async def open(self, record: SessionRecord, *, evict: bool) -> list[Closed] | Refusal:
        """Keep a new session; return the sessions evicted for it, or FULL."""
        ...

    async def find(self, key: str, principal: str) -> Found | None:
        """Return the session if it lives and is this principal's: its client is here, so its clocks start again."""
        ...

    async def holder(self, key: str) -> str | None:
        """Return whose living session this is; None: no session lives under the key. Starts no clock.

        For the log of refusals only: whatever it returns must reach no client.
        """
        ...

    async def change(self, key: str, *, level: str | None = None, initialized: bool | None = None) -> None:
        """Set the named fields of a session's record."""
        ...

    async def close(self, key: str, reason: Input, ending: Ending | None = None) -> Closed | None:
        """Close a session with everything of it; None if it is closed already.

        In the same step every exchange in flight ends with `ending`: from now on each call for the
        session answers that there is none, and its owners are rung CLOSED. A stream that has a reader
        now can still be `read` to its end for LINGER_SECONDS, at any replica; nothing else is left. All such
        streams together have at most one part in LINGER_SHARE of `Limits.store_bytes`; the oldest go first.
        """
        ...

    async def sweep(self) -> list[Closed]:
        """Close what is due by the store's clock. Each session is returned to one caller only."""
        ...

    async def sessions(self, principal: str | None = None) -> list[str]:
        """Return the keys of all living sessions; with a principal, only of its own."""
        ...

    async def subscribe(self, key: str, uri: str) -> bool:
        """Remember that the session wants updates of a resource. False: at its limit."""
        ...

    async def unsubscribe(self, key: str, uri: str) -> None:
        """Forget it."""
        ...

    async def subscribers(self, uri: str) -> list[str]:
        """Return the keys of the sessions that want updates of a resource."""
        ...

    # Exchanges

    async def claim(self, key: str, principal: str, claim: Claim) -> Claimed | Duplicate | Refusal:
        """Check session, principal, id and quota and register the exchange, in one step (law 2).

        Raises:
            StoreUnavailable: also where this incarnation was declared dead; so do attach and adopt. What it began
                now, no other replica would look for.
        """
        ...

    async def settle(
        self, key: str, stream: str, fence: int, terminal: bytes | None, *, tag: int = 0, keep: bool = False
    ) -> None:
        """End an exchange: append the terminal message if there is one, close its stream, free its id.

        Without a terminal message there was never a stream: nothing stays of the exchange, and to end
        one of which nothing is left does nothing, for it is this end sent again. `keep` leaves the
        result for one repeat of the same request, because nobody could be written to.

        Raises:
            Fenced, StreamClosed: somebody else has ended it, and what they wrote stands.
            SessionGone: the session is closed.
        """
        ...

    async def keep(self, key: str, stream: str, claim: Claim, terminal: bytes | None, *, tag: int) -> None:
        """After a failed write: keep the answer of a settled exchange for a repeat of its request.

        None: the answer is in the exchange's stream. Nothing is kept if the id is in use again, if a reader has had
        the whole stream, or if the stream is gone: the client has the answer, and may use the id for another request.
        """
        ...

    async def cancel(self, key: str, principal: str, request_id: RequestId) -> None:
        """Ring CANCEL for the exchange in flight under this id; nothing if there is none or more than one."""
        ...

    # Turns: the calls of a session one after another, where `in_order` is set

    async def turn(self, key: str, stream: str, fence: int) -> bool:
        """Tell whether a call may start: no other one of its session with a smaller fence is in flight or holds its turn.

        Control traffic has no turn and waits for none.

        Raises:
            Fenced, StreamClosed: others have ended the call.
            SessionGone: the session is closed.
        """
        ...

    async def hold_turn(self, key: str, stream: str, fence: int) -> None:
        """Keep the turn of a call beyond its end, until it is passed on or this replica was declared dead.

        Raises:
            Fenced, StreamClosed, SessionGone: as `turn`.
        """
        ...

    async def pass_turn(self, key: str, stream: str, fence: int) -> None:
        """Give up a turn that was held, if it was, and ring TURN for the call that may now start, where that one runs."""
        ...

    # Streams

    async def open_stream(self, key: str, stream: str, fence: int, tag: int) -> Position:
        """Start an exchange's stream, so that it can be written and resumed. Returns its first position."""
        ...

    async def append(self, key: str, stream: str, fence: int, tag: int, data: bytes) -> Position:
        """Add an event and ring STREAM. Fence −1 writes the standalone stream.

        Raises:
            Fenced, StreamClosed: as their names say; nothing was written.
            SessionGone: the session is closed.
        """
        ...

    async def read(
        self, key: str, stream: str, cursor: Position, max_events: int, max_bytes: int
    ) -> Page | None:
        """Return what follows the cursor; None if the stream is gone with its session."""
        ...

    async def attach(
        self,
        key: str,
        principal: str,
        stream: str | None,
        cursor: Position | None,
        *,
        since: int | None = None,
    ) -> Attached | Refusal:
        """Make the caller the stream's reader; None is the standalone stream, no cursor goes on where readers were.

        `since` is the generation of a reader that was superseded and is still there: it takes the place
        only if nobody has it, and goes on where the last reader was, if that is further. Still its own, the
        place is left as it is.

        UNBEGUN: the exchange is in flight and has no stream so far. UNRESUMABLE: there is no such stream or position in
        this session, or no longer. BUSY: another reader has the place.
        """
        ...

    async def detach(
        self, key: str, stream: str, generation: int, cursor: Position | None, *, broke: bool
    ) -> bool:
        """Give the place back; a generation that is no longer the stream's changes nothing.

        Returns True if this break left the session detached: its grace has begun.
        """
        ...

    async def probe(self, key: str, stream: str) -> Probed | None:
        """Return who reads an exchange's stream, and ring PROBE there if it is another replica. None: no such exchange."""
        ...

    async def vouch(self, key: str, stream: str, *, alive: bool) -> None:
        """Answer a probe: the stream's reader is there, or has been silent for so long that another may take its place."""
        ...

    # Asks

    async def ask(self, key: str, ask: str, stream: str) -> bool:
        """Register a request to the client. False: the session has its limit outstanding."""
        ...

    async def answer(
        self, key: str, principal: str, ask: str, digest: bytes, payload: bytes
    ) -> Answered | Refusal:
        """Keep the first answer to an ask, free its place, ring ANSWER. Equal again is AGAIN, another CONFLICT.

        The same after the ask's exchange has ended: the digests of a session's last REMEMBERED_ANSWERS
        answers stay for REMEMBERED_SECONDS, for a client that did not receive our 202 and sends its answer again.
        """
        ...

    async def take_answer(self, key: str, ask: str) -> bytes | None:
        """Return the answer of an ask, if it has one."""
        ...

    async def withdraw(self, key: str, ask: str) -> None:
        """Forget an ask that is no longer waited for; a late answer is UNKNOWN."""
        ...

    # State: of a session, or of a scope that belongs to a principal

    async def open_scope(self, scope: str, principal: str, ttl: float) -> bool:
        """Begin state under a name of its own, forgotten once unused for `ttl` seconds. False: no room, or another's.

        Begun again, by whichever replica, it is the same one and its time starts again. A name made by
        `holdfast.stores.scopes.own_scope` is a principal's own state, which is bounded apart from handles.
        """
        ...

    async def find_scope(self, scope: str, principal: str) -> bool:
        """Tell whether this principal has such state; its time starts again. Unknown, expired, foreign: False."""
        ...

    async def get_state(self, scope: str, field: str) -> Cell | None:
        """Return a field."""
        ...

    async def set_state(
        self, scope: str, field: str, value: bytes | None, *, op: str, version: int | None = None
    ) -> int:
        """Set or (None) delete a field and return its new version; with `version` only if it still has that one.

        Returns −1 if the version differs. `op` names the operation: sent again it returns the first result.

        Raises:
            StateError: over the limit of state.
            SessionGone: the session is closed, or the scope forgotten.
        """
        ...

    async def add_state(self, scope: str, field: str, by: int, *, op: str) -> int:
        """Add to a counter (absent counts as 0) and return its new value.

        Raises:
            StateError: the field is no integer.
        """
        ...

    # Tasks

    async def open_task(self, key: str, principal: str, value: bytes, *, ttl: float) -> Refusal | None:
        """Keep a new task for so many seconds, durably before this returns; FULL: at the limit of tasks.

        This replica's incarnation owns it until it ends.

        Raises:
            StoreUnavailable: also where this incarnation was declared dead.
        """
        ...

    async def get_task(self, key: str, principal: str) -> Cell | None:
        """Return a task. Unknown, expired and somebody else's are the same: None."""
        ...

    async def set_task(
        self, key: str, principal: str, value: bytes, *, version: int, ttl: float, ends: bool = False
    ) -> int:
        """Change a task that still has this version, ring TASK, and return its new version, which is one more.

        It is kept at least `ttl` seconds from now. Returns −1 if the version differs or there is no
        such task; the same change sent again returns the same. `ends` says that this is the task's
        end: it has no owner any more, and a value of at most `TASK_END_BYTES` always has room.

        Raises:
            StateError: over the limit of bytes; nothing was changed.
        """
        ...

    async def orphan_tasks(self) -> list[OrphanTask]:
        """Return tasks that have not ended and whose owner is dead, for any replica to end.

        An owner is dead once `orphans` has declared it dead, or it gave its lease back. May return
        only some; call it again. Of all who end one with `set_task` and its version, one does.
        """
        ...

    # Replicas: processes that serve the same sessions from the same store

    is_shared: bool
    """Other processes may serve the same sessions, and sessions outlive this one."""
    replica: str
    """This process's name among them."""

    def twin(self) -> "Store":
        """Return another handle on the store for the same replica and incarnation, for the loop of another thread.

        Only `renew` and `aclose` are used of it: the lease must not end because this loop is busy.
        """
        ...

    async def renew(self, seconds: float) -> Lease:
        """Take this replica's lease for so long from now by the store's clock, or make it longer.

        Everything claimed, attached or asked afterwards belongs to this incarnation. A lease that has
        ended goes on as the same incarnation, with all its work, if no replica has declared it dead
        (see `orphans`). One that was declared dead comes back under a new incarnation: work of the
        old one is Fenced once it is reaped. A replica that shares its store must renew before its
        first claim, and at least three times in each lease.
        """
        ...

    async def release(self) -> None:
        """Give the lease back, having stopped: what is still owned is an orphan from now on."""
        ...

    async def replicas(self) -> list[str]:
        """Return the names of those whose lease runs."""
        ...

    async def orphans(self) -> list[Orphan]:
        """Declare replicas dead whose lease has ended, and return the exchanges they ran, to be reaped.

        Only a replica that has itself seen the store for one whole lease may declare others dead: the
        store was there for them too, so that every living replica could renew. It has seen the store for so
        long if it has renewed for one lease and never more than half a lease apart, by the store's
        clock. To declare an owner dead and to renew its lease exclude each other: one is first, and
        decides. A replica that gave its lease back is dead at once, for all.

        The readers that were with the dead are gone: sessions they left alone are detached by this
        call, and their grace begins. It also finds exchanges that a failover of the store has brought
        back although they had ended here. May return only some; call it again.
        """
        ...

    async def reap(self, orphan: Orphan, terminal: bytes, *, tag: int) -> bool:
        """End an orphan in its owner's place: terminal message last, stream closed, id free, result kept for a repeat.

        True for exactly one of all who try, and only while the exchange is still that owner's and in
        flight. An owner that wakes up afterwards is Fenced.
        """
        ...

    async def adopt(self, orphan: Orphan, *, tag: int) -> Adopted | None:
        """Take an orphan over with its payload, to run it again: a new fence, one run more, its asks forgotten.

        What is in its stream stays and goes on; one that had none begins, with this tag. None for all but
        one of those who try, and unless the exchange is still that owner's, in flight, and kept. An
        owner that wakes up afterwards is Fenced. If this replica dies too, it is an orphan again.
        """
        ...

    async def forward(self, replica: str, name: str, payload: bytes, *, seconds: float) -> bool:
        """Put a request into a replica's inbox and ring FORWARD there; `name` names it, sent again it is there once.

        False: that replica's lease has ended, or its inbox is full. It is dropped if nobody takes it
        for so many seconds. The reply comes through the store, as the stream that the request names.
        """
        ...

    async def inbox(self) -> list[Forwarded]:
        """Return what was put to this replica and not taken. The same one is returned until it is taken."""
        ...

    async def remove_forwarded(self, name: str) -> None:
        """Take a request out of the inbox, once it is claimed or refused."""
        ...

    async def announce(self, name: str, event: bytes) -> None:
        """Tell every replica, this one included, and ring NEWS there; `name` names it, sent again it is one event."""
        ...

    async def announced(self, after: str) -> Announced:
        """Return what was announced after a cursor, oldest first, with the cursor to go on from.

        An empty cursor returns no event, only the place to begin. Events are kept for a bounded time
        and number: they say that something has changed, and who missed one looks at what it knows.
        """
        ...

    async def secret(self, name: str, candidate: bytes, *, seconds: float) -> bytes:
        """Return the secret of this name: the first candidate that any replica offered, the same for all.

        It is kept for `seconds` after it was last asked for, and forgotten by a later sweep.
        """
        ...

    async def closing_reported(self, closed: Closed) -> None:
        """Take note that the listeners of a closing were told."""
        ...

    async def unreported_closings(self) -> list[Closed]:
        """Return closings that were handed to somebody who has not reported them told for a while: tell them again.

        With this, listeners hear of every end at least once, if any replica lives; `event` tells a repeat.
        """
        ...
