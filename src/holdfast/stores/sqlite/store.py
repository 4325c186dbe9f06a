"""The SQLite store: one file that several processes of one host share. It remains when they end.

Every operation is one transaction, run by this process's one worker thread. Deadlines are dates of
the host's clock, which all its processes share, so they hold across a restart.
"""

import sqlite3
from collections.abc import Callable, Collection
from copy import copy
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from holdfast.config import Limits
from holdfast.core.lifecycle import SessionInput
from holdfast.core.stream import NewEvents, Page, Position
from holdfast.ports import Clock, Observer, SilentObserver, SystemClock, SystemRandom
from holdfast.stores.base import (
    Announced,
    Answered,
    Attached,
    Cell,
    Claim,
    Claimed,
    Closed,
    Duplicate,
    Ending,
    Forwarded,
    Found,
    Listing,
    OnWake,
    Orphan,
    OrphanTask,
    Probed,
    Refusal,
    SessionRecord,
    Status,
    Totals,
)
from holdfast.stores.sqlite import (
    asks,
    exchanges,
    outbox,
    replicas,
    schema,
    sessions,
    state,
    streams,
    tasks,
    turns,
)
from holdfast.stores.sqlite.failures import unavailable
from holdfast.stores.sqlite.files import Files
from holdfast.stores.sqlite.transaction import Identity, Transaction
from holdfast.stores.sqlite.watch import Watch
from holdfast.stores.sqlite.worker import Worker
from holdfast.stores.sqlite_address import Synchronous
from holdfast.wire.jsonrpc import RequestId

P = ParamSpec("P")
T = TypeVar("T")
Operation = Callable[Concatenate[Transaction, P], T]


