"""One HTTP request and its response: reading the body, answering, streaming, and noticing that the client has disconnected."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from msgspec import Struct

from holdfast.auth import Principal
from holdfast.config import ResponseMode
from holdfast.core.ledger import Charge
from holdfast.engine.load import short_charge
from holdfast.errors import HoldfastError
from holdfast.fronts.http.answer import Answer, refusal_for, refuse, too_large
from holdfast.fronts.http.head import Head
from holdfast.fronts.http.request import AT_ONCE, Channel, Gone, RawRequest
from holdfast.wire import sse

_SSE_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


_OVERDUE: Final = 0.5
"""A timer that is late by so many seconds shows that this process could not run."""
AWAKE: Final = 1.0
"""Seconds to read the bytes that arrived while this process could not run."""


_READ_SECONDS: Final = 0.05
"""Seconds for the loop to read the end of a connection behind a request."""


def _nothing() -> None:
    """Do nothing when the client disconnects."""


class Refusals(Protocol):
    """The part of a front that refuses requests."""

    def refusal(self, error: HoldfastError, head: Head) -> Answer:
        """Return the answer to a request that ended with this error."""
        ...

    def reported(self, answer: Answer, connection: "Connection") -> Answer:
        """Report a refusal; return it, or the refusal that is sent instead."""
        ...

    def address(self, request: RawRequest) -> str:
        """Return the address of the client, as limits count it."""
        ...


class BadBody(Exception):
    """The body cannot be read; `answer` is the refusal."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


