"""Statements on a bounded number of connections, each with a task of its own: a lane.

A command waits in a queue until a lane is free. A lane takes the oldest one. If it is a commit, the lane takes the other commits that wait too, and
sends them together: one round trip and one transaction for all. So the more commands come at once, the fewer transactions they need. The commits of a
batch lock their sessions in the order of their keys, as all batches do, so two batches never wait for each other. If one of them
fails, nothing of the batch is applied, and each is sent alone.

**Sent again.** Every command may be sent twice: a commit has a number, and the others find their work done. If the answer is lost, `run` sends it
again until `PATIENCE` is over, and so it does with a command that PostgreSQL does not execute now (`refusals.py`). Reaction the store is unavailable, and the
caller does not know whether the command was executed.

**A command that is cancelled** is not sent if it still waits; else its answer is ignored.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, repeat
from math import inf
from typing import Any, Final

from msgspec import Struct

from holdfast.errors import StoreError, StoreUnavailable
from holdfast.ports import Observer
from holdfast.stores.postgres.link import Link, PostgresConnection
from holdfast.stores.postgres.refusals import NO_CONNECTION, REFUSALS, Reaction, code_of
from holdfast.stores.shared.answers import Later, Lost

BACKOFFS: Final = (0.02, 0.1, 0.4)
"""Seconds before a command is sent again."""
PATIENCE: Final = 3.0
"""Seconds after which no command is sent again: a client is waiting."""
SILENCE: Final = 4.0
"""Seconds without an answer after which a connection is given up. A statement that waits for a lock is refused by the server before that."""
IDLE: Final = 60.0
"""Seconds after which a connection without work is closed."""
FULL_SECONDS: Final = 10.0
"""Seconds for which no further connection is tried after the server had none left."""
_COMBINED: Final = 16
"""Commits in one transaction."""
Rows = list[Sequence[Any]]


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
        self._preparing = asyncio.Lock()
        self._queue: deque[_Statement] = deque()
        self._idle: dict[asyncio.Future[bool], float] = {}
        """Lanes without work: what they wait for, and since when."""
        self._busy: dict[PostgresConnection, float] = {}
        """Connections that wait for an answer, and since when."""
        self._watch: asyncio.TimerHandle | None = None
        self._connections: set[PostgresConnection] = set()
        self._full = -inf
        """When the server last had no connection left."""
        self._lanes: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.round_trips: int = 0
        """Statements and batches that were sent."""

    def __repr__(self) -> str:
        return f"<Lanes {len(self._lanes)} connections, {len(self._queue)} commands wait>"

    async def run(self, statement: str, arguments: Sequence[Any], order: str = "") -> Rows:
        """Run a statement until it is answered; return its rows.

        Raises:
            StoreUnavailable: it was not answered in time, or is refused.
            StoreError: PostgreSQL cannot execute it.
        """
        clock = asyncio.get_running_loop().time
        begun = clock()
        pauses = chain(BACKOFFS, repeat(BACKOFFS[-1]))
        while True:
            try:
                return await self._once(statement, arguments, order)
            except (Lost, Later) as failure:
                failed = failure
            except StoreError as error:
                self._observer.note("store.refused", error=error.__cause__ or error)
                raise
            if clock() - begun > PATIENCE:
                break
            await asyncio.sleep(next(pauses))
        self._observer.note("store.unreachable", error=failed.__cause__ or failed)
        reason = str(failed) if isinstance(failed, Later) else ""
        raise StoreUnavailable(
            f"the store cannot be used now: {reason}" if reason else "the store cannot be reached"
        ) from failed

    async def _once(self, statement: str, arguments: Sequence[Any], order: str) -> Rows:
        if self._is_closed:
            raise _closed()
        job = _Statement(statement, arguments, asyncio.get_running_loop().create_future(), order)
        self._queue.append(job)
        self._wake()
        return await job.done

    def _wake(self) -> None:
        """Let a lane take the queue."""
        while self._idle:
            waiter, _ = self._idle.popitem()
            if not waiter.done():
                waiter.set_result(True)
                return
        loop = asyncio.get_running_loop()
        most = self._most if loop.time() - self._full > FULL_SECONDS else len(self._connections)
        if len(self._lanes) < max(1, most):
            lane = loop.create_task(self._lane(), name="holdfast postgres")
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)
            if self._watch is None:
                self._look()

    def _look(self) -> None:
        """Give up connections without an answer, and close lanes without work."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection, since in list(self._busy.items()):
            if now - since > SILENCE:
                connection.end()
        for waiter, since in list(self._idle.items()):
            if now - since > IDLE and not waiter.done():
                del self._idle[waiter]
                waiter.set_result(False)
        self._watch = loop.call_later(1.0, self._look) if self._lanes else None

    # A lane

    async def _lane(self) -> None:
        """Run commands on one connection."""
        connection: PostgresConnection | None = None
        jobs: list[_Statement] = []
        try:
            while await self._wait_for_work():
                jobs = self._take()
                if not jobs:
                    continue
                try:
                    if connection is None or connection.is_closed:
                        self._leave(connection)
                        connection = None
                        connection = await self._connected()
                    self._busy[connection] = asyncio.get_running_loop().time()
                    await self._send(connection, jobs)
                    del self._busy[connection]
                except Exception as error:  # noqa: BLE001 - it goes to the senders of the commands
                    if connection is None and self._connections and code_of(error.__cause__) == NO_CONNECTION:
                        # The lanes that have a connection do the work.
                        self._full = asyncio.get_running_loop().time()
                        self._queue.extendleft(reversed(jobs))
                        jobs = []
                        self._wake()
                        return
                    connection = self._failed(connection, jobs, error)
        finally:
            self._leave(connection)
            for job in jobs:
                self._fail(job, _closed())

    def _leave(self, connection: PostgresConnection | None) -> None:
        if connection is not None:
            self._busy.pop(connection, None)
            self._connections.discard(connection)
            connection.end()

    async def _wait_for_work(self) -> bool:
        """Wait for a command. False after a long time without one."""
        if self._queue:
            return True
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._idle[waiter] = loop.time()
        return await waiter

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

    async def _connected(self) -> PostgresConnection:
        connection = await self._link.connect()
        self._busy[connection] = asyncio.get_running_loop().time()
        try:
            if not self._is_ready:
                async with self._preparing:
                    if not self._is_ready:
                        await self._prepare(connection)
                        self._is_ready = True
        except BaseException:
            self._leave(connection)
            raise
        self._connections.add(connection)
        return connection

    async def _send(self, connection: PostgresConnection, jobs: list[_Statement]) -> None:
        self.round_trips += 1
        if len(jobs) == 1:
            [job] = jobs
            _answer(job, await connection.fetch(job.statement, job.arguments))
            return
        try:
            rows = await connection.fetch_each(jobs[0].statement, [job.arguments for job in jobs])
        except Lost:
            raise
        except (Later, StoreError):
            # Nothing was applied. Which of them has failed is not known.
            for job in jobs:
                await self._send_alone(connection, job)
            return
        for job, row in zip(jobs, rows, strict=True):
            _answer(job, [row])

    async def _send_alone(self, connection: PostgresConnection, job: _Statement) -> None:
        try:
            await self._send(connection, [job])
        except (Later, StoreError) as error:
            self._fail(job, error)

    def _failed(
        self, connection: PostgresConnection | None, jobs: list[_Statement], error: Exception
    ) -> PostgresConnection | None:
        """Give a failure to the senders; return the connection if it can be used again."""
        if connection is not None:
            self._busy.pop(connection, None)
        cause = error.__cause__
        self._link.doubt(cause)
        then = REFUSALS.get(code_of(cause), (None,))[0]
        if then is Reaction.PREPARE:
            self._is_ready = False
        for job in jobs:
            self._fail(job, error)
        if then in {Reaction.RECONNECT, Reaction.PREPARE} or isinstance(error, Lost):
            self._leave(connection)
            return None
        return connection

    def _fail(self, job: _Statement, error: Exception) -> None:
        if not job.done.done():
            job.done.set_exception(error)

    async def aclose(self) -> None:
        """Close all connections. Commands that wait fail."""
        self._is_closed = True
        if self._watch is not None:
            self._watch.cancel()
        lanes = list(self._lanes)
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
        while self._queue:
            self._fail(self._queue.popleft(), _closed())


def _closed() -> StoreUnavailable:
    return StoreUnavailable("the store was closed")


def _answer(job: _Statement, rows: Rows) -> None:
    if not job.done.done():
        job.done.set_result(rows)
