"""POSTs of the era with sessions: the kinds of POSTs, and the answer to each.

    initialize      opens a session, 200 with its id in a header
    notification    202; nothing waits for a handler (law 10)
    response        the answer to an ask: 202, or 400 if another answer came first
    request         claimed, run, and answered here: `request`
    batch           several of these in one array (2025-03-26 only): `batch.py`

The answer to a request is adaptive. A call that is ready at once gets one JSON body, and no stream ever exists. A
call that is slow or sends messages becomes a stream that can be resumed. `write/response.py` decides this; this module
reports each step to the exchange:

    submit ──▶ one pass of the loop ──▶ ended?  ── yes ──▶ JSON body    (`PostedCall.answer_nowait`: a plain call)
                                          │ no
                                          ▼
               `stream_after` at most   ──▶ ended?  ── yes ──▶ JSON body    (a call that waits for a database)
                                          │ no, or something else has happened
                                          ▼
               deliver(PostedExchange ─▶ WaitingResponse) ──┬──▶ terminal message, no stream:  JSON body
                                                            ├──▶ stream: the POST is the reader of its log
                                                            ├──▶ fenced: others have ended it; answer from the log
                                                            └──▶ the client has disconnected

An answer that its client has not taken is kept for a repeat of the request: this module reports what happens to a
connection, and `core/fate.py` decides. A repeat is the same id with the same bytes while the first POST's reader is
lost. It does not run the call again: it reads the log of the first execution (`_repeat`).

After a handler has started, no refusal is sent that invites the client to send the request again: while the store is
unavailable the POST waits, and a call whose session was closed ends with an error in a 200, not with a 404.
"""

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from typing_extensions import override

from limpet.config import ResponseMode
from limpet.core.fate import FateInput
from limpet.core.lifecycle import SessionInput
from limpet.engine.caller import Caller
from limpet.engine.claims import Repeat
from limpet.engine.delivery import Batch
from limpet.engine.engine import Engine
from limpet.engine.exchange import SessionExchange
from limpet.engine.posted import PostedExchange
from limpet.engine.reader import End, Reader
from limpet.engine.sessions import Opened, session_key
from limpet.engine.wake import OnWake, after_few, one_pass
from limpet.errors import (
    INVALID_REQUEST,
    Cancelled,
    LimpetError,
    OutcomeUnknown,
    SessionGone,
    Withdrawn,
)
from limpet.fronts.http.decide.batch import BatchedRequests
from limpet.fronts.http.decide.session_streams import Streamer
from limpet.fronts.http.decide.started_call import StartedCall
from limpet.fronts.http.read.request import Gone
from limpet.fronts.http.write.answer import (
    ACCEPTED,
    UNSTARTED,
    Answer,
    json_answer,
    ready_answer,
    refusal_for,
    refuse,
    refused_unstarted,
    retry_after,
)
from limpet.fronts.http.write.response import WaitingResponse
from limpet.protocol.versions import ASSUMED
from limpet.stores.base import Answered
from limpet.wire.jsonrpc import Message, Notification, Request, RequestId, Response, refusal, result_message

Submit = Callable[[], Awaitable[SessionExchange | Repeat]]
"""Submits a request."""
_CONFLICT: Final = refuse(400, "Bad request: this request was already answered, differently")


def _nothing() -> None:
    """Do nothing when the client disconnects: its connection remembers it."""


