"""Streams of sessions, read from the store's log, as server-sent events on a connection."""

import asyncio
from typing import Final

from holdfast.auth import Principal
from holdfast.config import ResponseMode
from holdfast.engine.claims import Repeat
from holdfast.engine.delivery import Batch, deliver
from holdfast.engine.engine import Engine
from holdfast.engine.reader import End, Reader
from holdfast.engine.session import event_id
from holdfast.errors import DuplicateId, SessionGone
from holdfast.fronts.http.answer import json_answer
from holdfast.fronts.http.connection import Connection
from holdfast.fronts.http.request import Gone
from holdfast.fronts.http.response import Form, Response
from holdfast.wire import sse
from holdfast.wire.jsonrpc import notification_message


class Streamer:
    """Writes the streams of sessions to connections."""

    def __init__(self, engine: Engine, mode: ResponseMode) -> None:
        self._engine = engine
        self._times = engine.settings.times
        self.form: Form = Form(mode, self._times)

    async def pump(
        self,
        reader: Reader,
        connection: Connection,
        principal: Principal | None = None,
        *,
        posted: bool = False,
    ) -> None:
        """Write a reader's stream as the whole response, until either ends; then give the reader's place back."""
        self.bind(reader, connection, principal)
        connection.watch(lambda: reader.stop(End.BROKE))

        async def opening() -> bytes:
            return self.opening(reader, posted=posted)

        response = Response(connection, self.form, opening=opening, stream=reader.stream)
        try:
            await response.begin()
            await deliver(reader, response)
            await response.end()
        except Gone:
            reader.stop(End.BROKE if connection.may_be_gone else End.STALLED)
        finally:
            await self._engine.readers.detach(reader)

    async def write(self, reader: Reader, connection: Connection, principal: Principal | None) -> None:
        """Write a reader's stream to a response that has begun, and that other streams share."""
        self.bind(reader, connection, principal)
        await deliver(reader, Response(connection, self.form, stream=reader.stream, streaming=True))

    def bind(self, reader: Reader, connection: Connection, principal: Principal | None) -> None:
        """Connect a reader with its connection. It ends when the caller's token expires: the client authenticates again."""
        reader.is_taken = connection.is_taken
        if principal is not None and principal.expires is not None:
            reader.expire_within(principal.expires - self._engine.clock.wall())

    def opening(self, reader: Reader, *, posted: bool = False) -> bytes:
        """Return the first bytes of a response; `posted`: it answers a POST, and its client has no event id yet.

        A client can resume only after an event with an id, so a request's stream begins with one. From
        2025-11-25 on that is an empty event. Clients of older revisions fail on it (TypeScript, Go), and so do
        some of 2025-11-25 (`Quirks.no_priming`); some fail on an event of another type (Java). All of them accept a notification: the cancellation
        of a request that does not exist, which the specification tells receivers to ignore.
        """
        retry = round(self._engine.random.uniform(*self._times.retry) * 1_000)
        session, position = reader.session, event_id(reader.stream, reader.cursor)
        if session.revision.priming:
            return sse.priming(position, retry)
        if posted and session.lasting:
            return sse.priming(position, retry, _no_request(reader.stream))
        return sse.comment("open") + sse.retry(retry)

    async def follow(self, repeat: Repeat, connection: Connection) -> Reader:
        """Attach to the log of the call that this POST repeats. Waits until its stream begins and the store can be reached.

        Raises:
            Gone: the client left first.
        """
        looking = asyncio.ensure_future(self._engine.readers.repeat(repeat.session, repeat.stream, repeat.id))
        connection.watch(looking.cancel)
        try:
            return await looking
        except asyncio.CancelledError:
            if not looking.cancel() and not looking.cancelled() and looking.exception() is None:
                # It was attached in the same moment.
                await self._engine.readers.detach(looking.result())
            if not connection.gone:
                raise
            raise Gone from None

    async def answer_last(self, reader: Reader, connection: Connection) -> None:
        """Wait for the stream's terminal message, answer with it as JSON, and give the reader's place back.

        Raises:
            Gone, DuplicateId, SessionGone: as `last`.
        """
        try:
            batch = await self.last(reader, connection)
            if await connection.answer(json_answer(batch.messages[-1])):
                reader.written(batch)
        finally:
            await self._engine.readers.detach(reader)

    async def last(self, reader: Reader, connection: Connection) -> Batch:
        """Wait for the batch with the stream's terminal message, for a JSON answer.

        The reader stays before this batch until the caller reports it as written: an answer that was not written stays kept.

        Raises:
            Gone: the connection broke first.
            DuplicateId: another repeat has taken the place of this one.
            SessionGone: the session ended first.
        """
        connection.watch(lambda: reader.stop(End.BROKE))
        try:
            await deliver(reader, _Last())
        except _Found as found:
            return found.batch
        if reader.end is End.BROKE:
            raise Gone
        raise DuplicateId if reader.end is End.TAKEN_OVER else SessionGone


class _Found(Exception):
    """The batch with the terminal message is there. It is not written yet."""

    def __init__(self, batch: Batch) -> None:
        super().__init__()
        self.batch = batch


class _Last:
    """A sink that drops all messages before the batch with the terminal message, and raises `_Found` with this batch."""

    patience: Final = None

    async def write(self, batch: Batch) -> None:
        if batch.finished:
            raise _Found(batch)

    async def silence(self) -> None:
        """Keep waiting."""


def _no_request(stream: str) -> bytes:
    """Return a notification without effect: no request has the name of a stream as its id."""
    reason = "no such request: this event marks where the response can be resumed"
    return notification_message("notifications/cancelled", {"requestId": stream, "reason": reason})
