"""One connection that all commands of a process share.

A command leaves at once if no other one waits for its reply; those that come after it in the same pass of the loop
leave together in one write. Redis replies in the order of the commands, so the first reply belongs to the first future
that waits. A pool of connections would cost a connection, two tasks and a timer for each command; this costs a future,
and keeps the commands in order.

* The library connects: TLS, password, database. After that the pipeline takes the place of the library's streams
  (`_Replies`): a reply resolves its future in the turn in which it arrives, and no task stands in between.
* One timer watches for silence: if commands wait and no reply has come for `SILENCE` seconds, the connection is lost.

**A connection is lost as a whole.** Every command that has no reply fails with a connection error, which means "may
have been executed" (`refusals.py`), and commands that were not written yet fail with them. A reply that shows that
another node is the primary now (`spoils`) also ends the connection, because commands behind it would get the same
answer forever. The next command opens a new connection; those that come while it connects share the attempt and its
outcome. No connection is used a second time, and what still arrives on one that was given up is dropped
(`_Replies.is_left`): it would be taken for the reply to another command.

**A command that is cancelled** leaves its future behind: its reply still has to be counted, or all later replies would
go to the wrong commands.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import hiredis
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.exceptions import BusyLoadingError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from typing_extensions import override

from limpet.stores.redis.refusals import spoils

SILENCE: Final = 2.0
"""Seconds without any reply after which a connection is given up."""
_MORE: Final = object()
"""Instead of a reply: it has not arrived as a whole."""
_PUSHED: Final[type] = getattr(hiredis, "PushNotification", type(None))
"""A message of Redis that is no reply."""


class _Replies(asyncio.Protocol):
    """Receives what Redis sends on one connection, in place of the library's streams."""

    def __init__(
        self,
        connection: Any,
        on_reply: Callable[[Any], bool],
        on_lost: Callable[[AbstractConnection, Exception], None],
    ) -> None:
        self._connection = connection
        self._on_reply = on_reply
        self._on_lost = on_lost
        self.is_left: bool = False
        """The connection was given up."""
        self._parser = hiredis.Reader(
            protocolError=RedisConnectionError,
            replyError=connection._parser.parse_error,
            notEnoughData=_MORE,
        )
        self.transport: asyncio.WriteTransport = connection._writer.transport
        self._before: asyncio.BaseProtocol = self.transport.get_protocol()
        self.transport.set_protocol(self)

    @override
    def data_received(self, data: bytes) -> None:
        if self.is_left:
            return
        parser = self._parser
        try:
            parser.feed(data)
            while (reply := parser.gets()) is not _MORE:
                if type(reply) is not _PUSHED and not self._on_reply(reply):
                    # The next connection goes to the present primary, and the commands behind this one are sent again.
                    raise RedisConnectionError("another node does the work now")
        except (RedisError, IndexError) as error:
            self._on_lost(self._connection, error)

    @override
    def eof_received(self) -> None:
        self._on_lost(self._connection, RedisConnectionError("Redis has closed the connection"))

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._before.connection_lost(exc)
        self._on_lost(self._connection, exc or RedisConnectionError("the connection was closed"))


