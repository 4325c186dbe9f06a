"""The one thread that talks to the file: commands in, one transaction for all that wait, answers out.

    event loop                       thread                             file
    ──────────                       ──────                             ────
    submit(step) ──▶ queue ──▶ take about 256 commands
     (at the end of the turn)
                               BEGIN ───────────────────────────────▶ lock (only if one of them writes)
                               step(tx) for each command
                               write wake-ups for others ───────────▶ rows of `ring`
                               COMMIT ──────────────────────────────▶ durable
    wake up, then answer ◀──── call_soon_threadsafe
                               every 50 ms: rows of `ring` from others ─▶ wake up in the event loop

One thread. SQLite blocks its caller, so it must not run in the event loop; and one connection has one transaction at
a time, so a second thread would only wait. No lock is needed: the queue hands commands over in one direction,
`call_soon_threadsafe` hands answers back in the other, and each attribute is used on one side only.

Group commit. The commands of one pass of the loop go to the thread together when the pass ends, and those that
arrive while a transaction runs share the next one. So many commands share the price of one commit: 32 calls in flight
need one for all their claims and one for all their ends. A batch that fails is rolled back, and its commands are tried
one by one: a command never fails because of another one in its batch. An error of this package (`Fenced`,
`SessionGone`) is the answer of its command and does not end the transaction, because operations check before they write
(see `transaction`).

Why nothing is lost or done half. A command is answered after its commit, and its wake-ups are sent before its answer.
A caller that was cancelled changes nothing: the command runs anyway, as a command sent over a network would. If the
process dies before the commit, nothing happened; after it, the command counts once, and its repeat is recognised.

When the file fails. A busy lock is waited for in steps of 10 ms, up to five seconds. After a lasting error (I/O,
damage) the connection is closed, and the next command opens a new one. The same happens if a file was deleted or
replaced (`files`). Commands that only read still run while another process holds the lock. Other errors of SQLite reach
the caller as `StoreUnavailable`: nothing was done.

Wake-ups of other processes are rows of the table `ring`, numbered without a gap. `PRAGMA data_version` says, without
reading a table, whether another connection has written at all; `on_lost` is called if rows were missed.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from limpet.errors import LimpetError, StoreUnavailable
from limpet.ports import SystemClock
from limpet.stores.base import OnWake, WakeUp
from limpet.stores.sqlite.failures import is_busy, is_lasting, is_surroundings
from limpet.stores.sqlite.files import Files
from limpet.stores.sqlite.transaction import AddressedWakeUp, Identity, Step, Transaction

QUEUED: Final = 10_000
"""Commands that may be without an answer; beyond, the store is unavailable."""
BATCH: Final = 256
"""Commands after which a transaction takes no more of them: other processes wait while it runs."""
POLL: Final = 0.05
"""Seconds between two reads of the wake-ups of other processes."""
TRIES: Final = 500
"""Waits for the file's lock of 10 ms each: five seconds, then the command fails."""

LOOK_SECONDS: Final = 1.0
"""How often asks that wait for an answer are compared with the file."""

_WAKEUPS: Final = {kind.value: kind for kind in WakeUp}

SPARE_PAGES: Final = 256
"""Free pages that are not worth giving back: they are soon used again."""
SHRINK_PAGES: Final = 2_048
"""Pages given back after one sweep."""

_VERSION: Final = "PRAGMA data_version"
_LAST_WAKEUP: Final = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'ring'"
_KEPT: Final = "SELECT count(*) FROM ring WHERE n > ? AND n <= ?"
_FOREIGN: Final = (
    "SELECT what, key, name FROM ring WHERE n > :last AND n <= :top"
    " AND origin <> :replica AND target IN ('', :replica) ORDER BY n"
)


