"""Streams of sessions, read from the store's log, as server-sent events on a connection."""

import asyncio

from limpet.auth import Principal
from limpet.config import ResponseMode
from limpet.engine.claims import Repeat
from limpet.engine.delivery import Batch
from limpet.engine.engine import Engine
from limpet.engine.reader import End, Reader
from limpet.engine.session import event_id
from limpet.errors import DuplicateId, SessionGone
from limpet.fronts.http.read.request import Gone
from limpet.fronts.http.write.response import ResponseForm, WaitingResponse
from limpet.wire import sse
from limpet.wire.jsonrpc import notification_message


class Streamer:
    """Writes the streams of sessions to connections."""

    def __init__(self, engine: Engine, mode: ResponseMode) -> None:
        self._engine = engine
        self._times = engine.settings.times
        self.form: ResponseForm = ResponseForm(mode, self._times)

    async def pump(
        self,
        reader: Reader,
        response: WaitingResponse,
        principal: Principal | None = None,
        *,
        posted: bool = False,
    ) -> None:
        """Write a reader's stream as the whole response, until either ends; then give the reader's place back.

        Raises:
            DuplicateId: no byte was written, because another repeat has taken the place of this one.
            SessionGone: no byte was written, because the session ended first.
        """
        response.watch(lambda: reader.stop(End.BROKE))

        def opening(_batch: Batch) -> bytes:
            return self.opening(reader, posted=posted)

        self.bind(reader, response, principal)
        first = None if posted and self.form.is_json else Batch(())
        try:
            await response.deliver(reader, self.form, opening=opening, first=first)
        except Gone:
            reader.stop(End.BROKE if response.may_be_gone else End.STALLED)
        finally:
            await self._engine.readers.detach(reader)
        if not (response.begun or response.gone):
            raise DuplicateId if reader.end is End.TAKEN_OVER else SessionGone

    def bind(self, reader: Reader, response: WaitingResponse, principal: Principal | None) -> None:
        """Connect a reader with its connection.

        It ends when the caller's token expires: the client authenticates again.
        """
        reader.is_taken = response.is_taken
        if principal is not None and principal.expires is not None:
            reader.expire_within(principal.expires - self._engine.clock.wall())

    def opening(self, reader: Reader, *, posted: bool = False) -> bytes:
        """Return the first bytes of a response; `posted`: it answers a POST, and its client has no event id yet.

        A client can resume only after an event with an id, so a request's stream begins with one. From
        2025-11-25 on that is an empty event. Clients of older revisions fail on it (TypeScript, Go), and so do
        some of 2025-11-25 (`Quirks.no_priming`); some fail on an event of another type (Java). All of them accept a
        notification: the cancellation of a request that does not exist, which the specification tells receivers to
        ignore.
        """
        retry = round(self._engine.random.uniform(*self._times.retry) * 1_000)
        session, position = reader.session, event_id(reader.stream, reader.cursor)
        if session.revision.priming:
            return sse.priming(position, retry)
        if posted and session.lasting:
            return sse.priming(position, retry, _no_request(reader.stream))
        return sse.comment("open") + sse.retry(retry)

    async def follow(self, repeat: Repeat, response: WaitingResponse) -> Reader:
        """Attach to the log of the call that this POST repeats.

        Waits until its stream begins and the store can be reached.

        Raises:
            Gone: the client left first.
        """
        looking = asyncio.ensure_future(self._engine.readers.repeat(repeat.session, repeat.stream, repeat.id))
        response.watch(looking.cancel)
        try:
            return await looking
        except asyncio.CancelledError:
            if not looking.cancel() and not looking.cancelled() and looking.exception() is None:
                # It was attached in the same moment.
                await self._engine.readers.detach(looking.result())
            if not response.gone:
                raise
            raise Gone from None


def _no_request(stream: str) -> bytes:
    """Return a notification without effect: no request has the name of a stream as its id."""
    reason = "no such request: this event marks where the response can be resumed"
    return notification_message("notifications/cancelled", {"requestId": stream, "reason": reason})