class RedisPipeline:
    """Sends commands and returns their replies, over one connection that is made when it is needed."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._connection: AbstractConnection | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._replies: _Replies | None = None
        self._attempt: asyncio.Task[AbstractConnection] | None = None
        self._outgoing: list[bytes] = []
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._answered = 0
        self.sent: int = 0
        """Commands so far."""
        self.writes: int = 0
        """Writes to the socket so far. If each command waits for the one before, these are the round trips."""

    def __repr__(self) -> str:
        return f"<RedisPipeline {'up' if self._connection else 'down'}, {len(self._waiting)} waiting>"

    def execute(self, *command: bytes | str | int) -> Awaitable[Any]:
        """Send a command and return its reply.

        Raises:
            ResponseError: Redis refused it.
            ConnectionError: the connection is lost; the command may have been executed.
        """
        transport = self._transport
        if transport is None:
            return self._connected(command)
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Any] = loop.create_future()
        packed = hiredis.pack_command(command)  # type: ignore[arg-type]
        self.sent += 1
        if not self._waiting:
            self.writes += 1
            transport.write(packed)
        else:
            if not self._outgoing:
                loop.call_soon(self._flush)
            self._outgoing.append(packed)
        self._waiting.append(reply)
        if self._watch is None:
            self._watch = loop.call_later(SILENCE, self._look, self._answered)
        return reply

    async def _connected(self, command: tuple[bytes | str | int, ...]) -> Any:
        await self._connect()
        if self._transport is None:
            raise RedisConnectionError("the connection was lost at once")
        return await self.execute(*command)

    async def aclose(self) -> None:
        """Close the connection."""
        if self._attempt is not None:
            self._attempt.cancel()
        # Waits for the end of the connection: TLS needs a moment for it, and the loop may stop right after this.
        lost = self._lose(RedisConnectionError("the store was closed"))
        if lost is not None:
            await self._disconnect(lost, nowait=False)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _connect(self) -> AbstractConnection:
        """Connect. Commands that come meanwhile wait for the same attempt and share its outcome."""
        if self._attempt is None:
            self._attempt = asyncio.get_running_loop().create_task(self._reached())
            self._attempt.add_done_callback(self._attempted)
        return await asyncio.shield(self._attempt)

    async def _reached(self) -> AbstractConnection:
        # Not from the pool: that would give out a connection again that was given up.
        found: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            async with asyncio.timeout(SILENCE):
                await found.connect()  # type: ignore[no-untyped-call]
        except BaseException as error:
            await self._disconnect(found)
            if isinstance(error, TimeoutError):
                raise RedisConnectionError("Redis does not answer") from error
            raise
        self._connection = found
        self._replies = _Replies(found, self._take, self._lost)
        self._transport = self._replies.transport
        return found

    def _attempted(self, attempt: asyncio.Task[AbstractConnection]) -> None:
        self._attempt = None
        if not attempt.cancelled():
            attempt.exception()

    def _flush(self) -> None:
        data, self._outgoing = self._outgoing, []
        if data and self._transport is not None:
            self.writes += 1
            self._transport.write(b"".join(data))

    def _take(self, reply: Any) -> bool:
        """Give a reply to the command that waits for it. False if the connection must not be used again."""
        is_error = isinstance(reply, Exception)
        if is_error and isinstance(reply, RedisConnectionError) and not isinstance(reply, BusyLoadingError):
            raise reply
        self._answered += 1
        future = self._waiting.popleft()
        if not future.done():
            (future.set_exception if is_error else future.set_result)(reply)
        return not is_error or not spoils(reply)

    def _look(self, answered: int) -> None:
        """End a connection on which commands wait and nothing has arrived since the last look."""
        self._watch = None
        if not self._waiting:
            return
        if answered == self._answered:
            if self._connection is not None:
                self._lost(self._connection, RedisConnectionError("Redis does not answer"))
        else:
            self._watch = asyncio.get_running_loop().call_later(SILENCE, self._look, self._answered)

    def _lost(self, connection: AbstractConnection, error: Exception) -> None:
        """Leave a connection, if it is still in use."""
        if connection is self._connection and (lost := self._lose(error)) is not None:
            task = asyncio.get_running_loop().create_task(self._disconnect(lost))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _lose(self, error: Exception) -> AbstractConnection | None:
        """Let all commands fail that have no reply; return the connection, which has to be closed."""
        lost, self._connection, self._transport = self._connection, None, None
        if self._replies is not None:
            self._replies.is_left = True
        waiting, self._waiting = self._waiting, deque()
        self._outgoing = []
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        for future in waiting:
            if not future.done():
                future.set_exception(RedisConnectionError(str(error)))
        return lost

    async def _disconnect(self, lost: AbstractConnection, *, nowait: bool = True) -> None:
        with contextlib.suppress(RedisError, OSError):
            await lost.disconnect(nowait=nowait)