class Command:
    """One operation, and the future that waits for it."""

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
        except LimpetError as error:
            self.error = error

    def answer(self) -> None:
        """Complete the future, unless its waiter was cancelled."""
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
        files: Files,
    ) -> None:
        self._connect = connect
        self._files = files
        self._wall = wall
        self._explain = explain
        self._identity = identity
        self._queue: queue.SimpleQueue[list[Command] | None] = queue.SimpleQueue()
        self._given: list[Command] = []
        """The commands of this pass of the loop."""
        self.waiting: int = 0
        """How many commands have no answer yet."""
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_wake: OnWake | None = None
        self._on_second: Callable[[], None] | None = None
        self._on_lost: Callable[[], None] | None = None
        self._is_closed = False
        self.commits: int = 0
        """Transactions so far that wrote."""
        self.on_poisoned: Callable[[str], None] = lambda key: None  # noqa: ARG005
        """Called, in the event loop, with the key of a session that could not be read and was removed."""
        self.on_failed: Callable[[Exception], None] = lambda error: None  # noqa: ARG005
        """Called, in the event loop, with an exception from listening to other processes."""
        # Of the thread alone:
        self._connection: sqlite3.Connection | None = None
        self._transaction: Transaction | None = None
        self._data_version = -1
        self._is_current = False
        """The last transaction has found that no other process has written."""
        self._last_read: int | None = None
        self._looked = 0.0

    def bind(self, on_wake: OnWake, on_second: Callable[[], None], on_lost: Callable[[], None]) -> None:
        """Send wake-ups to `on_wake`, in the event loop; a worker that was closed may be used again.

        `on_second` is called there about every second, and `on_lost` if wake-ups of other processes were missed.
        """
        self._on_wake, self._on_second, self._on_lost = on_wake, on_second, on_lost
        self._is_closed = False

    def submit(self, step: Step, *, writes: bool) -> asyncio.Future[Any]:
        """Queue an operation. It runs even if its waiter is cancelled.

        Raises:
            StoreUnavailable: the store is closed, or too many commands wait.
        """
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        if self.waiting >= QUEUED:
            raise StoreUnavailable(f"{QUEUED} commands wait for the store already")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if not self._given:
            loop.call_soon(self._hand_over)
        self._given.append(Command(future, step, writes=writes))
        self.waiting += 1
        if self._thread is None:
            self._start(loop)
        return future

    def _hand_over(self) -> None:
        """Give the commands of this pass to the thread."""
        given, self._given = self._given, []
        for start in range(0, len(given), BATCH):
            self._queue.put(given[start : start + BATCH])

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Commands of an event loop that has ended get no answer.
        self.waiting = len(self._given)
        # A daemon: a program that does not close its store can still end, and loses nothing.
        self._thread = threading.Thread(target=self._run, name="limpet-sqlite", daemon=True)
        self._thread.start()

    async def aclose(self) -> None:
        """Run the queued commands, then close the file."""
        self._is_closed = True
        if self._thread is not None:
            self._hand_over()
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
                self._call(self._answer, batch)
            self._read_wakeups()
        self._disconnect()
        self._last_read = None

    def _read_wakeups(self) -> None:
        """Read the wake-ups of other processes. The thread survives any error there: every command needs it."""
        try:
            self._listen()
            self._look_sometimes()
        except Exception as error:  # noqa: BLE001 - noted, and tried again over a new connection
            self._disconnect()
            self._call(self.on_failed, error)

    def _take(self) -> tuple[list[Command], bool]:
        """Return the commands that wait, after a short wait for the first; and False once the store is closing."""
        batch: list[Command] = []
        try:
            given = self._queue.get(timeout=POLL)
            while given is not None:
                batch += given
                if len(batch) >= BATCH:
                    return batch, True
                given = self._queue.get_nowait()
        except queue.Empty:
            return batch, True
        return batch, False

    def _serve(self, batch: list[Command]) -> None:
        try:
            self._commit(batch)
        except Exception as failure:  # noqa: BLE001 - a future waits for it
            if is_lasting(failure):
                self._disconnect()
            self._recover(batch, failure)

    def _recover(self, batch: list[Command], failure: Exception) -> None:
        """Run the commands of a failed batch that can still run, and fail the others."""
        if len(batch) > 1 and not is_busy(failure):
            for command in batch:
                self._serve([command])
            return
        # A command that only reads needs no lock.
        looks = [command for command in batch if not command.writes]
        if 0 < len(looks) < len(batch):
            self._serve(looks)
            batch = [command for command in batch if command.writes]
        for command in batch:
            command.error = self._explain(failure) if is_surroundings(failure) else failure
            command.wakeups = []

    def _commit(self, batch: list[Command]) -> None:
        """Run a batch in one transaction: all of it, or nothing."""
        connection, tx = self._connected()
        writes = any(command.writes for command in batch)
        self._begin(connection, "BEGIN IMMEDIATE" if writes else "BEGIN")
        tx.begin()
        try:
            # Within the transaction this takes no lock of its own, which would be four calls of the system.
            self._is_current = tx.one(_VERSION) == self._data_version
            for command in batch:
                command.perform(tx, self._wall())
            if writes:
                tx.finish()
            connection.execute("COMMIT")
            self.commits += writes
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
            # Another process writes, or the disk is full: the next sweep tries again.
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
        if self._connection is not None and self._files.is_replaced():
            self._disconnect()
        if self._connection is None or self._transaction is None:
            database = self._files.database
            self._connection, self._transaction = self._connect()
            self._files.are_opened(database)
            self._listen_from_now(self._connection)
        return self._connection, self._transaction

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection = self._transaction = None

    # Wake-ups of other processes

    def _listen_from_now(self, connection: sqlite3.Connection) -> None:
        [self._data_version] = connection.execute(_VERSION).fetchone()
        if self._last_read is None:
            [self._last_read] = connection.execute(_LAST_WAKEUP).fetchone()
        else:
            # Connected again: wake-ups of the time between are still to be read.
            self._data_version = -1

    def _listen(self) -> None:
        """Send the wake-ups that other processes have written since the last read."""
        is_current, self._is_current = self._is_current, False
        if is_current or self._connection is None or self._on_wake is None:
            return
        try:
            [version] = self._connection.execute(_VERSION).fetchone()
            if version == self._data_version:
                return
            [top] = self._connection.execute(_LAST_WAKEUP).fetchone()
            listening = {"last": self._last_read, "top": top, "replica": self._identity.replica}
            found = self._connection.execute(_FOREIGN, listening).fetchall()
            # Last, so that a row deleted meanwhile counts as missed.
            [kept] = self._connection.execute(_KEPT, (self._last_read, top)).fetchone()
        except sqlite3.Error as error:
            if is_lasting(error):
                self._disconnect()
            return
        is_lost = kept != top - (self._last_read or 0)
        self._data_version, self._last_read = version, top
        # A later release may send kinds that this one does not know.
        known = [(_WAKEUPS[what], key, name) for what, key, name in dict.fromkeys(found) if what in _WAKEUPS]
        if known:
            self._call(self._wake_all, known)
        if is_lost and self._on_lost is not None:
            self._call(self._on_lost)

    def _look_sometimes(self) -> None:
        # By the machine's clock, as the wait for commands is: also where the store's clock is virtual.
        now = SystemClock.now()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            if self._connection is not None and self._files.are_replaced():
                self._disconnect()
            if self._on_second is not None:
                self._call(self._on_second)

    # Back to the event loop

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            # The event loop has ended: no future waits any more.
            self._loop = None

    def _report(self, keys: list[str]) -> None:
        for key in keys:
            self.on_poisoned(key)

    def _answer(self, batch: list[Command]) -> None:
        self.waiting -= len(batch)
        for command in batch:
            self._wake_all(command.wakeups)
            command.answer()

    def _wake_all(self, wakeups: Iterable[AddressedWakeUp]) -> None:
        if self._on_wake is not None:
            for what, key, name in wakeups:
                self._on_wake(what, key, name)
