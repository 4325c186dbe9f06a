"""Requests of the server: several run at once up to a limit, then they queue, then they are refused as busy (law 10).

The code that receives messages never waits for a handler. Each request runs in its own task, and that task sends the
response. So responses and cancellations always pass, and a handler may itself send a request to the server and get the
result while every slot is taken.

A request may have 16 MiB, so a limit of their number bounds no memory: they are also counted in bytes, while they wait
and until their answer is sent, and refused as busy beyond a limit, or if `charge` has no memory for one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from limpet.core.admission import Admission, Gate
from limpet.errors import INTERNAL_ERROR, Busy, LinkError, McpError, WireError
from limpet.ports import Observer
from limpet.upstream.pending import OutgoingRequest
from limpet.upstream.settings import ClientLimits
from limpet.wire.jsonrpc import Request, RequestId, encode, error_message, refusal, result_message

OnRequest = Callable[[str, dict[str, Any], Sequence[OutgoingRequest]], Awaitable[object]]
"""Answers a request of the server: method, params, and the requests of ours that it can belong to. That is the one
whose HTTP response carried it; on duplexes and on the standalone stream, each one that had no response when it arrived.

Returns the result as anything the encoder takes, `msgspec.Raw` included; raises McpError to refuse the request."""
Ticket = tuple[object, RequestId]
"""A request by its link and id."""
ChargeRequest = Callable[[int], object | None]
"""Returns the object that holds the charge for so many bytes; None: there is no memory for them."""
UNSENT: Final = 1_024
"""Responses to pings, and refusals, that may wait to be sent. A server that does not read them gets no more."""


class Answering(Protocol):
    """The link that a request came on."""

    async def answer(self, message: bytes) -> None:
        """Send the response to a request of the server."""


_Taken = tuple[Answering, Request, Sequence[OutgoingRequest], int, object]
"""The last two: its bytes, and what holds their charge."""


def charge_nothing(size: int) -> object:
    """Hold no charge: there is no limit but the number and the bytes."""
    return size


class IncomingRequests:
    """The requests of the server that are being answered, on every link of one connection."""

    def __init__(
        self,
        on_request: OnRequest,
        limits: ClientLimits,
        observer: Observer,
        charge: ChargeRequest = charge_nothing,
    ) -> None:
        self._on_request = on_request
        self._charge = charge
        self._gate: Gate[Ticket] = Gate(limits.incoming, limits.incoming_queued)
        self._most_bytes = limits.incoming_bytes
        self._bytes = 0
        """The bytes of the requests that are taken."""
        self._waiting: dict[Ticket, _Taken] = {}
        self._running: dict[Ticket, asyncio.Task[None]] = {}
        self._stopped: set[Ticket] = set()
        """The running ones that we have cancelled: they get no answer."""
        self._sending: set[asyncio.Task[None]] = set()
        self._observer = observer

    def __repr__(self) -> str:
        return f"<IncomingRequests {self._gate}>"

    def take(
        self, link: Answering, request: Request, origins: Sequence[OutgoingRequest] = (), *, size: int = 0
    ) -> None:
        """Start, queue or refuse a request of `size` bytes. A second one with the id of a running one is ignored."""
        ticket = (link, request.id)
        if self._has(ticket):
            return
        if request.method == "ping":
            self._reply(link, result_message(request.id, b"{}"))
            return
        # The only one may have any size: otherwise a limit below one legal request would refuse it forever.
        has_room = not (size and self._bytes) or self._bytes + size <= self._most_bytes
        charge = self._charge(size) if has_room else None
        match self._gate.enter(ticket) if charge is not None else Admission.REFUSE:
            case Admission.START:
                self._bytes += size
                self._start(ticket, (link, request, origins, size, charge))
            case Admission.WAIT:
                self._bytes += size
                self._waiting[ticket] = (link, request, origins, size, charge)
            case Admission.REFUSE:
                self._reply(
                    link, refusal(request.id, Busy("Busy: this client answers its limit of requests"))
                )

    def refuse(self, link: Answering, request_id: RequestId, error: WireError) -> None:
        """Answer a request that is not valid. One with the id of a running request is ignored."""
        if not self._has((link, request_id)):
            self._reply(link, error_message(request_id, error.code, error.message))

    def _has(self, ticket: Ticket) -> bool:
        return ticket in self._running or ticket in self._waiting

    def cancel(self, link: object, request_id: object) -> None:
        """Stop answering a request that the server has cancelled."""
        if not isinstance(request_id, int | str):
            return
        ticket = (link, request_id)
        if self._gate.abandon(ticket):
            self._bytes -= self._waiting.pop(ticket)[-2]
        elif ticket in self._running:
            self._stopped.add(ticket)
            self._running[ticket].cancel()

    def forget(self, link: object) -> None:
        """Stop answering the requests of a link that has ended."""
        for ticket in [*self._waiting, *self._running]:
            if ticket[0] is link:
                self.cancel(*ticket)

    async def run(self, method: str, params: dict[str, Any]) -> object:
        """Answer a request that came inside a result (2026-07-28). It takes a slot like any other.

        Raises:
            McpError: the handler refuses it, or the limit is reached.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ticket: Ticket = (turn, 0)
        verdict = self._gate.enter(ticket)
        if verdict is Admission.REFUSE:
            raise Busy("this client answers its limit of requests")
        if verdict is Admission.START:
            turn.set_result(None)
        try:
            await turn
            return await self._on_request(method, params, ())
        finally:
            if not self._gate.abandon(ticket):
                self._next()

    async def aclose(self) -> None:
        """Stop answering."""
        self._waiting.clear()
        self._stopped.update(self._running)
        tasks = {*self._running.values(), *self._sending}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start(self, ticket: Ticket, taken: _Taken) -> None:
        link, request, origins, size, charge = taken
        task = asyncio.get_running_loop().create_task(self._answer(ticket, link, request, origins))
        self._running[ticket] = task
        task.add_done_callback(lambda _done: self._end(ticket, size, charge))

    def _end(self, ticket: Ticket, size: int, _charge: object) -> None:
        del self._running[ticket]
        self._bytes -= size
        self._stopped.discard(ticket)
        self._next()

    def _next(self) -> None:
        while (following := self._gate.leave()) is not None:
            if isinstance(following[0], asyncio.Future):
                # A call of `run`. Its own task waits for the slot and gives it back, also if it was cancelled just now.
                if not following[0].done():
                    following[0].set_result(None)
                return
            queued = self._waiting.pop(following, None)
            if queued is not None:
                self._start(following, queued)
                return

    async def _answer(
        self, ticket: Ticket, link: Answering, request: Request, origins: Sequence[OutgoingRequest]
    ) -> None:
        try:
            result = await self._on_request(request.method, request.params, origins)
            answer = result_message(request.id, encode(result))
        except McpError as error:
            answer = refusal(request.id, error)
        except (Exception, asyncio.CancelledError) as error:
            # The server gets an error, and the connection continues.
            if ticket in self._stopped:
                raise
            self._observer.note("client.handler_failed", method=request.method, error=error)
            answer = refusal(request.id, McpError(INTERNAL_ERROR, f"Internal error: {type(error).__name__}"))
        if ticket in self._stopped:
            return
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # The handler has cancelled its own task: the cancellation may be raised at the next await here.
            self._reply(link, answer)
        else:
            await self._send(link, answer)

    def _reply(self, link: Answering, answer: bytes) -> None:
        if len(self._sending) >= UNSENT:
            self._observer.note("client.answer_lost", error="too many responses are unsent")
            return
        task = asyncio.get_running_loop().create_task(self._send(link, answer))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, link: Answering, answer: bytes) -> None:
        try:
            await link.answer(answer)
        except LinkError as error:
            self._observer.note("client.answer_lost", error=error)
