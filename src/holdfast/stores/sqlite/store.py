"""The SQLite store: one file that several processes of one host share. It remains when they end.

Every operation is one transaction, run by this process's one worker thread. Deadlines are dates of
the host's clock, which all its processes share, so they hold across a restart.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Coroutine
from copy import copy
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Self

from typing_extensions import override

from holdfast.config import Limits
from holdfast.ports import Clock, Observer, SilentObserver, SystemClock, SystemRandom
from holdfast.stores.base import (
    Announced,
    Cell,
    Closed,
    Forwarded,
    OnWake,
    OrphanTask,
    Refusal,
    WakeUp,
)
from holdfast.stores.sqlite import outbox, replicas, schema, shelf, state, tasks
from holdfast.stores.sqlite.failures import unavailable
from holdfast.stores.sqlite.files import Files
from holdfast.stores.sqlite.sessions import SqliteSessions
from holdfast.stores.sqlite.transaction import Identity, Transaction
from holdfast.stores.sqlite.worker import Worker
from holdfast.stores.sqlite_address import Synchronous


def _silent(kind: WakeUp, key: str, name: str) -> None:
    """Pass on no wake-up: nothing listens yet."""


class SqliteStore(SqliteSessions):
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
        self.now: Callable[[], float] = self._clock.wall
        self._synchronous: Synchronous = synchronous
        self._is_named = bool(replica)
        self._other_format = schema.FORMAT
        self.replica: str = replica or SystemRandom().token(6)
        self._identity = Identity(self.replica)
        self._worker = self._new_worker()
        self.wake: OnWake = _silent
        super().__init__(limits, SystemRandom())
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

    def _note_bytes(self, size: int) -> None:
        """Learn the bytes of all logs. Called in the thread of the file."""
        self.over: int = size - self._limits.streams_bytes

    def _note_poisoned(self, key: str) -> None:
        self._observer.note("store.poisoned", session=key[:8])

    def _note_failed(self, error: Exception) -> None:
        self._observer.note("loop.failed", loop="wake-ups", error=error)

    def _connect(self) -> tuple[sqlite3.Connection, Transaction]:
        connection = schema.connect(self._path, self._synchronous)
        return connection, Transaction(connection, self._limits, self._identity, self._note_bytes)

    def bind(self, on_wake: OnWake) -> None:
        """Send the wake-ups of this process to `on_wake`, and take a name for it. A closed store is open again."""
        if not self._is_named:
            self.replica = SystemRandom().token(6)
            self._identity.rename(self.replica)
        self.forget_all()
        self.wake = on_wake
        self._worker.bind(self.woken, self._each_second, self._lost)

    def _each_second(self) -> None:
        if any(entry.asks for entry in self._entries.values()):
            self._start(self._look_at_asks())

    def _lost(self) -> None:
        self._start(self._look_at_everything())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._rounds.add(task)
        task.add_done_callback(self._rounds.discard)

    async def aclose(self) -> None:
        """Finish the commands that were begun and close the file. Its data stays."""
        await self._worker.aclose()
        self.forget_all()

    async def prove(self) -> None:
        """Write one row, as all work does."""
        await self._do(replicas.prove)

    @override
    async def sweep(self) -> list[Closed]:
        """Close the sessions that are due, and forget everything else whose time is over."""
        await self._do(_sweep)
        return await super().sweep()

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


def _sweep(tx: Transaction) -> None:
    """Forget what is not a session, and whose time is over."""
    for part in (tasks, state, replicas, outbox, shelf):
        part.sweep(tx)
    tx.tidy()
