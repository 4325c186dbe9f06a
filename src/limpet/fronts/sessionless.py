"""Sessionless requests (2026-07-28) on a connection that carries messages both ways, and that all of them share.

An id that is in flight is refused here too (law 2): on one connection only the id shows to which request an answer
belongs. A cancelled request gets no further message.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from limpet.core.eras import check_sessionless
from limpet.engine.caller import Caller
from limpet.engine.delivery import Batch, deliver
from limpet.engine.engine import Engine
from limpet.engine.idempotency import has_key
from limpet.engine.listening import Listener, ListenerEnd
from limpet.engine.load import is_large
from limpet.engine.rounds import ResponseWaiter
from limpet.engine.sessionless_client import SessionlessClient
from limpet.errors import (
    Busy,
    Cancelled,
    DuplicateId,
    McpError,
    ParkedElsewhere,
    ParkedGone,
    StoreBusy,
    StoreError,
)
from limpet.protocol.sessionless import RequestMeta, read_meta
from limpet.protocol.subscriptions import dropped_message
from limpet.wire.jsonrpc import Request, RequestId

Send = Callable[[bytes], Awaitable[None]]
Refuse = Callable[[RequestId, McpError], bytes]
"""Reports the refusal of a request, and returns its message."""


class SessionlessRequests:
    """The sessionless requests of one connection, each from its arrival until its answer is written."""

    def __init__(self, engine: Engine, send: Send, refusal: Refuse, gone: asyncio.Event) -> None:
        self._engine = engine
        self._gone = gone
        """Set when the peer no longer reads: no request starts any more."""
        self._refusal = refusal
        self.send = send
        limits = engine.settings.limits
        self._limit = limits.running + limits.queued
        self._flights: dict[RequestId, asyncio.Task[None]] = {}
        """By id: the requests in flight. An id is free when its answer is about to be written."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiters: set[ResponseWaiter] = set()
        self._listeners: set[Listener] = set()
        self._closing = False

    def __contains__(self, request_id: RequestId) -> bool:
        return request_id in self._flights

    # One request

    def take(self, request: Request, caller: Caller) -> None:
        """Start to answer a request.

        Raises:
            InvalidParams: its metadata is not complete.
            UnsupportedVersion: it is of another revision, or this revision is not served to its client.
            DuplicateId: its id is in flight.
            Busy: too many requests of this connection run, or have answers that are not written yet.
        """
        if request.id in self._flights:
            raise DuplicateId
        meta = read_meta(request.params)
        check_sessionless(self._engine.settings, meta, large=is_large(caller))
        if len(self._tasks) >= self._limit:
            raise Busy("Busy: too many calls are in flight on this connection; try again shortly")
        task = asyncio.get_running_loop().create_task(self._serve(request, meta, caller))
        self._flights[request.id] = task
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._end(request.id, task))

    def _end(self, request_id: RequestId, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._free_id(request_id, task)

    def _free_id(self, request_id: RequestId, task: asyncio.Task[None] | None) -> None:
        """Free an id, unless another request uses it already."""
        if self._flights.get(request_id) is task:
            del self._flights[request_id]

    def cancel(self, request_id: object) -> bool:
        """Cancel a request for the client; False if no request has this id."""
        if type(request_id) is not int and type(request_id) is not str:
            return False
        task = self._flights.pop(request_id, None)
        if task is not None:
            task.cancel()
        return task is not None

    async def _serve(self, request: Request, meta: RequestMeta, caller: Caller) -> None:
        try:
            if request.method == "subscriptions/listen":
                await self._listen(request, meta, caller)
            else:
                await self._call(request, meta, caller)
        except McpError as error:
            await self.last(request, self._refusal(request.id, error))

    async def last(self, request: Request, message: bytes) -> None:
        """Free the id, then write: the peer may use the id again as soon as it sees the answer."""
        self._free_id(request.id, asyncio.current_task())
        await self.send(message)

    async def _call(self, request: Request, meta: RequestMeta, caller: Caller) -> None:
        if self._gone.is_set():
            self._engine.observer.note("request.dropped")
            return
        calls = self._engine.sessionless
        waiter = await self._begin(request, meta, caller)
        self._waiters.add(waiter)
        try:
            await deliver(waiter, _Sink(self, request))
        except asyncio.CancelledError:
            # End also a call that was just parked: its answer is not sent, so no retry can come.
            await calls.end(waiter.exchange, Cancelled("by the client"))
            raise
        finally:
            self._waiters.discard(waiter)
            if waiter.leave():
                await calls.abandon(waiter.exchange)

    async def _begin(self, request: Request, meta: RequestMeta, caller: Caller) -> ResponseWaiter:
        calls = self._engine.sessionless
        begin = calls.go_on if "requestState" in request.params else calls.start
        conversation = self._engine.conversations.named(request, caller)
        try:
            if conversation:
                return await self._conversing(conversation, request, meta, caller)
            if has_key(meta, request):
                return await self._engine.idempotent.here(meta, caller, request)
            return begin(meta, caller, request)
        except ParkedElsewhere:
            # One process serves a connection: a call that is parked elsewhere does not belong to it.
            raise ParkedGone from None
        except StoreError as error:
            raise StoreBusy from error

    async def _conversing(
        self, conversation: str, request: Request, meta: RequestMeta, caller: Caller
    ) -> ResponseWaiter:
        begun = await self._engine.conversations.begin(conversation, meta, caller, request)
        if isinstance(begun, ResponseWaiter):
            return begun
        # One process serves a connection, and another one has the conversation of its client.
        await self._engine.forwarding.drop(begun)
        raise ParkedGone

    async def _listen(self, request: Request, meta: RequestMeta, caller: Caller) -> None:
        principal = caller.principal
        client = SessionlessClient(meta, caller.key, self._engine.settings.limits)
        expires = principal.expires if principal is not None else None
        listener = await self._engine.listening.open(client, request, caller, expires)
        self._listeners.add(listener)
        if self._closing:
            listener.stop(ListenerEnd.STOPPED)
        try:
            await deliver(listener, _Sink(self, request))
            if listener.end is ListenerEnd.SLOW:
                # Other requests use the connection, so it cannot be closed: this notification says that changes were
                # lost.
                await self.last(request, dropped_message(request.id, "too many changes wait"))
        finally:
            self._listeners.discard(listener)
            self._engine.listening.leave(listener)

    # Ending

    async def hang_up(self, seconds: float) -> None:
        """End the listeners, let calls finish for so many seconds, then end them; at once if the peer is gone."""
        self._closing = True
        for listener in self._listeners:
            listener.stop(ListenerEnd.STOPPED)
        await self._wait_for_tasks(seconds)
        for waiter in list(self._waiters):
            await self._engine.sessionless.end(waiter.exchange, Cancelled("the connection was closed"))
        await self._wait_for_tasks(self._engine.settings.times.write_stall)
        for task in self._tasks:
            task.cancel()

    async def _wait_for_tasks(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        leaving = loop.create_task(self._gone.wait())
        try:
            while self._tasks and not self._gone.is_set() and loop.time() < deadline:
                await asyncio.wait(
                    {*self._tasks, leaving},
                    timeout=deadline - loop.time(),
                    return_when=asyncio.FIRST_COMPLETED,
                )
        finally:
            leaving.cancel()


class _Sink:
    """A sink: the connection that all requests of a client share."""

    patience: Final = None

    def __init__(self, requests: SessionlessRequests, request: Request) -> None:
        self._requests = requests
        self._request = request

    async def write(self, batch: Batch) -> None:
        messages = batch.messages[:-1] if batch.finished else batch.messages
        for message in messages:
            await self._requests.send(message)
        if batch.finished:
            await self._requests.last(self._request, batch.messages[-1])

    async def silence(self) -> None:
        """Keep waiting: the connection needs no keep-alive."""
