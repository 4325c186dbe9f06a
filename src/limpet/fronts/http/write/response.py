"""The response to one HTTP request, from its arrival to the last byte: one answer, or a stream of events.

It also notices that the client has disconnected.

A response begins undecided. The endpoint's mode and the first event decide its form:

    mode        the terminal message alone    another message     silence for `stream_after`
    ────────    ──────────────────────────    ────────────────    ──────────────────────────
    adaptive    one JSON body                 stream              stream
    sse         one event, in one write       stream              stream
    json        one JSON body                 not sent            keep waiting

A stream begins with the opening of its kind: events that can be resumed begin with an event id, others with their first
message. While it is silent it gets a comment each `keep_alive` seconds: proxies close connections that carry nothing.
A terminal message that is in a log is never alone: its client must get the event id, so it is written as a stream.

A call that has ended after one pass of the loop does not wait: `PostedCall` and `SessionlessCall` write its answer in
one step (`answer_message_nowait`), in the same form.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from msgspec import Struct

from limpet.auth import Principal
from limpet.config import ResponseMode, Times
from limpet.core.ledger import Account, Charge
from limpet.engine.delivery import Batch, Source, deliver
from limpet.engine.load import short_charge
from limpet.engine.session import event_id
from limpet.errors import LimpetError
from limpet.fronts.http.read.body import BadBody
from limpet.fronts.http.read.head import Head
from limpet.fronts.http.read.request import AT_ONCE, Channel, Gone, RawRequest
from limpet.fronts.http.write.answer import Answer, ready_answer, refusal_for
from limpet.wire import sse

_SSE_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
_READ_SECONDS: Final = 0.05
"""Seconds for the loop to read the end of a connection behind a request."""


def _nothing() -> None:
    """Do nothing when the client disconnects."""


class Refusals(Protocol):
    """The part of a front that refuses requests, and knows whose they are."""

    def refusal(self, error: LimpetError, head: Head) -> Answer:
        """Return the answer to a request that ended with this error."""

    def reported(self, answer: Answer, response: "WaitingResponse") -> Answer:
        """Report a refusal; return it, or the refusal that is sent instead."""

    def address(self, request: RawRequest) -> str:
        """Return the address of the client, as limits count it."""

    def account(self, request: RawRequest, principal: Principal | None) -> Account:
        """Return the account that the messages of a request are charged to."""


Opening = Callable[[Batch], bytes]
"""Returns the first bytes of a stream that can be resumed, given its first batch."""
Begin = Callable[[], Awaitable[object]]
"""Begins the stream of a source."""
Whole = Callable[[Batch], Answer]
"""Returns the answer for a terminal message that is sent alone."""


class ResponseForm:
    """The form of responses of an endpoint."""

    __slots__ = ("is_json", "keep_alive", "mode", "stall", "stream_after")

    def __init__(self, mode: ResponseMode, times: Times) -> None:
        self.mode: ResponseMode = mode
        self.is_json: bool = mode == "json"
        """A response can only be one JSON body."""
        self.stream_after: float | None = None if self.is_json else times.stream_after
        """Seconds of silence after which a response becomes a stream."""
        self.keep_alive: float | None = None if self.is_json else times.keep_alive
        """Seconds of silence after which a stream gets a comment."""
        self.stall: float = times.write_stall


UNDECIDED: Final = ResponseForm("json", Times())
"""The form of a response before `deliver`."""


class WaitingResponse(Struct, eq=False):
    """One response that is owed to a client. It answers once or streams, and knows when the client has disconnected."""

    request: RawRequest
    channel: Channel
    """Reads the body of the request, and writes the response."""
    _front: "Refusals | None" = None
    """The front that serves the request."""
    _cors: list[tuple[bytes, bytes]] | None = None
    _is_watched: bool = False
    begun: bool = False
    """The response has begun: no other answer can be sent."""
    principal: Principal | None = None
    """The principal of the request's token, after it was checked."""
    gone: bool = False
    is_half_closed: bool = False
    """It counts as gone because its client has closed its side, and may still read an answer."""
    is_doubtful: bool = False
    """The request was sent while this process could not run: its client may have left before it is served."""
    on_gone: Callable[[], object] | None = None
    unpaid: int = 0
    """The length of a short message that is not charged yet: it is when its answer takes longer than a pass of the
    loop."""
    _charge: Charge | None = None
    patience: float | None = None
    """Seconds of silence after which it becomes a stream, or gets a comment."""
    _form: ResponseForm = UNDECIDED
    _whole: Whole | None = None
    _opening: Opening | None = None
    _begin: Begin | None = None
    _is_stream: bool = False

    @property
    def address(self) -> str:
        return "" if self._front is None else self._front.address(self.request)

    @property
    def account(self) -> Account | None:
        """The account that its messages are charged to.

        A plain call never asks for it: 90 bytecodes and seven frames less where the session of a connection changes.
        """
        known = self.request.account
        if known is not None or self._front is None:
            return known
        return self._front.account(self.request, self.principal)

    # Whole answers

    def failed(self, error: LimpetError | BadBody | Gone) -> Answer | None:
        """Return the answer to a request that ended with this error.

        None: its client has an answer, or has disconnected.
        """
        if isinstance(error, BadBody):
            return error.answer
        # The clean-up after an answer may fail too; the answer stays.
        if self.begun or isinstance(error, Gone):
            return None
        return refusal_for(error) if self._front is None else self._front.refusal(error, self.request.head)

    def reported(self, answer: Answer) -> Answer:
        """Report an answer if it is a refusal; return the answer to send."""
        return answer if answer.audit is None or self._front is None else self._front.reported(answer, self)

    async def refuse(self, answer: Answer) -> None:
        """Report a refusal, and send it."""
        await self.answer(self.reported(answer))

    def pay(self) -> None:
        """Charge a short message whose answer takes time. The charge ends with this object, which its call keeps."""
        if self.unpaid and (account := self.request.account or self.account) is not None:
            self._charge = short_charge(account, self.unpaid)
            self.unpaid = 0

    async def conclude(self, work: Awaitable[Answer | None]) -> None:
        """Wait for the answer, and send it."""
        self.pay()
        try:
            try:
                answer = await work
            except (LimpetError, BadBody, Gone) as error:
                answer = self.failed(error)
            if answer is not None:
                await self.refuse(answer)
        finally:
            self.close()

    def allow_origin(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Add these headers to every answer: the browser's page may read it."""
        self._cors = headers

    def answer_message_nowait(self, message: bytes, mode: ResponseMode) -> bool:
        """Write a JSON-RPC message as a whole answer at once; False, with nothing written: use `answer`."""
        is_event = mode == "sse"
        body = sse.event(message) if is_event else message
        self.begun = self._cors is None and self.channel.answer_ok(body, is_event=is_event)
        return self.begun

    def answer_nowait(self, answer: Answer) -> bool:
        """Write a whole answer at once; False, with nothing written: use `answer`."""
        self.begun = self.channel.answer(answer.status, self._headers(answer), answer.body)
        return self.begun

    def _headers(self, answer: Answer) -> list[tuple[bytes, bytes]]:
        return [*answer.headers, *self._cors] if self._cors else answer.headers

    async def answer(self, answer: Answer) -> bool:
        """Send a whole answer; False if the client is known not to have taken it."""
        if not self.answer_nowait(answer):
            self.begun = True
            if len(answer.body) > AT_ONCE and not self._is_watched:
                # A host whose client has disconnected returns from a write in silence.
                self.watch(_nothing)
            try:
                await self.channel.send(answer.status, self._headers(answer), answer.body)
            except OSError:
                return False
        return not self.may_be_gone

    @property
    def may_be_gone(self) -> bool:
        """True if the client is gone, or has closed its side: its answer is kept for a repeat."""
        return self.gone or self.channel.may_be_gone()

    # A response that becomes one JSON body or a stream: a sink of the delivery loop (`engine/delivery.py`)

    async def deliver(
        self,
        source: Source,
        form: ResponseForm,
        *,
        whole: Whole | None = None,
        opening: Opening | None = None,
        begin: Begin | None = None,
        first: Batch | None = None,
        is_silent: bool = False,
    ) -> None:
        """Write the messages of a source, until the terminal message is written or the source is over.

        `opening`: the events have ids, from which a client can resume. `begin`: begins the stream of a source that has
        none yet.
        `first` is written before the source is asked. `is_silent`: `stream_after` has passed already.

        Raises:
            Gone: the client has not taken the terminal message, or takes no bytes.
        """
        self._form, self._whole, self._opening, self._begin = form, whole, opening, begin
        self.patience = form.stream_after
        try:
            if first is not None:
                await self.write(first)
            if is_silent and not source.check_end():
                await self.silence()
            await deliver(source, self)
            await self._end_stream()
        finally:
            # Break the reference cycles, so that reference counting frees the request.
            self._whole = self._opening = self._begin = None

    async def write(self, batch: Batch) -> None:
        """Answer as a whole, or write events. Returns for the terminal message when the client has taken it.

        Raises:
            Gone: the client has not taken it, or takes no bytes.
        """
        form = self._form
        if self._is_stream:
            await self._write(self._events(batch))
        elif batch.finished and (
            form.is_json
            or (len(batch.messages) == batch.ends and not (self._opening is not None and batch.positions))
        ):
            whole = self._whole
            answer = ready_answer(batch.messages[-1], form.mode) if whole is None else whole(batch)
            if not await self.answer(answer):
                raise Gone
        elif not form.is_json:
            opening = b"" if self._opening is None else self._opening(batch)
            await self._start_stream(opening + self._events(batch))
        if batch.finished:
            await self._end_stream()

    async def silence(self) -> None:
        """Become a stream, or write a comment."""
        if self._is_stream:
            await self._write(sse.KEEP_ALIVE)
        elif self._form.is_json:
            return
        elif self._begin is not None:
            # Its first batch opens the response.
            await self._begin()
        else:
            await self._start_stream(sse.KEEP_ALIVE)

    def _events(self, batch: Batch) -> bytes:
        if self._opening is None or not batch.positions:
            events = b"".join(map(sse.event, batch.messages))
        else:
            named = zip(batch.messages, batch.positions, strict=True)
            events = b"".join([sse.event(data, event_id(batch.stream, position)) for data, position in named])
        return events if batch.missed is None else sse.comment("gap {}-{}".format(*batch.missed)) + events

    async def _start_stream(self, first: bytes) -> None:
        """Begin an event stream.

        Proxies hold headers until a byte of the body arrives, so there is always a first one.
        """
        self.begun = self._is_stream = True
        self.patience = self._form.keep_alive
        headers = [*_SSE_HEADERS, *(self._cors or ())]
        await self._wait_for(lambda: self.channel.start(200, headers))
        await self._write(first)

    async def _write(self, chunk: bytes) -> None:
        """Write a part of the stream.

        Raises:
            Gone: the connection is gone, or has taken nothing for the time of a stall. Servers other than `limpet
                serve` do not report the taken bytes: there one write may take that time.
        """
        if self.gone or not self.channel.write_nowait(chunk):
            await self._wait_for(lambda: self.channel.write(chunk))

    async def _end_stream(self) -> None:
        """Complete the stream, if it is one.

        Servers wait here until the bytes before were written: the stall limit applies.

        Raises:
            Gone: as `_write`, or the client may be gone.
        """
        if self._is_stream:
            self._is_stream = False
            await self._wait_for(self.channel.end)
            if self.may_be_gone:
                raise Gone

    async def _wait_for(self, step: Callable[[], Awaitable[None]]) -> None:
        if self.gone:
            raise Gone
        channel = self.channel
        taken = channel.taken()
        while True:
            try:
                if channel.is_flowing():
                    return await step()
                async with asyncio.timeout(self._form.stall):
                    return await step()
            except OSError as error:
                # `limpet serve` waits before it writes, so an interrupted write can be repeated. A slow client
                # that has taken some bytes meanwhile is not stalled.
                before, taken = taken, channel.taken()
                if isinstance(error, TimeoutError) and _has_grown(before, taken) and not self.gone:
                    continue
                # The connection is lost with its buffered bytes.
                channel.abort()
                raise Gone from None

    # The connection

    def is_taken(self) -> bool | None:
        """True if the client's side has acknowledged all written bytes; None: it cannot be known."""
        return self.channel.is_taken()

    def abort(self) -> None:
        """Write nothing more. Close the connection and drop its buffered bytes, if the server allows it."""
        self.gone = True
        self.channel.abort()

    def watch(self, on_gone: Callable[[], object]) -> None:
        """Call `on_gone` when the client disconnects.

        Only for answers that take time: with an ASGI host it costs a task.
        """
        self.on_gone = on_gone
        if self.gone:
            on_gone()
        elif not self._is_watched:
            self._is_watched = True
            self.channel.watch(self._left)

    async def look(self) -> None:
        """Let the loop read all bytes that have arrived.

        Set `gone` if the client has closed the connection, or its side of it.

        Call it after `body`.
        """
        if not self._is_watched:
            self.watch(_nothing)
        await asyncio.sleep(_READ_SECONDS)
        channel = self.channel
        if not self.gone and channel.may_be_gone():
            self.is_half_closed = not channel.is_closing()
            self._left()

    def _left(self) -> None:
        self.gone = True
        if self.on_gone is not None:
            self.on_gone()

    def close(self) -> None:
        """Stop watching. This breaks the reference cycle of connection and reader."""
        self.on_gone = None
        if self._is_watched:
            self.channel.close()


def _has_grown(before: int | None, now: int | None) -> bool:
    """True if the client has taken bytes, or no write has to wait any more."""
    return before is not None and (now is None or now > before)
