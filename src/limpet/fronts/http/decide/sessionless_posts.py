"""Sessionless requests (2026-07-28) over HTTP: each POST is one request, and closing its response cancels it.

The response to `subscriptions/listen` stays open for changes until the client or the server ends it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from msgspec.structs import replace
from typing_extensions import override

from limpet.config import ResponseMode
from limpet.core.eras import check_sessionless
from limpet.engine.audit import reason_of
from limpet.engine.caller import Caller
from limpet.engine.delivery import Batch
from limpet.engine.engine import Engine
from limpet.engine.idempotency import has_key
from limpet.engine.listening import Listener, ListenerEnd
from limpet.engine.load import is_large
from limpet.engine.reader import End, Reader
from limpet.engine.rounds import ResponseWaiter
from limpet.engine.sessionless_client import SessionlessClient
from limpet.engine.wake import one_pass
from limpet.errors import (
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARKED_GONE,
    UNSUPPORTED_VERSION,
    Busy,
    InsufficientScope,
    InvalidParams,
    McpError,
    OutcomeUnknown,
    ParkedElsewhere,
    StoreError,
)
from limpet.fronts.http.decide.started_call import StartedCall
from limpet.fronts.http.read.head import Head
from limpet.fronts.http.read.request import Gone
from limpet.fronts.http.write.answer import (
    ACCEPTED,
    Answer,
    ready_answer,
    refusal_for,
    refuse,
    refused_unstarted,
)
from limpet.fronts.http.write.response import ResponseForm, WaitingResponse
from limpet.protocol.idempotency import KEY, LEAST_UNGUESSABLE, read_key
from limpet.protocol.mirrored_headers import check_headers, check_parameters
from limpet.protocol.sessionless import RequestMeta, read_meta
from limpet.wire.jsonrpc import Notification, Request

Begin = Callable[[RequestMeta, Caller, Request], Awaitable[ResponseWaiter | Reader]]
"""Begins the call of a request, here or at another replica."""
_REMEMBERED: Final = 256
_STATUS: Final = {
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    PARKED_GONE: 400,
}
"""The HTTP status of errors that concern the request itself, if the response has not begun."""


def _nothing() -> None:
    """Do nothing when the client disconnects: its connection remembers it."""


class SessionlessPosts:
    """Answers requests that have their own metadata."""

    def __init__(self, engine: Engine, form: ResponseForm, *, serves_strangers: bool) -> None:
        self.engine: Engine = engine
        self._form = form
        self.mode: ResponseMode = form.mode
        self._continue_after = engine.settings.times.continue_after
        self._serves_strangers = serves_strangers
        """True if anonymous clients may be different people."""
        self._has_affinity = engine.conversations.affinity is not None
        self._listens = Listens(engine)
        self._agreed: set[tuple[object, ...]] = set()

    def request(
        self, request: Request, head: Head, caller: Caller, response: WaitingResponse
    ) -> Answer | Awaitable[Answer | None]:
        """Check the metadata of a request, and start its call or continue it; await it to answer it."""
        try:
            meta = self._checked(request, head, caller)
            if request.method == "tools/call":
                mirrored = self.engine.mirrored(request, meta, caller)
                if mirrored:
                    check_parameters(head.get, mirrored, request.params.get("arguments"))
            elif request.method == "subscriptions/listen":
                return self._listen(meta, request, caller, response)
            if self._has_affinity:
                conversation = self.engine.conversations.named(request, caller)
                if conversation:
                    self._check_unguessable(conversation, caller, "conversation")
                    converse = partial(self.engine.conversations.begin, conversation)
                    return self._begin_later(converse, meta, request, caller, response)
            if meta.key is not None and has_key(meta, request):
                return self._begin_later(self.engine.idempotent.begin, meta, request, caller, response)
            begin = (
                self.engine.sessionless.go_on
                if "requestState" in request.params
                else self.engine.sessionless.start
            )
            return SessionlessCall(self, request, begin(meta, caller, request), response)
        except McpError as error:
            return _unstarted(request, error)
        except ParkedElsewhere as parked:
            return self._forward(parked.replica, request, caller, response)

    async def _begin_later(
        self, begin: Begin, meta: RequestMeta, request: Request, caller: Caller, response: WaitingResponse
    ) -> Answer | None:
        """Answer a request with an idempotency key or a conversation: the store is awaited before its call begins."""
        # From here on the end of the connection is noticed, before the store is awaited.
        response.watch(_nothing)
        try:
            begun = await begin(meta, caller, request)
        except McpError as error:
            return _unstarted(request, error)
        except StoreError as error:
            return refused_unstarted(error, request.id)
        if isinstance(begun, Reader):
            return await self._read(begun, request, response)
        return await SessionlessCall(self, request, begun, response)

    def cancel(self, message: Notification, head: Head, caller: Caller) -> Awaitable[Answer] | Answer:
        """Take a notification.

        Only a cancellation that names an idempotency key has an effect: ids belong to their POSTs.
        """
        meta = message.params.get("_meta")
        said = meta.get(KEY) if type(meta) is dict else None
        header = head.mirroring[-1]
        if message.method != "notifications/cancelled" or (said is None and header is None):
            return ACCEPTED
        try:
            key = self._allowed(read_key(said, header), caller)
        except McpError as error:
            return refuse(400, error.message, code=error.code)
        return self._cancel(caller, key)

    async def _cancel(self, caller: Caller, key: str) -> Answer:
        await self.engine.idempotent.cancel(caller, key)
        return ACCEPTED

    def _allowed(self, key: str, caller: Caller) -> str:
        """Return a key that its caller may use."""
        self._check_unguessable(key, caller, "idempotency key")
        return key

    def _check_unguessable(self, key: str, caller: Caller, what: str) -> None:
        """Check a key that opens something of its client.

        Raises:
            InvalidParams: anonymous clients of other machines share one principal, and could guess the key.
        """
        if self._serves_strangers and not caller.key and len(key) < LEAST_UNGUESSABLE:
            raise InvalidParams(
                f"Invalid params: the {what} of an anonymous client has at least {LEAST_UNGUESSABLE} characters,"
                " so that no other client can guess it"
            )

    async def _listen(
        self, meta: RequestMeta, request: Request, caller: Caller, response: WaitingResponse
    ) -> Answer | None:
        try:
            await self._listens.request(meta, request, caller, response)
        except McpError as error:
            return _unstarted(request, error)
        return None

    async def _forward(
        self, replica: str, request: Request, caller: Caller, response: WaitingResponse
    ) -> Answer | None:
        """Answer a retry whose call is parked at another replica."""
        forwarding = self.engine.forwarding
        try:
            reader = await forwarding.forward(replica, caller, request)
        except McpError as error:
            return _refused(request, error, 400)
        except StoreError as error:
            return refusal_for(error, request.id)
        return await self._read(reader, request, response)

    async def _read(self, reader: Reader, request: Request, response: WaitingResponse) -> Answer | None:
        """Answer a request from the log that another replica writes."""
        response.watch(lambda: reader.stop(End.BROKE))
        try:
            await response.deliver(reader, self._form)
        except Gone:
            return None
        finally:
            await self.engine.forwarding.drop(reader)
        # If nothing was written, the log has ended without its terminal message.
        return None if response.begun else _refused(request, OutcomeUnknown())

    def _checked(self, request: Request, head: Head, caller: Caller) -> RequestMeta:
        params = request.params
        meta = read_meta(params)
        # A client sends the same headers again and again: remember those that passed.
        name = params.get("name")
        said = (head.mirroring, meta.version, request.method, name)
        if type(name) is not str or said not in self._agreed:
            check_headers(head.get, meta.version, request.method, params)
            is_usual = type(name) is str and request.method == "tools/call" and said[0][-1] is None
            if is_usual and len(self._agreed) < _REMEMBERED:
                self._agreed.add(said)
        check_sessionless(self.engine.settings, meta, large=is_large(caller))
        if meta.key is not None or said[0][-1] is not None:
            return replace(meta, key=self._allowed(read_key(meta.key, said[0][-1]), caller))
        return meta

    async def wait(self, request: Request, waiter: ResponseWaiter, response: WaitingResponse) -> None:
        """Answer a call that takes time: with its result, or with a stream that begins in the meantime."""
        response.watch(waiter.stop)
        hand_over = self._hand_over(waiter)
        try:
            await response.deliver(waiter, self._form, whole=partial(self._whole, request))
        except Gone:
            return
        finally:
            if hand_over is not None:
                hand_over.cancel()

    def _whole(self, request: Request, batch: Batch) -> Answer:
        """Return the answer of a call that has ended without another message."""
        if batch.error is not None:
            return _refused(request, batch.error)
        return ready_answer(batch.messages[-1], self.mode)

    def _hand_over(self, waiter: ResponseWaiter) -> asyncio.TimerHandle | None:
        """Start the timer after which a running call is answered with only its state, so that the client comes back."""
        seconds = self._continue_after
        if seconds is None or not waiter.writer.may_continue:
            return None
        return asyncio.get_running_loop().call_later(seconds, waiter.writer.go_out)


class SessionlessCall(StartedCall):
    """A sessionless call."""

    __slots__ = ("_posts", "_request", "_waiter")

    def __init__(
        self, posts: SessionlessPosts, request: Request, waiter: ResponseWaiter, response: WaitingResponse
    ) -> None:
        self.response = response
        self._posts = posts
        self._request = request
        self._waiter = waiter

    @override
    def answer_nowait(self) -> bool:
        """Answer a call that has ended with a result and without another message, if it can be written at once."""
        waiter = self._waiter
        outcome = waiter.outcome
        if (
            outcome is None
            or outcome.error is not None
            or waiter.messages
            or not self.response.answer_message_nowait(outcome.message(self._request.id), self._posts.mode)
        ):
            return False
        waiter.leave()
        return True

    @override
    async def wait(self) -> Answer | None:
        posts, request, waiter = self._posts, self._request, self._waiter
        try:
            await one_pass()
            outcome = waiter.outcome
            if outcome is None or waiter.messages:
                await posts.wait(request, waiter, self.response)
                return None
            if outcome.error is not None:
                return _refused(request, outcome.error)
            return ready_answer(outcome.message(request.id), posts.mode)
        finally:
            if waiter.leave():
                await posts.engine.sessionless.abandon(waiter.exchange)


def _unstarted(request: Request, error: McpError) -> Answer:
    """Refuse a request of which nothing ran."""
    if isinstance(error, Busy | InsufficientScope):
        return refused_unstarted(error, request.id)
    return _refused(request, error, 400)


def _refused(request: Request, error: McpError, otherwise: int = 200) -> Answer:
    if isinstance(error, Busy):
        return refusal_for(error, request.id)
    status = _STATUS.get(error.code, otherwise)
    audit = reason_of(error)
    return refuse(status, error.message, code=error.code, request_id=request.id, data=error.data, audit=audit)


class Listens:
    """Serves listeners, each on its own response."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._form = ResponseForm("sse", engine.settings.times)

    async def request(
        self, meta: RequestMeta, request: Request, caller: Caller, response: WaitingResponse
    ) -> None:
        """Listen until the client closes the response, its token expires, or the server stops.

        Raises:
            McpError: the request was refused; nothing was written.
        """
        principal = caller.principal
        listener = await self._engine.listening.open(
            SessionlessClient(meta, caller.key, self._engine.settings.limits),
            request,
            caller,
            principal.expires if principal is not None else None,
        )
        try:
            await self._stream(listener, response)
        except Gone:
            return
        finally:
            self._engine.listening.leave(listener)

    async def _stream(self, listener: Listener, response: WaitingResponse) -> None:
        listener.on_slow = response.abort
        response.watch(lambda: listener.stop(ListenerEnd.LEFT))
        await response.deliver(listener, self._form)
        if listener.end is ListenerEnd.SLOW:
            response.abort()