class Posts:
    """Answers POSTs: of a session, of an initialize that opens one, and without a session."""

    def __init__(self, engine: Engine, streamer: Streamer) -> None:
        self.engine: Engine = engine
        self._form = streamer.form
        self.mode: ResponseMode = streamer.form.mode
        self.stream_after: float | None = streamer.form.stream_after
        self._streamer = streamer

    def initialize(
        self, request: Request, session_id: str, caller: Caller
    ) -> Answer | Coroutine[Any, Any, Answer]:
        """Open a session; refuse a second initialize inside one, whose first parameters stay.

        A client that is known to do it gets a new session, and the old one is closed.
        """
        if self.engine.settings.stateless:
            return self._initialize_stateless(request, caller)
        if self.engine.refuses(request, caller):
            return refused_unstarted(self.engine.stopping(), request.id)
        if session_id:
            return self._initialize_again(request, session_id, caller)
        try:
            opening = self.engine.sessions.opening(caller, request.params)
        except LimpetError as error:
            return refused_unstarted(error, request.id)
        return (
            self._welcome(request, opening) if isinstance(opening, Opened) else self._open(request, opening)
        )

    async def _open(self, request: Request, opening: Awaitable[Opened]) -> Answer:
        try:
            return self._welcome(request, await opening)
        except LimpetError as error:
            return refused_unstarted(error, request.id)

    def _welcome(self, request: Request, opened: Opened) -> Answer:
        answer = ready_answer(result_message(request.id, opened.result), self.mode)
        answer.headers.append((b"mcp-session-id", opened.session_id.encode()))
        return answer

    async def _initialize_again(self, request: Request, session_id: str, caller: Caller) -> Answer:
        """Answer an initialize that names a session."""
        client, quirks = request.params.get("clientInfo"), self.engine.quirks
        try:
            is_live = await self._check_live(session_id, caller)
            if is_live and not quirks.of(client).reinitialize:
                return refuse(
                    400,
                    "Bad request: this session is already initialized; its first parameters stay",
                    request_id=request.id,
                )
            opened = await self.engine.sessions.open(caller, request.params)
        except LimpetError as error:
            return refused_unstarted(error, request.id)
        if is_live:
            quirks.applied(client, "reinitialize")
            self.engine.spawn(self._close(session_key(session_id), caller.key))
        return self._welcome(request, opened)

    async def _initialize_stateless(self, request: Request, caller: Caller) -> Answer:
        """Describe the server. No session remains."""
        try:
            opened = await self.engine.sessions.open(caller, request.params)
        except LimpetError as error:
            return refused_unstarted(error, request.id)
        await self.engine.sessions.forget(opened.session)
        return ready_answer(result_message(request.id, opened.result), self.mode)

    async def _check_live(self, session_id: str, caller: Caller) -> bool:
        """Check whether the client is in its own session, which a second initialize would disturb.

        The id of another session is no reason to refuse, and never becomes the new session's id.
        """
        try:
            await self.engine.check_session(session_key(session_id), caller.key)
        except SessionGone:
            return False
        return True

    async def _close(self, key: str, principal: str) -> None:
        """Close the session of a client that has opened a new one."""
        with suppress(SessionGone):
            sessions = self.engine.sessions
            await sessions.close(await sessions.find(key, principal), SessionInput.DELETED)

    async def control(self, key: str, caller: Caller, message: Notification | Response) -> Answer:
        """Take a notification or the answer to an ask. Does not wait for a handler.

        An answer that no ask waits for, because it is late or its id is unknown, is accepted and dropped: its client
        did nothing wrong, and `mcp` 1.x ends with everything in flight after a 400.
        """
        if isinstance(message, Notification):
            await self.engine.sessions.notify(key, caller.key, message.method, message.params, held=caller)
            return ACCEPTED
        verdict = await self.engine.sessions.answer(key, caller.key, message)
        return _CONFLICT if verdict is Answered.CONFLICT else ACCEPTED

    def request(
        self, key: str, caller: Caller, request: Request, digest: bytes, response: WaitingResponse
    ) -> Awaitable[Answer | None]:
        """Start a request; await it to answer it. The request has started if the store need not be awaited."""
        exchanges, streams = self.engine.exchanges, self.mode != "json"
        started = exchanges.submit_nowait(key, caller, request, digest, streams=streams)
        if isinstance(started, SessionExchange):
            return PostedCall(self, started, response)
        # From here on the end of the connection is noticed, before the store is awaited.
        response.watch(_nothing)
        submit = partial(exchanges.submit, key, caller, request, digest, streams=streams)
        if started is None:
            submitting = submit()
        else:
            submitting = exchanges.submit_refused(key, caller, request, digest, started, streams=streams)
        return self._submit(submitting, submit, caller, response, request.id)

    async def _submit(
        self,
        submitting: Awaitable[SessionExchange | Repeat],
        submit: Submit,
        caller: Caller,
        response: WaitingResponse,
        request_id: RequestId,
    ) -> Answer | None:
        """Answer a request that has not started at once: its claim is awaited, or was refused."""
        while True:
            try:
                exchange = await submitting
            except LimpetError as error:
                return refused_unstarted(error, request_id)
            if not isinstance(exchange, Repeat):
                return await PostedCall(self, exchange, response)
            try:
                return await self._repeat(exchange, response, caller)
            except Withdrawn:
                # Nothing of the first request ran: this one claims the id and starts.
                response.watch(_nothing)
                submitting = submit()

    async def wait(
        self, exchange: SessionExchange, response: WaitingResponse, *, is_silent: bool = False
    ) -> Answer | None:
        """Answer a call that takes time: with its result, or with a stream. `is_silent`: `stream_after` has passed."""
        posted = PostedExchange(self.engine.readers, exchange)

        def opening(batch: Batch) -> bytes:
            reader = cast("Reader", batch.begins)
            self._streamer.bind(reader, response, exchange.principal)
            return self._streamer.opening(reader, posted=True)

        response.watch(posted.leave)
        try:
            whole, begin = partial(self._whole, exchange), posted.open
            await response.deliver(
                posted, self._form, whole=whole, opening=opening, begin=begin, is_silent=is_silent
            )
        except SessionGone:
            return self._closed(exchange.request.id)
        except Gone:
            posted.stop(End.BROKE if response.may_be_gone else End.STALLED)
        finally:
            await posted.close()
        if posted.is_fenced:
            # Only the end that other replicas have written counts: read it as a repeat of the request does.
            ended = Repeat(exchange.session, exchange.claim.stream, exchange.request.id)
            return await self._repeat(ended, response, exchange.caller)
        if isinstance(exchange.refusal, Withdrawn) and response.is_half_closed:
            return refused_unstarted(exchange.refusal, exchange.request.id)
        return None

    def _whole(self, exchange: SessionExchange, batch: Batch) -> Answer:
        """Return the answer of an exchange that has ended without a stream."""
        terminal = batch.messages[-1]
        if exchange.refusal is not None:
            return Answer(429, [*json_answer(terminal).headers, retry_after(), UNSTARTED], terminal)
        return ready_answer(terminal, self.mode)

    async def _repeat(self, repeat: Repeat, response: WaitingResponse, caller: Caller) -> Answer | None:
        """Answer an exact repeat of a POST whose connection broke, from the log of the first execution.

        Raises:
            Withdrawn: there was no first execution.
        """
        try:
            reader = await self._streamer.follow(repeat, response)
            await self._streamer.pump(reader, response, caller.principal, posted=True)
        except Withdrawn:
            raise
        except SessionGone:
            return self._closed(repeat.id)
        except OutcomeUnknown as error:
            return ready_answer(refusal(repeat.id, error), self.mode)
        except LimpetError as error:
            return refusal_for(error, repeat.id)
        return None

    def _closed(self, request_id: RequestId) -> Answer:
        """Answer a call whose session was closed after the request had arrived: the call has ended with it.

        Not with 404: a client would take the call as not started, and send it again.
        """
        return ready_answer(refusal(request_id, Cancelled("the session was closed")), self.mode)

    async def batch(
        self, key: str, caller: Caller, messages: list[Message], response: WaitingResponse
    ) -> Answer | None:
        """Answer an array of messages, in sessions of the only revision that has them."""
        session = await self.engine.sessions.find(key, caller.key)
        if not session.revision.batches:
            return refuse(400, "Bad request: batches exist in protocol 2025-03-26 only", code=INVALID_REQUEST)
        requests = [message for message in messages if isinstance(message, Request)]
        taken = ACCEPTED
        for number, message in enumerate(messages):
            if not isinstance(message, Request):
                await after_few(number)
                answer = await self.control(key, caller, message)
                taken = answer if taken is ACCEPTED else taken
        if not requests:
            return taken
        batch = BatchedRequests(self.engine, self._streamer, response, caller.principal)
        await batch.answer(key, caller, requests)
        return None

    async def stateless(
        self, message: Message | list[Message], version: str, caller: Caller, response: WaitingResponse
    ) -> Answer | None:
        """Answer in stateless mode: open a session for this POST only. Its handlers cannot ask the client."""
        if isinstance(message, Notification | Response):
            return ACCEPTED
        params = {
            "protocolVersion": version or ASSUMED.name,
            "clientInfo": {"name": ""},
            "capabilities": {},
        }
        request_id = message.id if isinstance(message, Request) else None
        response.watch(_nothing)
        try:
            opened = await self.engine.sessions.open(caller, params)
        except LimpetError as error:
            return refused_unstarted(error, request_id)
        try:
            if response.gone:
                left = self.engine.exchanges.claims.withdrawn(opened.session.record.key)
                return refused_unstarted(left, request_id)
            if isinstance(message, list):
                return await self.batch(opened.session.record.key, caller, message, response)
            return await self.request(opened.session.record.key, caller, message, b"", response)
        finally:
            await self.engine.sessions.forget(opened.session)


