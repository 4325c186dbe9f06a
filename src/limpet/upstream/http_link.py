"""A link over Streamable HTTP, in both eras: each message is a POST.

How a request is answered. Each request reads its own response in its own task, so a slow, broken or hostile response
concerns that request only. The response is one JSON body, or a stream of events (SSE) that ends with the result. A
result is matched by its id, so it may also come on another stream: then the request ends, and its own stream is closed.

Which messages belong to which request. A notification or a request of the server that comes on the stream of a POST
belongs to that POST (`origin`); also after the stream was resumed by a GET. A message of the standalone stream (the GET
that is opened after `initialize`) has no origin.

Resuming. In a session, a stream that breaks before its result is opened again by a GET with `Last-Event-ID`, the id of
the last event that had one. The attempts continue for `times.patience`. A stream without event ids cannot be resumed. A
stream that could be resumed and sends no byte for `times.silence` is treated as broken. 2026-07-28 has no resumption:
there a broken stream is the end, and closing the stream is how a request is cancelled.

"Certainly not executed". Every failure says whether the server can have executed the request, because only then may it
be sent again (`retries.py`):

    no connection could be opened                          certainly not      NotSent
    429 or 503 with the mark of our own server             certainly not      NotSent
    404 within a session                                   certainly not      SessionLost, which is a NotSent
    400 within a session, and 400 or 404 to a ping         certainly not      SessionLost
    400 within a session that answers a ping               it was refused     McpError or HttpRefused
    429 or 503 without the mark                            unknown            Overloaded, which is a Broken
    500 and higher, a broken connection, an unreadable     unknown            Broken
    body, a stream that ended and cannot be resumed

404 within a session is also the end of the link: the session is gone. Only a 404 to the first GET is not: a server
without a standalone stream should answer 405, and some answer 404. After a restart some servers answer 400 instead
("Server not initialized"). But 400 is also the answer to a bad request in a living session, whose other calls must go
on. So a ping, which executes nothing, finds out whether the session is known. Requests that are in flight then get
`times.settle` seconds, because their streams may still deliver results; then they fail as Broken.
"""

import asyncio
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final

from limpet.errors import PARSE_ERROR, BadAnswer, Broken, HttpRefused, LimpetError, LinkError, WireError
from limpet.protocol.mirrored_headers import encode_value
from limpet.protocol.sessionless import NAMED, VERSION
from limpet.single_flight import SingleFlight
from limpet.transports.http import HttpAnswer
from limpet.upstream.http_server import SESSION, HttpServer
from limpet.upstream.incoming import UNSENT
from limpet.upstream.link import Doubtful, EndReason, LinkEnd, Receiver, SessionLost
from limpet.upstream.pending import NO_HEADERS, OutgoingRequest
from limpet.wire.jsonrpc import request_message
from limpet.wire.lines import FREE
from limpet.wire.sse import EventParser, ReceivedEvent

EVENTS: Final = "text/event-stream"
ACCEPTED: Final = 202
POST_HEADERS: Final = {"accept": f"application/json, {EVENTS}", "content-type": "application/json"}
GET_HEADERS: Final = {"accept": EVENTS}
VERSION_HEADER: Final = "mcp-protocol-version"


