"""The server's requests: many at once up to a bound, then queued, then refused as busy (law 10).

Whoever receives never waits for a handler: a request is a task of its own or waits its turn here,
and its answer is sent by that task. So responses and cancellations always pass, and a handler that
calls the server back gets its answer though every place is taken.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from holdfast.core.admission import Admission, Gate
from holdfast.errors import INTERNAL_ERROR, Busy, LinkError, McpError
from holdfast.ports import Observer
from holdfast.wire.jsonrpc import Request, RequestId, encode, refusal, result_message

Handle = Callable[[str, dict[str, Any]], Awaitable[object]]
"""Answers a request by method and params; raises McpError to refuse it."""
Send = Callable[[bytes], Awaitable[None]]
"""Carries an answer back on the connection that the request came by."""
Ticket = tuple[object, RequestId]
"""A request by its connection and id."""
OWED: Final = 1_024
"""Pongs and refusals that may be unsent; a server that asks for more and takes none gets none."""


class Incoming:
    """The requests of the server's that are being answered, over every connection of one client."""

    def __init__(self, handle: Handle, places: int, queue: int, observer: Observer) -> None:
        self._handle = handle
        self._gate: Gate[Ticket] = Gate(places, queue)
        self._waiting: dict[Ticket, tuple[Request, Send]] = {}
        self._running: dict[Ticket, asyncio.Task[None]] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._observer = observer

    def __repr__(self) -> str:
        return f"<Incoming {self._gate}>"

    def take(self, connection: object, request: Request, send: Send) -> None:
        """Start, queue or refuse a request. The same one again while it is under way is passed over."""
        ticket = (connection, request.id)
        if ticket in self._running or ticket in self._waiting:
            return
        if request.method == "ping":
            self._reply(send, result_message(request.id, b"{}"))
            return
        match self._gate.enter(ticket):
            case Admission.START:
                self._start(ticket, request, send)
            case Admission.WAIT:
                self._waiting[ticket] = (request, send)
            case Admission.REFUSE:
                self._reply(send, refusal(request.id, Busy("Busy: this client answers enough already")))

    def cancel(self, connection: object, request_id: object) -> None:
        """The server no longer wants an answer."""
        if not isinstance(request_id, int | str):
            return
        ticket = (connection, request_id)
        if self._gate.abandon(ticket):
            del self._waiting[ticket]
        elif ticket in self._running:
            self._running[ticket].cancel()

    def forget(self, connection: object) -> None:
        """A connection is gone, and with it whoever waited for answers on it."""
        for ticket in [*self._waiting, *self._running]:
            if ticket[0] is connection:
                self.cancel(*ticket)

    async def run(self, method: str, params: dict[str, Any]) -> object:
        """Answer a request that came inside a result (2026-07-28); it takes a place like any other.

        Raises:
            McpError: nobody here answers it, or the bound is reached.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ticket: Ticket = (turn, 0)
        verdict = self._gate.enter(ticket)
        if verdict is Admission.REFUSE:
            raise Busy("this client answers enough already")
        if verdict is Admission.START:
            turn.set_result(None)
        try:
            await turn
            return await self._handle(method, params)
        finally:
            if not self._gate.abandon(ticket):
                self._next()

    async def aclose(self) -> None:
        """Stop answering."""
        self._waiting.clear()
        tasks = {*self._running.values(), *self._sending}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start(self, ticket: Ticket, request: Request, send: Send) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(request, send))
        self._running[ticket] = task
        task.add_done_callback(lambda _done: self._ended(ticket))

    def _ended(self, ticket: Ticket) -> None:
        del self._running[ticket]
        self._next()

    def _next(self) -> None:
        following = self._gate.leave()
        if following is None:
            return
        if isinstance(following[0], asyncio.Future):
            # A round of ours: it waits for its turn in its own task, and gives the place back there,
            # also when it was cancelled in this very moment.
            if not following[0].done():
                following[0].set_result(None)
            return
        queued = self._waiting.pop(following, None)
        if queued is None:
            self._next()
        else:
            self._start(following, *queued)

    async def _answer(self, request: Request, send: Send) -> None:
        try:
            answer = result_message(request.id, encode(await self._handle(request.method, request.params)))
        except McpError as error:
            answer = refusal(request.id, error)
        except Exception as error:  # noqa: BLE001 - the server hears of it, and nothing else ends
            self._observer.note("client.handler_failed", method=request.method, error=error)
            answer = refusal(request.id, McpError(INTERNAL_ERROR, f"Internal error: {type(error).__name__}"))
        await self._send(send, answer)

    def _reply(self, send: Send, answer: bytes) -> None:
        if len(self._sending) >= OWED:
            self._observer.note("client.answer_lost", error="too many answers are unsent")
            return
        task = asyncio.get_running_loop().create_task(self._send(send, answer))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, send: Send, answer: bytes) -> None:
        try:
            await send(answer)
        except LinkError as error:
            self._observer.note("client.answer_lost", error=error)
