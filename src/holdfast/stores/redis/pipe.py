"""One connection shared by everybody: what is said in one turn of the loop leaves in one write, answers come in order.

A pool would cost a connection, two tasks and a timer per command; this costs a future.
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
"""A command that has no reply after this long is lost with its connection."""


class Pipe:
    """Commands in, replies out, over one connection that is made when needed."""

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
        """Commands, for those who count."""
        self.writes: int = 0
        """Writes to the socket: round trips, where each waits for the one before."""

    def __repr__(self) -> str:
        return f"<Pipe {'up' if self._connection else 'down'}, {len(self._waiting)} waiting>"

    async def execute(self, *command: bytes | str | int) -> Any:
        """Send a command and return its reply.

        Raises:
            ResponseError: Redis refused it.
            ConnectionError: the connection is lost, and with it the knowledge whether it was executed.
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
        """Let go of the connection."""
        if self._attempt is not None:
            self._attempt.cancel()
        # Not in a hurry: TLS needs a moment for its end, and the loop may not run any longer than this.
        await self._lose(RedisConnectionError("the store was closed"), nowait=False)

    async def _connect(self) -> AbstractConnection:
        """Connect; whoever comes meanwhile waits for the same attempt and shares its outcome."""
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
                    # The commands that wait behind it may be sent again, to the node that is found by connecting anew.
                    raise RedisConnectionError("another node does the work now") from reply
        except (RedisError, OSError, IndexError) as error:
            await self._lose(error, connection)

    def _look(self, answered: int) -> None:
        """End a connection that has said nothing for too long while somebody waits."""
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