class HttpLink:
    """One session, or the sessionless conversation of 2026-07-28."""

    def __init__(self, server: HttpServer, receiver: Receiver) -> None:
        self.version = VERSION
        self.is_sessionless = True
        self.lost: bool = False
        self._server = server
        self.receiver: Receiver = receiver
        receiver.standalone = None
        self._loop = asyncio.get_running_loop()
        self._session = ""
        self._initialized = False
        self._same: Mapping[str, str] = {}
        """The headers of every request in the session that has none of its own."""
        self._standalone: asyncio.Task[None] | None = None
        self._has_standalone = asyncio.Event()
        self._last_messages: set[asyncio.Task[None]] = set()
        self._pings: SingleFlight[bool] = SingleFlight()
        self._ping_numbers: Iterator[int] = count(1)

    def __repr__(self) -> str:
        return f"<HttpLink {self.version}{' lost' if self.lost else ''}, {self.receiver.pending}>"

    # Requests

    async def request(self, request: OutgoingRequest) -> Any:
        """Send a request and return its result; see `UpstreamLink`."""
        message = request_message(request.id, request.method, request.params)
        self.receiver.pending[request.id] = request
        answer: HttpAnswer | None = None
        request.reader = asyncio.current_task(self._loop)
        cancelling = 0 if request.reader is None else request.reader.cancelling()
        try:
            headers = self._request_headers(request)
            answer = await self._server.open("POST", headers, message, judge=self._judged)
            request.reader = None
            if request.method == "initialize":
                self._session, self._initialized = answer.header(SESSION), True
            if is_stream(answer):
                return await self._read_until_answered(answer, request)
            return await self._read_body(answer, request)
        except asyncio.CancelledError as cancelled:
            reader = request.reader
            if reader is not None and request.answer.done() and reader.uncancel() <= cancelling:
                # The result came on another stream before the head of this response.
                return request.answer.result()
            self._send_cancellation(request, cancelled)
            raise
        except SessionLost:
            self._lose()
            raise
        finally:
            request.reader = None
            self.receiver.pending.remove(request)
            if answer is not None:
                answer.close()

    async def _read_body(self, answer: HttpAnswer, request: OutgoingRequest) -> Any:
        """Read a response that is one JSON body."""
        try:
            body = await answer.body(self._server.limits.message, request.received)
            if answer.status == ACCEPTED or not body:
                raise BadAnswer(
                    f"the server answered {request.method} with HTTP {answer.status} and no content"
                )
            message = self.receiver.decode(body)
        except WireError as error:
            # A proxy on the way may have damaged the body. A response over the limit would be over it again.
            kind = Broken if error.code == PARSE_ERROR else BadAnswer
            raise kind(f"the answer to {request.method} cannot be read: {error}") from None
        self.receiver.take_decoded(self, message, body, request)
        if not request.answer.done():
            raise BadAnswer(f"the server answered {request.method} with a message that is not its response")
        return request.answer.result()

    async def _read_until_answered(self, answer: HttpAnswer, request: OutgoingRequest) -> Any:
        """Read the stream of a request until its result is there, and resume it where that is possible."""
        stream = _ResumedStream(self._server)
        resumed: HttpAnswer | None = answer
        while resumed is not None:
            # The result may come on another stream; then this one is not needed.
            _close_with(request, resumed)
            await self._read_stream(resumed, stream, request)
            if request.answer.done():
                break
            if self.is_sessionless or not stream.last_id:
                raise Broken(f"the stream ended before the answer to {request.method}")
            resumed = await self._resume(stream, request)
        return request.answer.result()

    async def _read_stream(
        self, answer: HttpAnswer, stream: "_ResumedStream", request: OutgoingRequest | None
    ) -> None:
        """Read a stream to its end, or until its request is answered.

        A broken stream is noted; the caller resumes it.
        """
        parser = EventParser(self._server.limits.line, self._server.limits.message)
        try:
            while request is None or not request.answer.done():
                chunk = await stream.next(answer)
                if not chunk:
                    return
                size, events = len(chunk), parser.feed(chunk)
                # A task that waits for the next bytes must not hold these.
                del chunk
                if size >= FREE:
                    # They may wait for a slow client.
                    self._keep(size + parser.kept, request)
                await self._take_events(events, answer, stream, request)
                events.clear()
                self._keep(parser.kept, request)
        except WireError as error:
            self._server.observer.note("client.stream_broke", error=error)
            # After a resume the stream would bring the same event again.
            stream.last_id = ""
            if request is not None:
                request.fail_unreadable(error)
        except (Broken, TimeoutError) as error:
            if request is None or not request.answer.done():
                self._server.observer.note("client.stream_broke", error=error)
        finally:
            answer.close()
            self._keep(0, request)

    async def _take_events(
        self,
        events: list[ReceivedEvent],
        answer: HttpAnswer,
        stream: "_ResumedStream",
        request: OutgoingRequest | None,
    ) -> None:
        for event in events:
            stream.saw(event.id, event.retry)
            if event.data:
                self.receiver.take(self, event.data, request)
                if request is not None and not request.answer.done() and (room := request.room()) is not None:
                    answer.stall()
                    await room

    def _keep(self, size: int, request: OutgoingRequest | None) -> None:
        """Charge bytes of a stream that have arrived and are not taken.

        Raises:
            WireError, OutcomeUnknown: there is no memory for them.
        """
        if request is None:
            self.receiver.keep(size)
        elif not request.answer.done():
            request.received(size)

    async def _resume(self, stream: "_ResumedStream", request: OutgoingRequest) -> HttpAnswer | None:
        """Resume the stream of a request; None if its result came on another stream meanwhile.

        Raises:
            Broken: the stream cannot be resumed. It is unknown whether the request was executed.
        """
        deadline = self._server.clock.now() + self._server.times.patience
        while True:
            pause = stream.backoff.pause()
            if self._server.clock.now() + pause > deadline and stream.backoff_failed:
                raise Broken(f"the stream of {request.method} broke and could not be resumed in time")
            await asyncio.wait({request.answer}, timeout=pause)
            if request.answer.done():
                return None
            try:
                answer = await self._open_stream({**request.headers, "last-event-id": stream.last_id})
            except SessionLost:
                self._lose()
                raise Broken(f"the session was lost while {request.method} was in flight") from None
            except (LinkError, HttpRefused) as error:
                if isinstance(error, HttpRefused):
                    raise Broken(f"the stream of {request.method} cannot be resumed: {error}") from None
                stream.backoff_failed = True
                continue
            stream.backoff_failed = False
            return answer

    def _send_cancellation(self, request: OutgoingRequest, cancelled: asyncio.CancelledError) -> None:
        # In 2026-07-28 closing the stream is the cancellation, except for a request with an idempotency key.
        if (self.is_sessionless and not request.key) or self.lost or not request.is_cancellable:
            return
        if len(self._last_messages) >= UNSENT:
            # The server does not answer. It gets no more until it does.
            self._server.observer.note("client.farewell_failed", error="too many cancellations are unsent")
            return
        self._send_in_background(self._post(request.headers, request.cancellation(cancelled)))

    # Other messages

    async def notify(self, message: bytes) -> None:
        """Send a notification; see `UpstreamLink`."""
        await self._post(NO_HEADERS, message)

    async def _post(self, headers: Mapping[str, str], message: bytes) -> None:
        sent = {**self._common_headers(), **POST_HEADERS, **headers}
        answer = await self._server.open("POST", sent, message, judge=self._judged)
        await discard(answer, self._server.limits.refusal)

    async def answer(self, message: bytes) -> None:
        """Send a response; repeat it while the server cannot be reached. The server ignores a second copy."""
        backoff = self._server.backoff()
        deadline = self._server.clock.now() + self._server.times.patience
        while True:
            try:
                await self.notify(message)
            except SessionLost:
                self._lose()
                return
            except LinkError as error:
                pause = backoff.pause(getattr(error, "retry_after", None))
                if self.lost or self._server.clock.now() + pause > deadline:
                    raise
                await asyncio.sleep(pause)
            except LimpetError as error:
                self._server.observer.note("client.answer_lost", error=error)
                return
            else:
                return

    # The standalone stream

    async def settled(self) -> None:
        """Open the standalone stream of a session.

        Waits for it up to `times.standalone`: some servers drop messages while there is no such stream.
        """
        if not self.is_sessionless and self._standalone is None:
            self._standalone = asyncio.get_running_loop().create_task(self._listen())
            opened = asyncio.get_running_loop().create_task(self._has_standalone.wait())
            await asyncio.wait(
                {self._standalone, opened},
                timeout=self._server.times.standalone,
                return_when=asyncio.FIRST_COMPLETED,
            )
            opened.cancel()

    async def _listen(self) -> None:
        stream, had_stream = _ResumedStream(self._server), False
        while not self.lost:
            try:
                answer = await self._open_stream({"last-event-id": stream.last_id} if stream.last_id else {})
            except SessionLost as error:
                if had_stream:
                    self._lose()
                else:
                    # Express and others answer a GET without a route with 404. If the session is gone, the next POST
                    # learns it.
                    self._server.observer.note("client.no_standalone_stream", error=error)
                return
            except LinkError:
                self._has_standalone.set()
                await asyncio.sleep(stream.backoff.pause())
                continue
            except LimpetError as error:
                if not stream.last_id:
                    # 405: the server has no such stream. Another refusal would not change either.
                    self._server.observer.note("client.no_standalone_stream", error=error)
                    return
                stream.last_id = ""
                continue
            if had_stream and not stream.last_id and self.receiver.on_missed is not None:
                self.receiver.on_missed()
            had_stream = True
            self._has_standalone.set()
            self.receiver.standalone = object()
            try:
                await self._read_stream(answer, stream, None)
            finally:
                self.receiver.standalone = None
            await asyncio.sleep(stream.backoff.pause())

    # Ending

    def _lose(self) -> None:
        """End the link because its session is gone. Requests in flight get `times.settle` seconds for their results."""
        if self.lost:
            return
        self.lost = True
        self.receiver.ended(self, LinkEnd(reason=EndReason.SESSION_GONE))
        loop = asyncio.get_running_loop()
        lost = Broken("the session was lost while the request was in flight")
        loop.call_later(self._server.times.settle, self.receiver.pending.fail_all, lambda _request: lost)

    async def aclose(self, *, goodbye: bool = True) -> None:
        """End the conversation. With `goodbye` the session is deleted at the server."""
        was_lost, self.lost = self.lost, True
        self.receiver.ended(self, LinkEnd(reason=EndReason.CLOSED))
        if self._standalone is not None:
            self._standalone.cancel()
            await asyncio.wait({self._standalone})
        await self._finish_last_messages()
        if goodbye and self._session and not was_lost:
            self._send_in_background(self._delete())
            await self._finish_last_messages()

    async def _finish_last_messages(self) -> None:
        """Wait up to `times.close` for messages that are being sent."""
        if self._last_messages:
            await asyncio.wait(self._last_messages, timeout=self._server.times.close)
        for task in self._last_messages:
            task.cancel()

    async def _delete(self) -> None:
        answer = await self._server.open("DELETE", self._common_headers())
        await discard(answer, self._server.limits.refusal)

    def _send_in_background(self, work: Any) -> None:
        async def quietly() -> None:
            try:
                await work
            except LimpetError as error:
                self._server.observer.note("client.farewell_failed", error=error)

        task = asyncio.get_running_loop().create_task(quietly())
        self._last_messages.add(task)
        task.add_done_callback(self._last_messages.discard)

    # HTTP

    async def _judged(self, refusal: LimpetError, headers: Mapping[str, str]) -> LimpetError:
        """Return the error that a refusal means: a server may not know the session any more."""
        if not isinstance(refusal, Doubtful):
            return refusal
        if await self._pings.join("", lambda: self._ask_whether_unknown({**headers, **POST_HEADERS})):
            return SessionLost(f"the server no longer knows the session: {refusal}")
        return refusal.reason

    async def _ask_whether_unknown(self, headers: dict[str, str]) -> bool:
        """Send a ping. True if the server refuses it too; False if it is answered, or if that cannot be known."""
        headers.pop("last-event-id", None)
        ping = request_message(f"ping-{next(self._ping_numbers)}", "ping", {})
        try:
            async with asyncio.timeout(self._server.times.probe):
                answer = await self._server.open("POST", headers, ping)
        except (Doubtful, SessionLost):
            return True
        except (LimpetError, TimeoutError):
            return False
        if is_stream(answer):
            answer.close()
        else:
            await discard(answer, self._server.limits.refusal)
        return False

    def _request_headers(self, request: OutgoingRequest) -> Mapping[str, str]:
        """Return the headers of a request; in 2026-07-28 they repeat its method and name."""
        if self._initialized and not (self.is_sessionless or request.headers):
            if self._same.get(VERSION_HEADER) != self.version:
                self._same = self._server.same({**self._common_headers(), **POST_HEADERS})
            return self._same
        made = {**self._common_headers(), **POST_HEADERS, **request.headers}
        if self.is_sessionless:
            made["mcp-method"] = request.method
            name = request.params.get(NAMED.get(request.method, ""))
            if isinstance(name, str):
                made["mcp-name"] = encode_value(name)
        return made

    async def _open_stream(self, headers: Mapping[str, str]) -> HttpAnswer:
        """Open a stream of events by a GET.

        Raises:
            LimpetError: the meaning of a status that is not 2xx; HttpRefused if the response is not such a stream.
        """
        sent = {**self._common_headers(), **GET_HEADERS, **headers}
        answer = await self._server.open("GET", sent, b"", judge=self._judged)
        if is_stream(answer):
            return answer
        answer.close()
        raise HttpRefused(
            answer.status, "the server answered GET with a response that is not a stream of events"
        )

    def _common_headers(self) -> dict[str, str]:
        """Return the headers that every HTTP request on this link has."""
        common: dict[str, str] = {}
        if self.is_sessionless or self._initialized:
            common[VERSION_HEADER] = self.version
        if self._session and not self.is_sessionless:
            common[SESSION] = self._session
        return common


