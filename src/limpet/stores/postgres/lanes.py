"""Statements on a bounded number of connections. A connection with its statement is a lane.

A command leaves at once if no other one is under way. Else it waits until the end of this turn of the event loop, and
until a connection is free; then all commits that wait leave together: one round trip and one transaction. So the more
commands come at once, the fewer transactions they need. The commits of a batch lock their sessions in the order of
their keys, as all batches do, so two batches never wait for each other. If one of them fails, nothing of the batch is
applied, and each is sent alone.

**Sent again.** Every command may be sent twice: a commit has a number, and the others find their work done. If the
answer is lost, `run` sends it again until `PATIENCE` is over, and so it does with a command that PostgreSQL does not
execute now (`refusals.py`). After that the store is unavailable, and the caller does not know whether the command was
executed.

**A command that is cancelled** is not sent if it still waits; else its answer is ignored.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, repeat
from math import inf
from typing import Any, Final

from msgspec import Struct

from limpet.errors import StoreError, StoreUnavailable
from limpet.ports import Observer
from limpet.stores.postgres.connection import PostgresConnection, Rows
from limpet.stores.postgres.link import Link
from limpet.stores.postgres.refusals import REFUSALS, Reaction, code_of
from limpet.stores.shared.answers import Later, Lost

BACKOFFS: Final = (0.02, 0.1, 0.4)
"""Seconds before a command is sent again."""
PATIENCE: Final = 3.0
"""Seconds after which no command is sent again: a client is waiting."""
SILENCE: Final = 4.0
"""Seconds without an answer after which a connection is given up. A statement that waits for a lock is refused by
the server before that."""
IDLE: Final = 60.0
"""Seconds after which a connection without work is closed."""
FULL_SECONDS: Final = 10.0
"""Seconds for which no further connection is tried, while others work, after one could not be opened."""
_COMBINED: Final = 16
"""Commits in one transaction."""


class _Statement(Struct, eq=False):
    """A statement that waits for its rows."""

    statement: str
    arguments: Sequence[Any]
    done: asyncio.Future[Rows]
    order: str = ""
    """It may share a transaction with others of the same statement, in this order. Empty: it may not."""


class Lanes:
    """Runs statements."""

    def __init__(
        self,
        link: Link,
        most: int,
        observer: Observer,
        prepare: Callable[[PostgresConnection], Awaitable[None]],
    ) -> None:
        self._link = link
        self._most = most
        self._observer = observer
        self._prepare = prepare
        self._is_ready = False
        """The schema was looked at."""
        self._queue: deque[_Statement] = deque()
        self._idle: dict[PostgresConnection, float] = {}
        """Connections without work, and since when."""
        self._busy: dict[PostgresConnection, tuple[float, list[_Statement]]] = {}
        """Connections that wait for an answer: since when, and what was sent."""
        self._opening: asyncio.Task[None] | None = None
        self._is_called = False
        """The queue is looked at in the next turn of the event loop."""
        self._is_crowded = False
        """The last answer was for several commands: more may come in this turn."""
        self._watch: asyncio.TimerHandle | None = None
        self._full = -inf
        """When a further connection could last not be opened."""
        self._is_closed = False
        self.round_trips: int = 0
        """Statements and batches that were sent."""

    def __repr__(self) -> str:
        return f"<Lanes {len(self._idle) + len(self._busy)} connections, {len(self._queue)} commands wait>"

    async def run(self, statement: str, arguments: Sequence[Any], order: str = "") -> Rows:
        """Run a statement until it is answered; return its rows.

        Raises:
            StoreUnavailable: it was not answered in time, or is refused.
            StoreError: PostgreSQL cannot execute it.
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        pauses = chain(BACKOFFS, repeat(BACKOFFS[-1]))
        while True:
            if self._is_closed:
                raise _closed()
            job = _Statement(statement, arguments, loop.create_future(), order)
            self._put(job)
            try:
                return await job.done
            except (Lost, Later) as failure:
                failed = failure
            except StoreError as error:
                self._observer.note("store.refused", error=error.__cause__ or error)
                raise
            if loop.time() - begun > PATIENCE:
                break
            await asyncio.sleep(next(pauses))
        self._observer.note("store.unreachable", error=failed.__cause__ or failed)
        reason = str(failed) if isinstance(failed, Later) else ""
        raise StoreUnavailable(
            f"the store cannot be used now: {reason}" if reason else "the store cannot be reached"
        ) from failed

    def _put(self, job: _Statement) -> None:
        self._queue.append(job)
        if not self._busy and not self._is_crowded:
            self._work()
        elif not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._gathered)

    def _gathered(self) -> None:
        self._is_called = False
        self._work()

    def _work(self) -> None:
        """Send what waits, as far as there are connections."""
        while self._queue and not self._is_closed:
            if not self._idle:
                self._grow()
                return
            connection, _ = self._idle.popitem()
            if connection.is_closed:
                continue
            if not (jobs := self._take()):
                self._rest(connection)
                return
            self._send(connection, jobs)

    def _send(self, connection: PostgresConnection, jobs: list[_Statement]) -> None:
        self.round_trips += 1
        self._busy[connection] = asyncio.get_running_loop().time(), jobs
        try:
            connection.begin(jobs[0].statement, [job.arguments for job in jobs], self._answered)
        except Exception as error:  # noqa: BLE001 - it goes to the senders of the commands
            failed = StoreError("the store failed")
            failed.__cause__ = error
            self._answered(connection, [], failed)

    def _rest(self, connection: PostgresConnection) -> None:
        if self._is_closed:
            connection.end()
        elif not connection.is_closed:
            self._idle[connection] = asyncio.get_running_loop().time()

    def _take(self) -> list[_Statement]:
        """Take the oldest command, and those that may share its transaction."""
        queue = self._queue
        while queue:
            first = queue.popleft()
            if first.done.done():
                continue
            if not first.order or not queue:
                return [first]
            jobs, rest = {first.order: first}, []
            for job in queue:
                is_same = job.order and job.order not in jobs and job.statement is first.statement
                if is_same and len(jobs) < _COMBINED and not job.done.done():
                    jobs[job.order] = job
                else:
                    rest.append(job)
            self._queue = deque(rest)
            return [jobs[order] for order in sorted(jobs)]
        return []

    def _answered(self, connection: PostgresConnection, results: list[Rows], error: Exception | None) -> None:
        _, jobs = self._busy.pop(connection)
        self._is_crowded = len(jobs) > 1
        if error is None:
            for job, rows in zip(jobs, results, strict=True):
                if not job.done.done():
                    job.done.set_result(rows)
            self._rest(connection)
        elif len(jobs) > 1 and not isinstance(error, Lost):
            # Nothing was applied. Which of them has failed is not known.
            for job in reversed(jobs):
                job.order = ""
                self._queue.appendleft(job)
            self._rest(connection)
        else:
            self._fail_jobs(connection, jobs, error)
        if self._queue:
            self._work()

    def _fail_jobs(self, connection: PostgresConnection, jobs: list[_Statement], error: Exception) -> None:
        """Give a failure to the senders, and the connection up if it cannot be used again."""
        cause = error.__cause__
        self._link.doubt(cause)
        then = REFUSALS.get(code_of(cause), (None,))[0]
        if then is Reaction.PREPARE:
            self._is_ready = False
        for job in jobs:
            _fail(job, error)
        if then in {Reaction.RECONNECT, Reaction.PREPARE}:
            connection.end()
        self._rest(connection)

    # Connections

    def _grow(self) -> None:
        """Open one more connection, if there may be one."""
        loop = asyncio.get_running_loop()
        most = self._most if not self._busy or loop.time() - self._full > FULL_SECONDS else 0
        if self._opening is None and len(self._busy) < most:
            self._opening = loop.create_task(self._open(), name="limpet postgres")

    async def _open(self) -> None:
        failed: Exception | None = None
        try:
            self._rest(await self._connected())
        except Exception as error:  # noqa: BLE001 - it goes to the senders of the commands
            failed = error
        finally:
            self._opening = None
        if failed is not None:
            self._link.doubt(failed.__cause__)
            if self._busy:
                # The connections that there are do the work.
                self._full = asyncio.get_running_loop().time()
            else:
                self._fail_all(failed)
        elif self._watch is None:
            self._look()
        self._work()

    async def _connected(self) -> PostgresConnection:
        connection = await self._link.connect()
        if not self._is_ready:
            try:
                async with asyncio.timeout(SILENCE):
                    await self._prepare(connection)
            except TimeoutError as error:
                raise Lost("the server does not answer") from error
            except BaseException:
                connection.end()
                raise
            self._is_ready = True
        return connection

    def _look(self) -> None:
        """Give up connections without an answer, and close those without work."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [one for one, (since, _) in self._busy.items() if now - since > SILENCE]:
            connection.end()
        for connection in [one for one, since in self._idle.items() if one.is_closed or now - since > IDLE]:
            del self._idle[connection]
            connection.end()
        self._watch = loop.call_later(1.0, self._look) if self._idle or self._busy else None

    def _fail_all(self, error: Exception) -> None:
        queue, self._queue = self._queue, deque()
        for job in queue:
            _fail(job, error)

    async def aclose(self) -> None:
        """Close all connections. Commands that wait fail."""
        self._is_closed = True
        if self._watch is not None:
            self._watch.cancel()
        # Before the wait, which may be cancelled.
        for connection in [*self._idle, *self._busy]:
            connection.end()
        self._idle.clear()
        self._fail_all(_closed())
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)


def _fail(job: _Statement, error: Exception) -> None:
    if not job.done.done():
        job.done.set_exception(error)


def _closed() -> StoreUnavailable:
    return StoreUnavailable("the store was closed")
