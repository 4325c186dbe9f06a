"""Decisions that stores share: facts come in, a decision goes out. No I/O and no clock.

The memory store applies them to its objects and the SQLite store to its rows, so that the two cannot drift apart. A
store of your own may use them too: they are the rules of `holdfast.stores.base` as code. (The Redis store decides in
Lua, next to its data; the contract's tests and `tests/properties` hold the three together.)
"""

from collections.abc import Callable
from math import inf
from typing import Final

import msgspec

from holdfast.config import Limits
from holdfast.core.lifecycle import SessionInput, SessionState, step
from holdfast.errors import StateError, StoreUnavailable
from holdfast.stores.base import (
    TASK_END_BYTES,
    WITHDRAWN_STREAMS,
    Answered,
    Cell,
    Claim,
    Duplicate,
    SessionRecord,
    Status,
)
from holdfast.stores.kept import growth
from holdfast.wire.jsonrpc import RequestId

RECHECK_SECONDS: Final = 1.0
"""A session that is due and still has work is examined again after this time."""


class SessionClock:
    """When a session ends, and how the signs of its client change this. Inherit it, with these attributes."""

    # The subclass has the slots. Written as a call, so that mypy accepts the assignments below.
    __slots__ = tuple[str, ...]()

    record: SessionRecord
    state: SessionState
    opened: float
    touched: float
    """The last sign of the client."""
    settled: float
    """When the last exchange ended; 0 if none has."""
    broke: float
    """When the last reader broke; 0 if none has."""
    readers: int
    running: int
    """Exchanges in flight."""

    def due(self) -> tuple[float, SessionInput]:
        """Return when the session ends if nothing happens before, and why."""
        if self.state is SessionState.DETACHED:
            ends = max(self.broke, self.settled) + self.record.grace, SessionInput.GRACE_OVER
        elif self.readers:
            ends = inf, SessionInput.IDLE
        else:
            ends = self.touched + self.record.idle, SessionInput.IDLE
        expires = self.opened + self.record.lifetime
        return ends if ends[0] <= expires else (expires, SessionInput.EXPIRED)

    def ends_now(self, now: float) -> SessionInput | None:
        """Return why the session ends now; None if it does not. Work counts as life (law 8)."""
        at, reason = self.due()
        return reason if at <= now and not self.running else None

    def next_look(self, now: float) -> float:
        """Return when to examine a session again that does not end now."""
        at, _ = self.due()
        return at if at > now else now + RECHECK_SECONDS

    def status(self, now: float, *, log_bytes: int, kept_bytes: int) -> Status:
        """Return the view of an operator on the session."""
        ends, _ = self.due()
        closes_in = None if self.running else max(0.0, ends - now)
        return Status(self.record, self.state, closes_in, self.readers, self.running, log_bytes, kept_bytes)

    def client_seen(self, now: float) -> bool:
        """Record a sign of the client. Returns True if the session was detached, and is attached again."""
        self.touched = now
        if self.state is not SessionState.DETACHED:
            return False
        self.state = step(self.state, SessionInput.RETURNED)
        return True

    def reader_lost(self, now: float, *, broke: bool) -> bool:
        """Record that a stream has lost its reader. Returns True if this break made the session detached."""
        self.readers -= 1
        self.touched = now
        if not broke or self.readers:
            return False
        self.broke = now
        before = self.state
        self.state = step(before, SessionInput.BROKE)
        return self.state is not before


def is_crowded(limits: Limits, sessions: int, own: int) -> bool:
    """Return True if a new session needs the place of another one. `own`: sessions of its principal; 0 if it may not evict."""
    return sessions >= limits.sessions or own >= limits.sessions_per_principal


def duplicate(
    claim: Claim, stream: str, digest: bytes | None, *, running: bool, has_reader: bool
) -> Duplicate | None:
    """Compare a claim with the exchange `stream` that holds its id. None: the id is free for this request.

    Then the holder has ended, and its answer is kept for a request with another digest.
    """
    same = digest == claim.digest
    return Duplicate(stream, same, not running, has_reader) if running or same else None


def claimed_already(stream: str, *, running: bool, has_reader: bool) -> Duplicate:
    """Answer the claim of a stream that another replica has claimed, or that has ended."""
    return Duplicate(stream, same=True, finished=not running, has_reader=has_reader)


def answered(first: bytes, digest: bytes) -> Answered:
    """Compare an answer with the first one, by their digests."""
    return Answered.AGAIN if first == digest else Answered.CONFLICT


def id_text(request_id: RequestId) -> str:
    """Return an id as text in which 1 and "1" differ."""
    return f"i{request_id}" if isinstance(request_id, int) else f"s{request_id}"


def id_from(text: str) -> RequestId:
    """Return the id that `id_text` wrote."""
    return int(text[1:]) if text[0] == "i" else text[1:]


def lease_ended() -> StoreUnavailable:
    """Return the error of a replica without a lease.

    After it was declared dead it may begin no work: no other replica would find the work.
    """
    return StoreUnavailable("the lease of this replica has ended, and it has not got another yet")


# Bytes of streams


def over_budget(limits: Limits, session: int, store: int) -> int:
    """Return by how many bytes a session or the whole store is over its budget; not above 0 if neither is."""
    return max(session - limits.session_bytes, store - limits.store_bytes)


def cut_to(size: int, over: int) -> int:
    """Return the bytes that a session's largest log is cut to: the bytes over the budget are removed, at least an eighth.

    Its reader has received these events, or does not read. The readers of other logs lose nothing.
    """
    return size - max(over, size // 8)


# Exchanges that do not start


def remember_withdrawn(known: dict[str, bool], stream: str, *, surely: bool) -> None:
    """Remember that an exchange does not start, and forget the oldest ones; `surely`: nothing of it ran."""
    known[stream] = surely or known.get(stream, False)
    while len(known) > WITHDRAWN_STREAMS:
        del known[next(iter(known))]


# State and tasks


def state_growth(
    limit: int, held: int, field: str, cell: Cell | None, value: bytes | None
) -> tuple[int, int]:
    """Return by how much a change of a field grows its scope, and its principal's total (`holdfast.stores.kept`).

    Raises:
        StateError: the scope has no room for it. A change that does not grow is never refused.
    """
    length = len(field.encode())
    before = None if cell is None else length + len(cell.value)
    after = None if value is None else length + len(value)
    more = (after or 0) - (before or 0)
    if more > 0 and held + more > limit:
        raise StateError(f"state is limited to {limit} bytes; {field!r} would exceed it")
    return more, growth(before, after)


def added(field: str, cell: Cell | None, by: int) -> int:
    """Return a counter's new value. An absent field counts as 0.

    Raises:
        StateError: the field does not hold an integer.
    """
    try:
        return (msgspec.json.decode(cell.value, type=int) if cell else 0) + by
    except msgspec.DecodeError:
        raise StateError(f"state field {field!r} does not hold an integer") from None


def has_task_room(limits: Limits, size: int, *, store: int, own: int) -> bool:
    """Return True if tasks may grow by so many bytes; `own` is the present size of the principal's tasks."""
    return store + size <= limits.tasks_bytes and own + size <= limits.principal_tasks_bytes


def check_task(limits: Limits, value: bytes, *, ends: bool, has_room: Callable[[], bool]) -> None:
    """Check that a change of a task has room. A small end always has.

    Raises:
        StateError: it has none.
    """
    if ends and len(value) <= TASK_END_BYTES:
        return
    if len(value) > limits.task_bytes or not has_room():
        raise StateError(f"no room for a task of {len(value)} bytes")
