"""A reader's pages as server-sent events on a connection."""

import asyncio

from holdfast.auth import Principal
from holdfast.core.stream import Page
from holdfast.engine.engine import Engine
from holdfast.engine.exchange import SessionExchange
from holdfast.engine.exchanges import Repeat
from holdfast.engine.reader import End, Reader
from holdfast.engine.session import event_id
from holdfast.errors import DuplicateId, SessionGone
from holdfast.fronts.http.connection import Connection, Gone
from holdfast.wire import sse
from holdfast.wire.jsonrpc import notification_message


class Streamer:
    """Pumps readers onto connections."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._times = engine.settings.times

    async def pump(
        self,
        reader: Reader,
        connection: Connection,
        principal: Principal | None = None,
        *,
        posted: bool = False,
    ) -> None:
        """Write a reader's stream as the whole response, until either ends; then give the place back."""
        self.bound(reader, principal)
        connection.watch(lambda: reader.stop(End.BROKE))
        try:
            await connection.start_stream(self.opening(reader, posted=posted), self._times.write_stall)
            await self.write_pages(reader, connection)
            await connection.end_stream(self._times.write_stall)
        except Gone:
            reader.stop(End.BROKE if connection.gone else End.STALLED)
        finally:
            # Reached without a verdict only when the server cancels the request: the connection is gone.
            reader.stop(End.BROKE)
            await self._engine.readers.detach(reader)

    def bound(self, reader: Reader, principal: Principal | None) -> None:
        """End the reader with its caller's token: who comes back authenticates again."""
        if principal is not None and principal.expires is not None:
            reader.expire_within(principal.expires - self._engine.clock.wall())

    async def keep_unread(self, exchange: SessionExchange, reader: Reader) -> None:
        """Keep the answer of an exchange for a repeat of its request, if writing it has failed."""
        if exchange.log_writer.terminal is not None and reader.end in {End.BROKE, End.STALLED}:
            await self._engine.readers.keep_answer(exchange, None)

    async def write_pages(self, reader: Reader, connection: Connection) -> None:
        """Write what the reader finds, and comments while it finds nothing."""
        reader.is_taken = connection.is_taken
        async for page in reader.pages():
            chunk = sse.KEEP_ALIVE if page is None else self._events(reader.stream, page)
            await connection.write(chunk, self._times.write_stall)

    def opening(self, reader: Reader, *, posted: bool = False) -> bytes:
        """Return the first bytes of a response; `posted`: it answers a POST, and its client has no event id yet.

        A client can resume only after an event with an id, so a request's stream begins with one. From
        2025-11-25 on that is an empty event. Clients of older revisions fail on it (TypeScript, Go), and
        some fail on an event of another type (Java). All of them accept a notification: the cancellation
        of a request that does not exist, which the specification tells receivers to ignore.
        """
        retry = round(self._engine.random.uniform(*self._times.retry) * 1_000)
        session, position = reader.session, event_id(reader.stream, reader.cursor)
        if session.revision.priming:
            return sse.priming(position, retry)
        if posted and session.lasting:
            return sse.priming(position, retry, _no_request(reader.stream))
        return sse.comment("open") + sse.retry(retry)

    @staticmethod
    def _events(stream: str, page: Page) -> bytes:
        parts = [sse.event(event.data, event_id(stream, event.position)) for event in page.events]
        if page.missed is not None:
            parts.insert(0, sse.comment(f"gap {page.missed[0]}-{page.missed[1]}"))
        return b"".join(parts)

    async def follow(self, repeat: Repeat, connection: Connection) -> Reader:
        """Attach to the log of a call that this POST repeats, however long its stream or the store lets us wait.

        Raises:
            Gone: the client left first.
        """
        looking = asyncio.ensure_future(self._engine.readers.repeat(repeat.session, repeat.stream))
        connection.watch(looking.cancel)
        try:
            return await looking
        except asyncio.CancelledError:
            if not looking.cancel() and not looking.cancelled() and looking.exception() is None:
                # It had just found its place.
                await self._engine.readers.give_back(looking.result())
            if not connection.gone:
                raise
            raise Gone from None

    async def last(self, reader: Reader, connection: Connection) -> bytes:
        """Wait for the stream's terminal message and return it, for an answer that is no stream.

        Raises:
            Gone: the connection broke first.
            DuplicateId: another repeat has taken this one's place.
            SessionGone: the session ended first.
        """
        connection.watch(lambda: reader.stop(End.BROKE))
        message = b""
        try:
            async for page in reader.pages():
                if page is not None and page.finished:
                    message = page.events[-1].data
        finally:
            reader.stop(End.BROKE)
            await self._engine.readers.detach(reader)
        if message:
            return message
        if reader.end is End.BROKE:
            raise Gone
        raise DuplicateId if reader.end is End.TAKEN_OVER else SessionGone


def _no_request(stream: str) -> bytes:
    """Return a notification without effect: no request of ours has the name of a stream as its id."""
    reason = "no such request: this event marks where the response can be resumed"
    return notification_message("notifications/cancelled", {"requestId": stream, "reason": reason})
