"""The SQLite store: one file that several processes of one host share. It remains when they end.

Every method of the backend is one transaction, run by this process's one worker thread. Deadlines are dates of
the host's clock, which all its processes share, so they hold across a restart.
"""

import sqlite3
from collections.abc import Callable
from copy import copy
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Final, Self

from typing_extensions import override

from limpet.config import Limits
from limpet.ports import Clock, Observer, SilentObserver, SystemClock, SystemRandom
from limpet.stores.base import Closed, OnWake, silent
from limpet.stores.base.tasks import TaskPart
from limpet.stores.shared.state import SharedState
from limpet.stores.sqlite import outbox, replicas, schema, shelf, state, tasks
from limpet.stores.sqlite.failures import unavailable
from limpet.stores.sqlite.files import Files
from limpet.stores.sqlite.sessions import SqliteSessions, reads, writes
from limpet.stores.sqlite.transaction import Identity, Transaction
from limpet.stores.sqlite.worker import Worker
from limpet.stores.sqlite_address import Synchronous


def _sweep(tx: Transaction) -> None:
    """Forget what is not a session, and whose time is over."""
    for part in (tasks, state, replicas, outbox, shelf):
        part.sweep(tx)
    tx.tidy()


class SqliteStore(SqliteSessions, SharedState, TaskPart):
    """Everything in one file.

    The file must be on a disk of this host: network file systems lack the locks that SQLite needs.

    `synchronous="normal"` survives the death of any process; a power failure may lose the last
    commits, never the file's integrity. `"full"` survives that too, for a flush to disk per commit.

    Raises:
        ConfigError: the file belongs to another program, or was made by a Limpet that this one cannot read.
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
        self.wake: OnWake = silent
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
            self._in_background(self._look_at_asks())

    def _lost(self) -> None:
        """Some wake-ups were missed, and it is not known which."""
        self._in_background(self.look_again())

    async def aclose(self) -> None:
        """Finish the commands that were begun and close the file. Its data stays."""
        await self._worker.aclose()
        self.forget_all()

    prove: Final = writes(replicas.prove)

    @override
    async def sweep(self) -> list[Closed]:
        await self._forget_old()
        return await super().sweep()

    # State and tasks

    open_area: Final = writes(state.open_area)
    find_area: Final = writes(state.find_area)
    load_state: Final = reads(state.load)
    write_state: Final = writes(state.apply)
    drop_state: Final = writes(state.forget)
    load_task: Final = reads(tasks.load)
    swap_task: Final = writes(tasks.swap)
    orphan_tasks: Final = reads(tasks.orphan_tasks)

    # Replicas

    def twin(self) -> Self:
        """Return a handle with its own thread, for the same incarnation."""
        twin = copy(self)
        twin._worker = twin._new_worker()
        return twin

    async def renew(self, seconds: float) -> int:
        incarnation, found = await self._renew(seconds)
        if found not in (schema.FORMAT, self._other_format):
            self._observer.note("store.formats", format=schema.FORMAT, other=found)
        self._other_format = found
        self.me = f"{self.replica}.{incarnation}"
        return incarnation

    async def post_notice(self, notice: bytes, *, seconds: float) -> list[bytes]:
        return await (self._post_notice(notice, seconds) if notice else self._notices())

    async def forward(self, replica: str, name: str, payload: bytes, *, seconds: float) -> bool:
        """Put a message into a replica's inbox. Not in the list below: a test overrides it."""
        forwarded: bool = await self._worker.submit(
            lambda tx: replicas.forward(tx, replica, name, payload, seconds=seconds), writes=True
        )
        return forwarded

    release: Final = writes(replicas.release)
    inbox: Final = reads(replicas.inbox)
    remove_forwarded: Final = writes(replicas.remove_forwarded)
    announce: Final = writes(outbox.announce)
    announced: Final = reads(outbox.announced)
    secret: Final = writes(replicas.secret)
    closing_reported: Final = writes(outbox.closing_reported)
    unreported_closings: Final = writes(outbox.unreported_closings)
    _renew: Final = writes(replicas.renew)
    _post_notice: Final = writes(replicas.post_notice)
    _notices: Final = reads(replicas.notices)
    _forget_old: Final = writes(_sweep)
    # The last one: it hides the module from the lines above.
    replicas: Final = reads(replicas.living)