class _ResumedStream:
    """The record of a stream when it is resumed: the last event id and the pauses."""

    __slots__ = ("_silence", "backoff", "backoff_failed", "last_id")

    def __init__(self, server: HttpServer) -> None:
        self._silence = server.times.silence
        self.backoff = server.backoff()
        self.backoff_failed = False
        self.last_id = ""

    def saw(self, event_id: str | None, retry: int | None) -> None:
        self.backoff.worked()
        if event_id is not None:
            self.last_id = event_id
        if retry is not None:
            self.backoff.hint = retry / 1_000

    async def next(self, answer: HttpAnswer) -> bytes:
        """Return the next bytes. A stream that can be resumed raises TimeoutError after `times.silence`."""
        if not self.last_id:
            return await answer.chunk()
        async with asyncio.timeout(self._silence):
            return await answer.chunk()


def _close_with(request: OutgoingRequest, answer: HttpAnswer) -> None:
    """Close the stream of a request when the request is answered."""
    request.answer.add_done_callback(lambda _done: answer.close())


def is_stream(answer: HttpAnswer) -> bool:
    return answer.header("content-type").partition(";")[0].strip().lower() == EVENTS


async def discard(answer: HttpAnswer, limit: int) -> None:
    """Read a short response to its end, so that its connection can be used again."""
    try:
        await answer.body(limit)
    except (Broken, WireError):
        answer.close()
