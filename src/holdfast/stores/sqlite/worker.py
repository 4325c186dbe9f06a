"""The one thread that talks to the file: commands in, one transaction for all that wait, answers out.

Commands that wait while a transaction runs share the next one (group commit), so the price of a commit
is paid by many. A batch that fails is rolled back whole and its commands are tried one by one: nobody
is failed by a neighbour, and nothing is ever half done.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.ports import SystemClock
from holdfast.stores.base import OnWake, WakeUp
from holdfast.stores.sqlite.failures import is_busy, is_lasting, is_surroundings
from holdfast.stores.sqlite.transaction import AddressedWakeUp, Identity, Step, Transaction
from holdfast.stores.sqlite.watch import LOOK_SECONDS

QUEUED: Final = 10_000
"""Commands that may wait; beyond, the store is unavailable."""
BATCH: Final = 256
"""Commands in one transaction: other processes wait while it runs."""
POLL: Final = 0.05
"""Seconds between two looks for what other processes rang."""
TRIES: Final = 500
"""Waits for the file's lock of 10 ms each: five seconds, then the command fails."""

_WAKEUPS: Final = {kind.value: kind for kind in WakeUp}

SPARE_PAGES: Final = 256
"""Free pages that are not worth giving back: they are soon used again."""
SHRINK_PAGES: Final = 2_048
"""Pages given back after one sweep."""

_LAST_WAKEUP: Final = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'ring'"
_KEPT: Final = "SELECT count(*) FROM ring WHERE n > ? AND n <= ?"
_FOREIGN: Final = (
    "SELECT what, key, name FROM ring WHERE n > :heard AND n <= :top"
    " AND origin <> :replica AND target IN ('', :replica)"
    # A stream that was taken from here and has come back since is not taken.
    " AND NOT (what = 'taken' AND EXISTS (SELECT 1 FROM exchange JOIN session USING (sid)"
    " WHERE session.key = ring.key AND stream = ring.name AND reader = :owner)) ORDER BY n"
)


