"""One connection that all commands of a process share.

Commands that are given in one turn of the event loop leave in one write; Redis replies in the order of the commands, so the
first reply belongs to the first future that waits. A pool of connections would cost a connection, two tasks and a timer
for each command; this costs a future, and keeps the commands in order.

* The writer is a task that exists while there is something to send. It takes all commands that were given since its last
  write.
* The reader is a task that lives as long as the connection. It resolves the futures in order.
* One timer watches for silence: if commands wait and no reply has come for `SILENCE` seconds, the connection is lost.

**A connection is lost as a whole.** Every command that has no reply fails with a connection error, which means "may have
been executed" (`refusals.py`), and commands that were not written yet fail with them. A reply that shows that another node is
the primary now (`spoils`) also ends the connection, because commands behind it would get the same answer forever. The next
command opens a new connection; those that come while it connects share the attempt and its outcome.

**A command that is cancelled** leaves its future behind: its reply still has to be counted, or all later replies would go
to the wrong commands.
"""

import asyncio
import contextlib
import math
from collections import deque
from typing import Any, Final

import hiredis
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.exceptions import BusyLoadingError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from holdfast.stores.redis.refusals import spoils

SILENCE: Final = 2.0
"""Seconds without any reply after which a connection is given up."""


class RedisPipeline:
    """Sends commands and returns their replies, over one connection that is made when it is needed."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._connection: AbstractConnection | None = None
        self._attempt: asyncio.Task[AbstractConnection] | None = None
        self._outgoing: list[bytes] = []
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._flusher: asyncio.Task[None] | None = None
        self._flushed: AbstractConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._losing: asyncio.Task[None] | None = None
        self._answered = 0
        self.sent: int = 0
        """Commands so far."""
        self.writes: int = 0
        """Writes to the socket so far. If each command waits for the one before, these are the round trips."""

    def __repr__(self) -> str:
        return f"<RedisPipeline {'up' if self._connection else 'down'}, {len(self._waiting)} waiting>"

    async def execute(self, *command: bytes | str | int) -> Any:
        """Send a command and return its reply.

        Raises:
            ResponseError: Redis refused it.
            ConnectionError: the connection is lost; the command may have been executed.
        """
        connection = self._connection or await self._connect()
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Any] = loop.create_future()
        self._outgoing.append(hiredis.pack_command(command))  # type: ignore[arg-type]
        self._waiting.append(reply)
        self.sent += 1
        if self._flusher is None or self._flushed is not connection:
            self._flushed = connection
            self._flusher = loop.create_task(self._flush(connection))
        if self._watch is None:
            self._watch = loop.call_later(SILENCE, self._look, self._answered)
        return await reply

    async def aclose(self) -> None:
        """Close the connection."""
        if self._attempt is not None:
            self._attempt.cancel()
        # Waits for the end of the connection: TLS needs a moment for it, and the loop may stop right after this.
        await self._lose(RedisConnectionError("the store was closed"), nowait=False)

    async def _connect(self) -> AbstractConnection:
        """Connect. Commands that come meanwhile wait for the same attempt and share its outcome."""
        if self._attempt is None:
            self._attempt = asyncio.get_running_loop().create_task(self._reached())
            self._attempt.add_done_callback(self._attempted)
        return await asyncio.shield(self._attempt)

    async def _reached(self) -> AbstractConnection:
        try:
            async with asyncio.timeout(SILENCE):
                found: AbstractConnection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        except TimeoutError as error:
            raise RedisConnectionError("Redis does not answer") from error
        self._connection = found
        self._reader = asyncio.get_running_loop().create_task(self._read(found))
        return found

    def _attempted(self, attempt: asyncio.Task[AbstractConnection]) -> None:
        self._attempt = None
        if not attempt.cancelled():
            attempt.exception()

    async def _flush(self, connection: AbstractConnection) -> None:
        try:
            while self._outgoing and connection is self._connection:
                data, self._outgoing = self._outgoing, []
                self.writes += 1
                await connection.send_packed_command(b"".join(data), check_health=False)
        except (RedisError, OSError) as error:
            await self._lose(error, connection)
        finally:
            if self._flusher is asyncio.current_task():
                self._flusher = None

    async def _read(self, connection: AbstractConnection) -> None:
        waiting = self._waiting
        try:
            while True:
                try:
                    reply = await connection.read_response(timeout=math.inf)
                except (ResponseError, BusyLoadingError) as error:
                    reply = error
                self._answered += 1
                future = waiting.popleft()
                if not isinstance(reply, Exception):
                    if not future.done():
                        future.set_result(reply)
                    continue
                if not future.done():
                    future.set_exception(reply)
                if spoils(reply):
                    # The next connection goes to the present primary, and the commands behind this one are sent again.
                    raise RedisConnectionError("another node does the work now") from reply
        except (RedisError, OSError, IndexError) as error:
            await self._lose(error, connection)

    def _look(self, answered: int) -> None:
        """End a connection on which commands wait and nothing has arrived since the last look."""
        self._watch = None
        if not self._waiting:
            return
        if answered == self._answered:
            silent = RedisConnectionError("Redis does not answer")
            self._losing = asyncio.get_running_loop().create_task(self._lose(silent))
        else:
            self._watch = asyncio.get_running_loop().call_later(SILENCE, self._look, self._answered)

    async def _lose(
        self, error: Exception, connection: AbstractConnection | None = None, *, nowait: bool = True
    ) -> None:
        if self._connection is None or (connection is not None and connection is not self._connection):
            return
        lost, self._connection = self._connection, None
        reader, self._reader = self._reader, None
        waiting, self._waiting = self._waiting, deque()
        self._outgoing = []
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        for future in waiting:
            if not future.done():
                future.set_exception(RedisConnectionError(str(error)))
        if reader is not None and reader is not asyncio.current_task():
            reader.cancel()
        with contextlib.suppress(RedisError, OSError):
            await lost.disconnect(nowait=nowait)
        await self._pool.release(lost)