class SqliteStore:
    """Everything in one file. The file must be on a disk of this host: network file systems lack the locks that SQLite needs.

    `synchronous="normal"` survives the death of any process; a power failure may lose the last
    commits, never the file's integrity. `"full"` survives that too, for a flush to disk per commit.

    Raises:
        ConfigError: the file belongs to another program, or is of a later format.
        StoreUnavailable: the file cannot be opened now.
    """

    is_shared = True

    def __init__(
        self,
        path: str | PathLike[str],
        limits: Limits = Limits(),
        clock: Clock | None = None,
        *,
        synchronous: Synchronous = "normal",
        replica: str = "",
        observer: Observer | None = None,
    ) -> None:
        self._observer = observer or SilentObserver()
        self._path = Path(path)
        self._limits = limits
        self._clock = clock or SystemClock()
        self._synchronous: Synchronous = synchronous
        self._is_named = bool(replica)
        self._other_format = schema.FORMAT
        self.replica: str = replica or SystemRandom().token(6)
        self._identity = Identity(self.replica)
        self._worker = self._new_worker()
        self._watch = Watch()
        schema.prepare(self._path)

    def __repr__(self) -> str:
        return f"<SqliteStore {self._path.name}, {self._worker.waiting} commands waiting>"

    def _new_worker(self) -> Worker:
        worker = Worker(
            self._connect,
            self._clock.wall,
            partial(unavailable, path=self._path),
            self._identity,
            Files(self._path),
        )
        worker.on_poisoned = self._note_poisoned
        worker.on_failed = self._note_failed
        return worker

    def _note_poisoned(self, key: str) -> None:
        self._observer.note("store.poisoned", session=key[:8])

    def _note_failed(self, error: Exception) -> None:
        self._observer.note("loop.failed", loop="wake-ups", error=error)

    def _connect(self) -> tuple[sqlite3.Connection, Transaction]:
        connection = schema.connect(self._path, self._synchronous)
        return connection, Transaction(connection, self._limits, self._identity)

    async def _do(self, operation: Operation[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation that writes."""
        done: T = await self._worker.submit(partial(_with, operation, args, kwargs), writes=True)
        return done

    async def _look(self, operation: Operation[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation that only reads: it waits for no lock."""
        seen: T = await self._worker.submit(partial(_with, operation, args, kwargs), writes=False)
        return seen

    def bind(self, on_wake: OnWake) -> None:
        """Send the wake-ups of this process to `on_wake`, and take a name for it. A closed store is open again."""
        if not self._is_named:
            self.replica = SystemRandom().token(6)
            self._identity.rename(self.replica)
        self._watch.bind(on_wake, self._worker.submit)
        self._worker.bind(self._watch.wake, self._watch.look_at_asks, self._watch.look_at_everything)

    async def aclose(self) -> None:
        """Finish the commands that were begun and close the file. Its data stays."""
        await self._worker.aclose()
        self._watch.clear()

    async def prove(self) -> None:
        """Write one row, as all work does."""
        await self._do(replicas.prove)

    # Sessions

    async def open(self, record: SessionRecord, *, evict: bool) -> list[Closed] | Refusal:
        """Keep a new session; evict the longest idle session of a principal that is at its limit."""
        return await self._do(sessions.open_session, record, evict=evict)

    async def find(self, key: str, principal: str) -> Found | None:
        """Return the session if it is open and belongs to this principal. Counts as a sign of the client."""
        return await self._do(sessions.find, key, principal)

    async def look(self, key: str) -> Status | None:
        """Return an open session."""
        return await self._look(sessions.look, key)

    async def sessions_after(self, after: str, *, limit: int) -> Listing:
        """Return the sessions that follow in the order of their keys."""
        return await self._look(sessions.sessions_after, after, limit)

    async def totals(self) -> Totals:
        """Return the totals of all sessions."""
        return await self._look(sessions.totals)

    async def change(self, key: str, *, level: str | None = None, initialized: bool | None = None) -> None:
        """Set the named fields."""
        await self._do(sessions.change, key, level, initialized)

    async def close(self, key: str, reason: SessionInput, ending: Ending | None = None) -> Closed | None:
        """Close a session once. Its exchanges in flight end too."""
        return await self._do(sessions.close, key, reason, ending)

    async def sweep(self) -> list[Closed]:
        """Close the sessions that are due, a few at a time so that no command waits long."""
        closed: list[Closed] = []
        more = True
        while more:
            some, more = await self._do(sessions.sweep)
            closed += some
        return closed

    async def sessions(self, principal: str | None = None) -> list[str]:
        """Return the keys of all open sessions, or of one principal's."""
        return await self._look(sessions.sessions, principal)

    async def subscribe(self, key: str, uri: str) -> bool:
        """Remember a subscription."""
        return await self._do(sessions.subscribe, key, uri)

    async def unsubscribe(self, key: str, uri: str) -> None:
        """Forget a subscription."""
        await self._do(sessions.unsubscribe, key, uri)

    async def subscribers(self, uri: str) -> list[str]:
        """Return the sessions that subscribed."""
        return await self._look(sessions.subscribers, uri)

    # Exchanges

    async def claim(self, key: str, principal: str, claim: Claim) -> Claimed | Duplicate | Refusal:
        """Register the exchange if its id is free and there is room."""
        claimed = await self._do(exchanges.claim, key, principal, claim)
        if isinstance(claimed, Claimed):
            self._watch.of(key).running.add(claim.stream)
        return claimed

    async def give_back(self, key: str, stream: str, fence: int = 0) -> None:
        """End an exchange of which nothing ran, and remember its name."""
        await self._do(exchanges.give_back, key, stream, fence)
        if fence:
            self._watch.drop(key, running=stream)

    async def settle(
        self, key: str, stream: str, fence: int, terminal: bytes | None, *, tag: int = 0, keep: bool = False
    ) -> None:
        """End an exchange, with or without a stream."""
        try:
            await self._do(exchanges.settle, key, stream, fence, terminal, tag=tag, keep=keep)
        finally:
            self._watch.drop(key, running=stream)

    async def keep(self, key: str, stream: str, claim: Claim, terminal: bytes | None, *, tag: int) -> None:
        """Keep a settled exchange's answer for a repeat, unless its id is in use again or a reader has received it."""
        await self._do(exchanges.keep, key, stream, claim, terminal, tag=tag)

    async def cancel(self, key: str, principal: str, request_id: RequestId) -> None:
        """Send CANCEL for the exchange in flight under this id, if there is exactly one."""
        await self._do(exchanges.cancel, key, principal, request_id)

    # Turns

    async def turn(self, key: str, stream: str, fence: int) -> bool:
        """Return True if a call may start."""
        return bool(await self._look(turns.turn, key, stream, fence))

    async def hold_turn(self, key: str, stream: str, fence: int) -> None:
        """Keep the turn of a call after its end."""
        await self._do(turns.hold_turn, key, stream, fence)

    async def pass_turn(self, key: str, stream: str, fence: int) -> None:
        """End a turn, and send TURN for the next call."""
        await self._do(turns.pass_turn, key, stream, fence)

    # Streams

    async def open_stream(self, key: str, stream: str, fence: int, tag: int) -> Position:
        """Start an exchange's stream. A second call returns the same stream."""
        return await self._do(streams.open_stream, key, stream, fence, tag)

    async def append(self, key: str, stream: str, fence: int, events: NewEvents) -> Position:
        """Add events and send STREAM."""
        return await self._do(streams.append, key, stream, fence, events)

    async def read(
        self, key: str, stream: str, cursor: Position, max_events: int, max_bytes: int
    ) -> Page | None:
        """Return the events after the cursor."""
        return await self._look(streams.read, key, stream, cursor, max_events, max_bytes)

    async def attach(
        self,
        key: str,
        principal: str,
        stream: str | None,
        cursor: Position | None,
        *,
        since: int | None = None,
    ) -> Attached | Refusal:
        """Make the caller the stream's reader, in the place of the reader before it."""
        attached = await self._do(streams.attach, key, principal, stream, cursor, since)
        if isinstance(attached, Attached):
            self._watch.of(key).readers[stream or attached.record.standalone] = attached.generation
        return attached

    async def detach(
        self, key: str, stream: str, generation: int, cursor: Position | None, *, broke: bool
    ) -> bool:
        """Remove the reader of a stream; the grace period begins if this break left no reader."""
        self._watch.drop(key, reader=(stream, generation))
        return await self._do(streams.detach, key, stream, generation, cursor, broke=broke)

    async def probe(self, key: str, stream: str) -> Probed | None:
        """Return where a stream is read, and send PROBE there."""
        return await self._do(streams.probe, key, stream)

    async def vouch(self, key: str, stream: str, *, alive: bool) -> None:
        """Record whether a stream's reader is alive."""
        await self._do(streams.vouch, key, stream, alive=alive)

    # Asks

    async def ask(self, key: str, ask: str, stream: str) -> bool:
        """Register an ask if the session has a place for it."""
        is_asked = await self._do(asks.ask, key, ask, stream)
        if is_asked:
            self._watch.of(key).asks.add(ask)
        return is_asked

    async def answer(
        self, key: str, principal: str, ask: str, digest: bytes, payload: bytes
    ) -> Answered | Refusal:
        """Keep the first answer."""
        return await self._do(asks.answer, key, principal, ask, digest, payload)

    async def take_answer(self, key: str, ask: str) -> bytes | None:
        """Return an ask's answer."""
        return await self._look(asks.take_answer, key, ask)

    async def withdraw(self, key: str, ask: str) -> None:
        """Forget an ask."""
        self._watch.drop(key, ask=ask)
        await self._do(asks.withdraw, key, ask)

    # State

    async def open_scope(self, scope: str, principal: str, ttl: float) -> bool:
        """Begin state that belongs to a principal."""
        return await self._do(state.open_scope, scope, principal, ttl)

    async def find_scope(self, scope: str, principal: str) -> bool:
        """Return True if there is such state."""
        return await self._do(state.find_scope, scope, principal)

    async def get_state(self, scope: str, field: str) -> Cell | None:
        """Return a field."""
        return await self._look(state.get, scope, field)

    async def set_state(
        self, scope: str, field: str, value: bytes | None, *, op: str, version: int | None = None
    ) -> int:
        """Set or delete a field."""
        return await self._do(state.set_field, scope, field, value, op=op, version=version)

    async def add_state(self, scope: str, field: str, by: int, *, op: str) -> int:
        """Add to a counter."""
        return await self._do(state.add, scope, field, by, op=op)

    # Tasks

    async def open_task(self, key: str, principal: str, value: bytes, *, ttl: float) -> Refusal | None:
        """Keep a new task."""
        return await self._do(tasks.open_task, key, principal, value, ttl=ttl)

    async def get_task(self, key: str, principal: str) -> Cell | None:
        """Return a task."""
        return await self._look(tasks.get, key, principal)

    async def set_task(
        self, key: str, principal: str, value: bytes, *, version: int, ttl: float, ends: bool = False
    ) -> int:
        """Change a task and send TASK."""
        return await self._do(tasks.set_task, key, principal, value, version=version, ttl=ttl, ends=ends)

    async def orphan_tasks(self, known: Collection[str] | None = None) -> list[OrphanTask]:
        """Return some of the tasks of dead replicas, and of those that this one does not run."""
        return await self._look(tasks.orphans, known)

    # Replicas

    def twin(self) -> Self:
        """Return a handle with its own thread, for the same incarnation."""
        twin = copy(self)
        twin._worker = twin._new_worker()
        return twin

    async def renew(self, seconds: float) -> int:
        """Take the lease or make it longer; after this incarnation was declared dead, a new one begins."""
        incarnation, found = await self._do(replicas.renew, seconds)
        if found not in (schema.FORMAT, self._other_format):
            self._observer.note("store.formats", format=schema.FORMAT, other=found)
        self._other_format = found
        self._identity.owner = f"{self.replica}.{incarnation}"
        return incarnation

    async def release(self) -> None:
        """Give the lease back."""
        await self._do(replicas.release)

    async def replicas(self) -> dict[str, float]:
        """Return the replicas whose lease runs, and for how long."""
        return await self._look(replicas.living)

    async def orphans(self) -> list[Orphan]:
        """Return the exchanges of dead replicas; their readers are removed."""
        return await self._do(replicas.orphans)

    async def reap(self, orphan: Orphan, terminal: bytes, *, tag: int) -> bool:
        """End an orphan for its owner. If several replicas try, one succeeds."""
        return await self._do(replicas.reap, orphan, terminal, tag=tag)

    async def take_home(self, key: str, expected: str) -> SessionRecord | None:
        """Make this replica the home of a session if its home is `expected`."""
        return await self._do(sessions.take_home, key, expected)

    async def subscriptions(self, key: str) -> list[str]:
        """Return the resources that a session subscribed to."""
        return await self._look(sessions.subscriptions, key)

    async def forward(self, replica: str, name: str, payload: bytes, *, seconds: float) -> bool:
        """Put a request into a living replica's inbox and send FORWARD."""
        return await self._do(replicas.forward, replica, name, payload, seconds=seconds)

    async def inbox(self) -> list[Forwarded]:
        """Return the requests in this replica's inbox."""
        return await self._look(replicas.inbox)

    async def remove_forwarded(self, name: str, *, replica: str = "") -> bool:
        """Take a request out of an inbox, by default the own one."""
        return await self._do(replicas.remove_forwarded, name, replica)

    async def announce(self, name: str, event: bytes) -> None:
        """Announce an event to all replicas."""
        await self._do(outbox.announce, name, event)

    async def announced(self, after: str) -> Announced:
        """Return the announcements after a cursor."""
        return await self._look(outbox.announced, after)

    async def secret(self, name: str, candidate: bytes, *, seconds: float) -> bytes:
        """Return the secret of this name: the first candidate offered."""
        return await self._do(replicas.secret, name, candidate, seconds)

    async def post_notice(self, notice: bytes, *, seconds: float) -> list[bytes]:
        """Replace the notice of this replica; return those of the others."""
        if not notice:
            return await self._look(replicas.notices)
        return await self._do(replicas.post_notice, notice, seconds)

    async def closing_reported(self, closed: Closed) -> None:
        """Record that the listeners were called for a closing."""
        await self._do(outbox.closing_reported, closed)

    async def unreported_closings(self) -> list[Closed]:
        """Return closings that were not reported for a while."""
        return await self._do(outbox.unreported_closings)


def _with(operation: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any], tx: Transaction) -> T:
    return operation(tx, *args, **kwargs)