class Connection(Struct, eq=False):
    """Reads the body once, answers once or streams, and knows when the client has disconnected."""

    request: RawRequest
    _channel: Channel
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
    """The length of a short message that is not charged yet: it is when its answer takes longer than a turn of the loop."""
    _charge: Charge | None = None

    @property
    def address(self) -> str:
        """The address of the client, as limits count it."""
        return "" if self._front is None else self._front.address(self.request)

    # Serving

    def failed(self, error: HoldfastError | BadBody | Gone) -> Answer | None:
        """Return the answer to a request that ended with this error; None: its client has an answer, or has disconnected."""
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
        if self.unpaid and self.request.account is not None:
            self._charge = short_charge(self.request.account, self.unpaid)
            self.unpaid = 0

    async def conclude(self, work: Awaitable[Answer | None]) -> None:
        """Wait for the answer, and send it."""
        self.pay()
        try:
            try:
                answer = await work
            except (HoldfastError, BadBody, Gone) as error:
                answer = self.failed(error)
            if answer is not None:
                await self.refuse(answer)
        finally:
            self.close()

    def allow_origin(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Add these headers to every answer: the browser's page may read it."""
        self._cors = headers

    def whole_body(self, limit: int) -> bytes | None:
        """Return the request's body if all of it has arrived; None: wait for it with `body`.

        Raises:
            BadBody: it is too large.
        """
        whole = self._channel.take_body()
        if whole is not None and len(whole) > limit:
            raise BadBody(too_large(limit))
        return whole

    async def body(
        self, limit: int, seconds: float, declared: str = "", read: Callable[[int], None] | None = None
    ) -> bytes:
        """Return the request's body; one that is declared to be too large is not read.

        `read` is called with the number of bytes so far, and may raise to stop the reading.

        Raises:
            BadBody: it is too large or too slow.
            Gone: the client has disconnected.
        """
        if declared.isdecimal() and int(declared[:12]) > limit:
            raise BadBody(too_large(limit))
        parts: list[bytes] = []
        patience = seconds
        while True:
            deadline = asyncio.timeout(patience)
            try:
                async with deadline:
                    await self._read_parts(parts, limit, read)
                return parts[0] if len(parts) == 1 else b"".join(parts)
            except TimeoutError:
                if not _is_overdue(deadline):
                    text = f"Request timeout: the body took longer than {seconds:g} s"
                    raise BadBody(refuse(408, text, audit="slow")) from None
                # This process was stopped, or its loop was blocked: read the bytes that were sent in that time.
                patience = AWAKE

    async def _read_parts(self, parts: list[bytes], limit: int, read: Callable[[int], None] | None) -> None:
        """Read the rest of the body; `parts` keeps the bytes that have arrived if this is interrupted."""
        size, more = sum(map(len, parts)), True
        while more:
            part, more = await self._channel.read()
            parts.append(part)
            size += len(part)
            if size > limit:
                raise BadBody(too_large(limit))
            if read is not None:
                read(size)

    def answers_message(self, message: bytes, mode: ResponseMode) -> bool:
        """Write a JSON-RPC message as a whole answer at once; False, with nothing written: use `answer`."""
        is_event = mode == "sse"
        body = sse.event(message) if is_event else message
        self.begun = self._cors is None and self._channel.answer_ok(body, is_event=is_event)
        return self.begun

    def answers(self, answer: Answer) -> bool:
        """Write a whole answer at once; False, with nothing written: use `answer`."""
        self.begun = self._channel.answer(answer.status, self._headers(answer), answer.body)
        return self.begun

    def _headers(self, answer: Answer) -> list[tuple[bytes, bytes]]:
        return [*answer.headers, *self._cors] if self._cors else answer.headers

    async def answer(self, answer: Answer) -> bool:
        """Send a whole answer; False if the client is known not to have taken it."""
        if not self.answers(answer):
            self.begun = True
            if len(answer.body) > AT_ONCE and not self._is_watched:
                # A host whose client has disconnected returns from a write in silence.
                self.watch(_nothing)
            try:
                await self._channel.send(answer.status, self._headers(answer), answer.body)
            except OSError:
                return False
        return not self.may_be_gone

    @property
    def may_be_gone(self) -> bool:
        """True if the client is gone, or has closed its side: its answer is kept for a repeat."""
        return self.gone or self._channel.may_be_gone()

    async def start_stream(self, first: bytes, stall: float) -> None:
        """Begin an event stream. Proxies hold headers until a byte of the body arrives, so there is always a first one."""
        self.begun = True
        headers = [*_SSE_HEADERS, *(self._cors or ())]
        await self._write(lambda: self._channel.start(200, headers), stall)
        await self.write(first, stall)

    async def write(self, chunk: bytes, stall: float) -> None:
        """Write a part of the stream.

        Raises:
            Gone: the connection is gone, or has taken nothing for `stall` seconds. Servers other than `holdfast serve`
                do not report the taken bytes: there one write may take `stall` seconds.
        """
        if self.gone or not self._channel.write_now(chunk):
            await self._write(lambda: self._channel.write(chunk), stall)

    async def end_stream(self, stall: float) -> None:
        """Complete the stream. Servers wait here until the bytes before were written: the stall limit applies.

        Raises:
            Gone: as `write`, or the client may be gone.
        """
        await self._write(self._channel.end, stall)
        if self.gone or self._channel.may_be_gone():
            raise Gone

    async def _write(self, step: Callable[[], Awaitable[None]], stall: float) -> None:
        if self.gone:
            raise Gone
        channel = self._channel
        taken = channel.taken()
        while True:
            try:
                if channel.is_flowing():
                    return await step()
                async with asyncio.timeout(stall):
                    return await step()
            except OSError as error:
                # `holdfast serve` waits before it writes, so an interrupted write can be repeated. A slow client
                # that has taken some bytes meanwhile is not stalled.
                before, taken = taken, channel.taken()
                if isinstance(error, TimeoutError) and _has_grown(before, taken) and not self.gone:
                    continue
                # The connection is lost with its buffered bytes.
                channel.abort()
                raise Gone from None

    def is_taken(self) -> bool | None:
        """True if the client's side has acknowledged all written bytes; None: it cannot be known."""
        return self._channel.is_taken()

    def abort(self) -> None:
        """Close the connection and drop its buffered bytes, if the server allows it; if not, the stall limit ends it."""
        self._channel.abort()

    # Watching

    def watch(self, on_gone: Callable[[], object]) -> None:
        """Call `on_gone` when the client disconnects. Only for answers that take time: with an ASGI host it costs a task."""
        self.on_gone = on_gone
        if self.gone:
            on_gone()
        elif not self._is_watched:
            self._is_watched = True
            self._channel.watch(self._left)

    async def look(self) -> None:
        """Let the loop read all bytes that have arrived; set `gone` if the client has closed the connection, or its side of it.

        Call it after `body`.
        """
        if not self._is_watched:
            self.watch(_nothing)
        await asyncio.sleep(_READ_SECONDS)
        channel = self._channel
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
            self._channel.close()


def _has_grown(before: int | None, now: int | None) -> bool:
    """True if the client has taken bytes, or no write has to wait any more."""
    return before is not None and (now is None or now > before)


def _is_overdue(deadline: asyncio.Timeout) -> bool:
    when = deadline.when()
    return when is not None and asyncio.get_running_loop().time() - when > _OVERDUE
