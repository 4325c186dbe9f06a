"""Questions of a parent process to its workers. Each worker has a line to the parent: a socket pair.

A question is the name of a method of `Source` with its arguments; a reply is the value, or the text of an error. Both
are frames of msgpack behind their length. Several questions may wait for replies on a line; a reply has the number of
its question. When a worker stops normally, it sends its metrics once more, with the number 0, so that none of its
counts are lost.

Both ends are processes of one parent and one release, on a socket that has no name: nothing else can write to it.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from holdfast.errors import HoldfastError
from holdfast.ops.admin.surface import Source
from holdfast.ops.metrics.samples import Sample
from holdfast.ops.ring import Happened
from holdfast.ops.schema import FleetState, SessionView

ANSWERS: Final[dict[str, Any]] = {
    "state": FleetState,
    "session": tuple[SessionView | None, list[Happened]],
    "find": list[Happened],
    "close_session": bool,
    "cancel_call": bool,
    "metrics": list[Sample],
}
"""The methods of `Source`, and the types of their results."""
LAST: Final = 0
"""The number of the last metrics of a worker."""
_LAST_SECONDS: Final = 1.0
"""How long the end of a worker waits for them."""
_SIZE: Final = 4
_LONGEST: Final = 32 * 1024 * 1024
"""Bytes of a frame. A state has one page of sessions and a bounded number of calls and events, so it is far below this."""

_NOTHING: Final = Raw(msgspec.msgpack.encode(None))


class _Question(Struct, frozen=True, array_like=True):
    number: int
    method: str
    arguments: tuple[str | int, ...]


class _Reply(Struct, frozen=True, array_like=True):
    number: int
    value: Raw
    error: str = ""


class WorkerFailed(HoldfastError):
    """A worker has answered with an error, or its line is closed."""


# In the worker


@contextlib.asynccontextmanager
async def answering(source: Source, line: socket.socket) -> AsyncIterator[None]:
    """Answer the parent's questions while the block runs, then send the last metrics."""
    reader, writer = await asyncio.open_unix_connection(sock=line)
    answering = asyncio.get_running_loop().create_task(_answer_all(source, reader, writer))
    try:
        yield
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        await _close(source, writer)


async def _close(source: Source, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LAST_SECONDS):
            _write(writer, await _reply(source, _Question(LAST, "metrics", ())))
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _answer_all(source: Source, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async with asyncio.TaskGroup() as tasks:
        while (frame := await _read(reader)) is not None:
            tasks.create_task(_answer(source, msgspec.msgpack.decode(frame, type=_Question), writer))


async def _answer(source: Source, question: _Question, writer: asyncio.StreamWriter) -> None:
    reply = await _reply(source, question)
    with contextlib.suppress(OSError):
        _write(writer, reply)


async def _reply(source: Source, question: _Question) -> _Reply:
    try:
        value = msgspec.msgpack.encode(await getattr(source, question.method)(*question.arguments))
    except Exception as error:  # noqa: BLE001 - the parent reports it to the operator
        return _Reply(question.number, _NOTHING, f"{type(error).__name__}: {error}")
    return _Reply(question.number, Raw(value))


# In the parent


class Line:
    """The parent's connection to one worker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[_Reply]] = {}
        self._next = LAST + 1
        self.is_ready: bool = False
        """The worker serves, so it answers."""
        self.samples: list[Sample] = []
        """The last metrics that the worker has sent."""
        self.ended: asyncio.Task[None] = asyncio.get_running_loop().create_task(self._receive(reader))
        """Done when the worker has closed the socket, and everything from it was read."""

    def __repr__(self) -> str:
        return f"<Line {len(self._waiting)} questions{'' if self.is_ready else ', not ready'}>"

    async def ask(self, method: str, *arguments: str | int) -> Any:
        """Return the worker's answer. No time limit: the caller has one.

        Raises:
            WorkerFailed: the worker answered with an error, or it has ended.
        """
        if self.ended.done():
            raise WorkerFailed("the worker has ended")
        number, self._next = self._next, self._next + 1
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            _write(self._writer, _Question(number, method, arguments))
            reply = await waiting
        except OSError:
            raise WorkerFailed("the worker has ended") from None
        finally:
            self._waiting.pop(number, None)
        if reply.error:
            raise WorkerFailed(reply.error)
        value = msgspec.msgpack.decode(reply.value, type=ANSWERS[method])
        if method == "metrics":
            self.samples = value
        return value

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        try:
            while (frame := await _read(reader)) is not None:
                reply = msgspec.msgpack.decode(frame, type=_Reply)
                waiting = self._waiting.get(reply.number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(reply)
                elif reply.number == LAST and not reply.error:
                    self.samples = msgspec.msgpack.decode(reply.value, type=list[Sample])
        finally:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(WorkerFailed("the worker has ended"))
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()


async def opened_line(end: socket.socket) -> Line:
    """Return the line over the parent's end of a socket pair."""
    return Line(*await asyncio.open_unix_connection(sock=end))


# Frames


def _write(writer: asyncio.StreamWriter, message: Struct) -> None:
    frame = msgspec.msgpack.encode(message)
    writer.write(len(frame).to_bytes(_SIZE, "big") + frame)


async def _read(reader: asyncio.StreamReader) -> bytes | None:
    """Return the next frame; None if the other end is closed, or sends something else."""
    try:
        size = int.from_bytes(await reader.readexactly(_SIZE), "big")
        return await reader.readexactly(size) if size <= _LONGEST else None
    except (asyncio.IncompleteReadError, OSError):
        return None