class PostedCall(StartedCall):
    """A call in a session."""

    __slots__ = ("_exchange", "_posts", "_woken")

    def __init__(self, posts: Posts, exchange: SessionExchange, response: WaitingResponse) -> None:
        self.response = response
        self._posts = posts
        self._exchange = exchange
        self._woken: bool | None = None
        """True if something has happened to it while it was waited for, False after `stream_after`, None before."""

    @override
    def answer_nowait(self) -> bool:
        """Answer a call that has ended without a stream, if that can be done at once and its client is connected."""
        writer, response = self._exchange.writer, self.response
        return (
            writer.terminal is not None
            and writer.position is None
            and response.answer_message_nowait(writer.terminal, self._posts.mode)
            and not (response.gone or response.channel.may_be_gone())
        )

    @override
    def left(self) -> None:
        """Let the end be kept for a repeat, which may arrive before the next pass of the loop."""
        self._exchange.writer.report(FateInput.LEFT)

    @override
    def look_later(self, look: Callable[[bool], object]) -> bool:
        exchange, response = self._exchange, self.response
        if exchange.is_due or response.begun:
            return False
        self._posts.engine.readers.hold(exchange)
        response.pay()
        response.watch(self.left)
        OnWake(exchange.writer.wake, look, self._posts.stream_after)
        return True

    @override
    def answer_later(self, *, woken: bool) -> bool:
        self._woken = woken
        if not (self._is_plain and self.answer_nowait()):
            return False
        self._posts.engine.readers.let_go(self._exchange)
        self.response.close()
        return True

    @property
    def _is_plain(self) -> bool:
        """True if the call has ended without a stream, and its client waits for the answer."""
        exchange = self._exchange
        writer = exchange.writer
        return (
            writer.terminal is not None
            and writer.position is None
            and exchange.refusal is None
            and not (self.response.gone or exchange.is_fenced)
        )

    @override
    def wait(self) -> Coroutine[Any, Any, Answer | None]:
        # At once: the handler may end before the coroutine begins.
        self._posts.engine.readers.hold(self._exchange)
        return self._wait()

    async def _wait(self) -> Answer | None:
        posts, exchange, response = self._posts, self._exchange, self.response
        writer, readers = exchange.writer, posts.engine.readers
        is_answered = False
        try:
            await one_pass()
            if response.begun:
                # The client may not have received the answer that was written.
                return None
            if self._woken is None and not exchange.is_due:
                response.watch(self.left)
                self._woken = await writer.wake.next(posts.stream_after)
            terminal = writer.terminal
            if terminal is None or not self._is_plain:
                return await posts.wait(exchange, response, is_silent=self._woken is False)
            is_answered = self.answer_nowait()
            if is_answered or response.begun:
                return None
            writer.report(FateInput.WROTE)
            if await response.answer(ready_answer(terminal, posts.mode)):
                writer.report(FateInput.TAKEN)
        finally:
            if is_answered:
                readers.let_go(exchange)
            else:
                # Also if this task is cancelled: some servers cancel the request of a client that has disconnected.
                await readers.close(exchange)
        return None
