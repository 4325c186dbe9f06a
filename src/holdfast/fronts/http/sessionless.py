"""Sessionless requests (2026-07-28) over HTTP: each POST is one request, and closing its response cancels it."""

import asyncio
from functools import partial
from typing import Final

from holdfast.core.eras import check_sessionless
from holdfast.engine.audit import reason_of
from holdfast.engine.caller import Caller
from holdfast.engine.delivery import Batch, deliver
from holdfast.engine.engine import Engine
from holdfast.engine.reader import End
from holdfast.engine.sessionless import AwaitedCall
from holdfast.engine.wake import turn
from holdfast.errors import (
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARKED_GONE,
    UNSUPPORTED_VERSION,
    Busy,
    InsufficientScope,
    McpError,
    OutcomeUnknown,
    ParkedElsewhere,
)
from holdfast.fronts.http.answer import Answer, ready_answer, refusal_for, refuse, refused_unstarted
from holdfast.fronts.http.connection import Connection
from holdfast.fronts.http.head import Head
from holdfast.fronts.http.listen import Listens
from holdfast.fronts.http.request import Gone
from holdfast.fronts.http.response import Form, Response
from holdfast.protocol.mirror import check_headers, check_parameters
from holdfast.protocol.sessionless import RequestMeta, read_meta
from holdfast.wire.jsonrpc import Request

_REMEMBERED: Final = 256
_STATUS: Final = {
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    PARKED_GONE: 400,
}
"""The HTTP status of errors that concern the request itself, if the response has not begun."""


class SessionlessPosts:
    """Answers requests that have their own metadata."""

    def __init__(self, engine: Engine, form: Form) -> None:
        self._engine = engine
        self._form = form
        self._mode = form.mode
        self._continue_after = engine.settings.times.continue_after
        self._listens = Listens(engine)
        self._agreed: set[tuple[object, ...]] = set()

    async def request(
        self, request: Request, head: Head, caller: Caller, connection: Connection
    ) -> Answer | None:
        """Check the metadata of a request, start its call or go on with it, and answer it."""
        try:
            meta = self._checked(request, head, caller)
            if request.method == "tools/call" and (
                mirrored := await self._engine.mirrored(request, meta, caller)
            ):
                check_parameters(head.get, mirrored, request.params.get("arguments"))
            if request.method == "subscriptions/listen":
                await self._listens.request(meta, request, caller, connection)
                return None
            begin = (
                self._engine.sessionless.go_on
                if "requestState" in request.params
                else self._engine.sessionless.start
            )
            awaited = begin(meta, caller, request)
        except Busy as error:
            return refused_unstarted(error, request.id)
        except McpError as error:
            return _refused_unstarted(request, error)
        except ParkedElsewhere as parked:
            return await self._forward(parked.replica, request, caller, connection)
        try:
            # A handler that never suspends has answered after one turn of the loop.
            await turn()
            outcome = awaited.outcome
            if outcome is not None and not awaited.waiter.messages:
                if outcome.error is not None:
                    return _refused(request, outcome.error)
                if self._mode == "sse":
                    return ready_answer(outcome.message(request.id), self._mode)
                await connection.answer_json(outcome.message(request.id))
                return None
            await self._wait(request, awaited, connection)
            return None
        finally:
            if awaited.leave():
                await self._engine.sessionless.abandon(awaited.exchange)

    async def _forward(
        self, replica: str, request: Request, caller: Caller, connection: Connection
    ) -> Answer | None:
        """Answer a retry whose call is parked at another replica."""
        forwarding = self._engine.forwarding
        try:
            reader = await forwarding.forward(replica, caller, request)
        except McpError as error:
            return _refused(request, error, 400)
        connection.watch(lambda: reader.stop(End.BROKE))
        response = Response(connection, self._form)
        try:
            await deliver(reader, response)
            await response.end()
        except Gone:
            return None
        finally:
            await forwarding.drop(reader)
        # If nothing was written, the log has ended without its terminal message.
        is_answered = response.streaming or response.is_taken is not None
        return None if is_answered else _refused(request, OutcomeUnknown())

    def _checked(self, request: Request, head: Head, caller: Caller) -> RequestMeta:
        params = request.params
        meta = read_meta(params)
        # A client sends the same headers again and again: remember those that passed.
        name = params.get("name")
        said = (head.mirroring, meta.version, request.method, name)
        if type(name) is not str or said not in self._agreed:
            check_headers(head.get, meta.version, request.method, params)
            if type(name) is str and request.method == "tools/call" and len(self._agreed) < _REMEMBERED:
                self._agreed.add(said)
        check_sessionless(self._engine.settings, meta, large=caller.charge is not None)
        return meta

    async def _wait(self, request: Request, awaited: AwaitedCall, connection: Connection) -> None:
        """Answer a call that takes time: with its result, or with a stream that begins in the meantime."""
        connection.watch(awaited.stop)
        hand_over = self._hand_over(awaited)
        response = Response(connection, self._form, whole=partial(self._whole, request))
        try:
            await deliver(awaited, response)
            await response.end()
        except Gone:
            return
        finally:
            if hand_over is not None:
                hand_over.cancel()

    def _whole(self, request: Request, batch: Batch) -> Answer:
        """Return the answer of a call that has ended without another message."""
        if batch.error is not None:
            return _refused(request, batch.error)
        return ready_answer(batch.messages[-1], self._mode)

    def _hand_over(self, awaited: AwaitedCall) -> asyncio.TimerHandle | None:
        """Start the timer after which a running call is answered with its state alone, for the client to come back."""
        seconds = self._continue_after
        if seconds is None or not awaited.writer.may_continue:
            return None
        return asyncio.get_running_loop().call_later(seconds, awaited.writer.go_out)


def _refused_unstarted(request: Request, error: McpError) -> Answer:
    if isinstance(error, InsufficientScope):
        # The front answers it: it knows where clients sign in.
        raise error
    return _refused(request, error, 400)


def _refused(request: Request, error: McpError, otherwise: int = 200) -> Answer:
    if isinstance(error, Busy):
        return refusal_for(error, request.id)
    status = _STATUS.get(error.code, otherwise)
    audit = reason_of(error)
    return refuse(status, error.message, code=error.code, request_id=request.id, data=error.data, audit=audit)