class Command:
    """One operation, and who waits for it."""

    __slots__ = ("error", "future", "result", "step", "wakeups", "writes")

    def __init__(self, future: asyncio.Future[Any], step: Step, *, writes: bool) -> None:
        self.future: asyncio.Future[Any] = future
        self.step: Step = step
        self.writes: bool = writes
        self.result: Any = None
        self.error: BaseException | None = None
        self.wakeups: list[AddressedWakeUp] = []

    def perform(self, tx: Transaction, now: float) -> None:
        """Run the operation. An error of this package is its answer; any other fails the transaction."""
        tx.now = now
        tx.wakeups = self.wakeups = []
        self.result = self.error = None
        try:
            self.result = self.step(tx)
        except HoldfastError as error:
            self.error = error

    def answer(self) -> None:
        """Tell whoever waits, if anybody still does."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Worker:
    """The thread, its queue and its connection. Everything public is called from the event loop."""

    def __init__(
        self,
        connect: Callable[[], tuple[sqlite3.Connection, Transaction]],
        wall: Callable[[], float],
        explain: Callable[[BaseException], StoreUnavailable],
        identity: Identity,
    ) -> None:
        self._connect = connect
        self._wall = wall
        self._explain = explain
        self._identity = identity
        self._queue: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_wake: OnWake | None = None
        self._on_second: Callable[[], None] | None = None
        self._on_lost: Callable[[], None] | None = None
        self._is_closed = False
        self.on_poisoned: Callable[[str], None] = lambda key: None  # noqa: ARG005
        """Called, in the event loop, with the key of a session that could not be read and was removed."""
        self.on_failed: Callable[[Exception], None] = lambda error: None  # noqa: ARG005
        """Called, in the event loop, with what listening to other processes raised."""
        # Of the thread alone:
        self._connection: sqlite3.Connection | None = None
        self._transaction: Transaction | None = None
        self._data_version = -1
        self._heard: int | None = None
        self._looked = 0.0

    @property
    def waiting(self) -> int:
        """How many commands wait for the thread."""
        return self._queue.qsize()

    def bind(self, on_wake: OnWake, on_second: Callable[[], None], on_lost: Callable[[], None]) -> None:
        """Ring this bell, in the event loop; a worker that was closed may be used again.

        There `on_second` is called about every second, and `on_lost` when bells of other processes are lost.
        """
        self._on_wake, self._on_second, self._on_lost = on_wake, on_second, on_lost
        self._is_closed = False

    def submit(self, step: Step, *, writes: bool) -> asyncio.Future[Any]:
        """Have an operation done. It is done even if nobody waits for it any more."""
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        if self._queue.qsize() >= QUEUED:
            raise StoreUnavailable(f"{QUEUED} commands wait for the store already")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._queue.put(Command(future, step, writes=writes))
        if self._thread is None:
            self._start(loop)
        return future

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # A daemon: a program that forgets to close its store can end all the same, and loses nothing by it.
        self._thread = threading.Thread(target=self._run, name="holdfast-sqlite", daemon=True)
        self._thread.start()

    async def aclose(self) -> None:
        """Do what is queued, then close the file."""
        self._is_closed = True
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    # In the thread

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            batch, goes_on = self._take()
            if batch:
                self._serve(batch)
                self._tell(batch)
            self._hear()
        self._disconnect()
        self._heard = None

    def _hear(self) -> None:
        """Look for what other processes rang. Whatever fails there, the thread goes on: every command needs it."""
        try:
            self._listen()
            self._look_sometimes()
        except Exception as error:  # noqa: BLE001 - noted, and tried again over a new connection
            self._disconnect()
            self._call(self.on_failed, error)

    def _take(self) -> tuple[list[Command], bool]:
        """Return what waits, after waiting a little for the first; and False once the store is being closed."""
        batch: list[Command] = []
        try:
            command = self._queue.get(timeout=POLL)
            while command is not None:
                batch.append(command)
                if len(batch) == BATCH:
                    return batch, True
                command = self._queue.get_nowait()
        except queue.Empty:
            return batch, True
        return batch, False

    def _serve(self, batch: list[Command]) -> None:
        try:
            self._commit(batch)
        except Exception as failure:  # noqa: BLE001 - whatever it is, somebody waits to hear of it
            if is_lasting(failure):
                self._disconnect()
            self._recover(batch, failure)

    def _recover(self, batch: list[Command], failure: Exception) -> None:
        """Try what may still be done of a batch that failed, and fail the rest."""
        if len(batch) > 1 and not is_busy(failure):
            for command in batch:
                self._serve([command])
            return
        # Whoever only looks needs no lock.
        looks = [command for command in batch if not command.writes]
        if 0 < len(looks) < len(batch):
            self._serve(looks)
            batch = [command for command in batch if command.writes]
        for command in batch:
            command.error = self._explain(failure) if is_surroundings(failure) else failure
            command.wakeups = []

    def _commit(self, batch: list[Command]) -> None:
        """Do a batch in one transaction: all of it, or nothing."""
        connection, tx = self._connected()
        writes = any(command.writes for command in batch)
        self._begin(connection, "BEGIN IMMEDIATE" if writes else "BEGIN")
        tx.begin()
        try:
            for command in batch:
                command.perform(tx, self._wall())
            if writes:
                tx.leave_wakeups()
            connection.execute("COMMIT")
        finally:
            # SQLite ends a transaction by itself after some errors.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        if tx.poisoned:
            self._call(self._report, tx.poisoned)
        if tx.is_tidied:
            self._shrink(connection)

    def _shrink(self, connection: sqlite3.Connection) -> None:
        """Give free pages back to the file system, some at a time."""
        try:
            [free] = connection.execute("PRAGMA freelist_count").fetchone()
            if free > SPARE_PAGES:
                # As a script: one call of `execute` would free a single page.
                connection.executescript(f"PRAGMA incremental_vacuum({SHRINK_PAGES})")
        except sqlite3.OperationalError:
            # Somebody else writes, or the disk is full: the next sweep tries again.
            return

    def _begin(self, connection: sqlite3.Connection, statement: str) -> None:
        for attempt in range(TRIES):
            try:
                connection.execute(statement)
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error) or attempt == TRIES - 1:
                    raise

    def _connected(self) -> tuple[sqlite3.Connection, Transaction]:
        if self._connection is None or self._transaction is None:
            self._connection, self._transaction = self._connect()
            self._listen_from_now(self._connection)
        return self._connection, self._transaction

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection = self._transaction = None

    # Bells of other processes

    def _listen_from_now(self, connection: sqlite3.Connection) -> None:
        [self._data_version] = connection.execute("PRAGMA data_version").fetchone()
        if self._heard is None:
            [self._heard] = connection.execute(_LAST_WAKEUP).fetchone()
        else:
            # Connected again: what was rung meanwhile is still to be heard.
            self._data_version = -1

    def _listen(self) -> None:
        """Ring what other processes have rung since the last look."""
        if self._connection is None or self._on_wake is None:
            return
        try:
            [version] = self._connection.execute("PRAGMA data_version").fetchone()
            if version == self._data_version:
                return
            [top] = self._connection.execute(_LAST_WAKEUP).fetchone()
            listening = {
                "heard": self._heard,
                "top": top,
                "replica": self._identity.replica,
                "owner": self._identity.owner,
            }
            rung = self._connection.execute(_FOREIGN, listening).fetchall()
            # Last, so that a bell deleted meanwhile counts as lost.
            [kept] = self._connection.execute(_KEPT, (self._heard, top)).fetchone()
        except sqlite3.Error as error:
            if is_lasting(error):
                self._disconnect()
            return
        is_lost = kept != top - (self._heard or 0)
        self._data_version, self._heard = version, top
        # A later release may ring for what this one knows nothing of.
        known = [(_WAKEUPS[what], key, name) for what, key, name in dict.fromkeys(rung) if what in _WAKEUPS]
        if known:
            self._call(self._wake_all, known)
        if is_lost and self._on_lost is not None:
            self._call(self._on_lost)

    def _look_sometimes(self) -> None:
        # By the machine's clock, as the wait for commands is: also where the store's clock is virtual.
        now = SystemClock.now()
        if self._on_second is not None and now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._call(self._on_second)

    # Back to the event loop

    def _tell(self, batch: list[Command]) -> None:
        self._call(self._answer, batch)

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            # The event loop has ended: nobody waits any more.
            self._loop = None

    def _report(self, keys: list[str]) -> None:
        for key in keys:
            self.on_poisoned(key)

    def _answer(self, batch: list[Command]) -> None:
        for command in batch:
            self._wake_all(command.wakeups)
            command.answer()

    def _wake_all(self, rings: Iterable[AddressedWakeUp]) -> None:
        if self._on_wake is not None:
            for what, key, name in rings:
                self._on_wake(what, key, name)
