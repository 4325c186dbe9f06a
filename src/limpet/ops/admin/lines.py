"""Messages of a parent process to its workers (`engine/messages.py`).

Each worker has a line to the parent: a socket pair.

The kind of a message is the name of a method of `FleetSource`, its body has the arguments. A message is a line of JSON,
and several may wait for their replies. When a worker stops normally, it sends its metrics once more, as a reply without
a name, so that none of its counts are lost.

Both ends are processes of one parent and one release, on a socket that has no name: nothing else can write to it.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from limpet.engine.messages import FAILED, REPLY, Message, Replies, decode_message
from limpet.errors import LimpetError
from limpet.ops.admin.surface import FleetSource
from limpet.ops.metrics.samples import Sample
from limpet.ops.ring import Happened
from limpet.ops.views import FleetState, ShownSession

ANSWERS: Final[dict[str, Any]] = {
    "state": FleetState,
    "session": tuple[ShownSession | None, list[Happened]],
    "find": list[Happened],
    "close_session": bool,
    "cancel_call": bool,
    "metrics": list[Sample],
}
"""The kinds of messages: the methods of `FleetSource`, and the types of their results."""
_LAST_SECONDS: Final = 1.0
"""How long the end of a worker waits for its last metrics."""
_LONGEST: Final = 32 * 1024 * 1024
"""Bytes of a message. A state has one page of sessions and a bounded number of calls and events, so it is far below
this."""


class WorkerFailed(LimpetError):
    """A worker has answered with an error, or its line is closed."""


# In the worker


@contextlib.asynccontextmanager
async def answering(source: FleetSource, line: socket.socket) -> AsyncIterator[None]:
    """Answer the parent's questions while the block runs, then send the last metrics."""
    reader, writer = await asyncio.open_unix_connection(sock=line, limit=_LONGEST)
    answering = asyncio.get_running_loop().create_task(_answer_all(source, reader, writer))
    try:
        yield
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                await _answer(source, Message.of("metrics", "", ()), writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _answer_all(
    source: FleetSource, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    async with asyncio.TaskGroup() as tasks:
        while (asked := await _read(reader)) is not None:
            tasks.create_task(_answer(source, asked, writer))


async def _answer(source: FleetSource, asked: Message, writer: asyncio.StreamWriter) -> None:
    try:
        value = await getattr(source, asked.kind)(*msgspec.json.decode(asked.body))
        reply = Message.of(REPLY, asked.name, value)
    except Exception as error:  # noqa: BLE001 - the parent reports it to the operator
        reply = Message.of(FAILED, asked.name, f"{type(error).__name__}: {error}")
    with contextlib.suppress(OSError):
        _write(writer, reply)


# In the parent


class Line:
    """The parent's connection to one worker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._replies = Replies()
        self._sent = 0
        self.is_ready: bool = False
        """The worker serves, so it answers."""
        self.samples: list[Sample] = []
        """The last metrics that the worker has sent."""
        self.ended: asyncio.Task[None] = asyncio.get_running_loop().create_task(self._receive(reader))
        """Done when the worker has closed the socket, and everything from it was read."""

    async def ask(self, method: str, *arguments: str | int) -> Any:
        """Return the worker's answer. No time limit: the caller has one.

        Raises:
            WorkerFailed: the worker answered with an error, or it has ended.
        """
        self._sent += 1
        asked = Message.of(method, str(self._sent), arguments)
        with self._replies.expected(asked.name) as waiter:
            if not self.ended.done():
                with contextlib.suppress(OSError):
                    _write(self._writer, asked)
            reply = None if self.ended.done() else await waiter.reply()
        if reply is None:
            raise WorkerFailed("the worker has ended")
        if reply.kind == FAILED:
            raise WorkerFailed(msgspec.json.decode(reply.body, type=str))
        value = msgspec.json.decode(reply.body, type=ANSWERS[method])
        if method == "metrics":
            self.samples = value
        return value

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        try:
            while (reply := await _read(reader)) is not None:
                if reply.name:
                    self._replies.take(reply.name, reply)
                elif reply.kind == REPLY:
                    self.samples = msgspec.json.decode(reply.body, type=list[Sample])
        finally:
            self._replies.close()
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()


async def opened_line(end: socket.socket) -> Line:
    """Return the line over the parent's end of a socket pair."""
    return Line(*await asyncio.open_unix_connection(sock=end, limit=_LONGEST))


def _write(writer: asyncio.StreamWriter, message: Message) -> None:
    writer.write(msgspec.json.encode(message) + b"\n")


async def _read(reader: asyncio.StreamReader) -> Message | None:
    """Return the next message; None if the other end is closed, or sends something else."""
    try:
        line = await reader.readline()
        return decode_message(line) if line.endswith(b"\n") else None
    except (ValueError, OSError):
        return None
