"""Requests of ours that wait for their response.

A connection never uses an id twice, also not on its next link. So a response that arrives late, or on the stream of
another request, finds its own request or none.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from limpet.errors import (
    ANSWER_DROPPED,
    OUTCOME_UNKNOWN,
    BadAnswer,
    LineTooLong,
    McpError,
    OutcomeUnknown,
    WireError,
)
from limpet.protocol.idempotency import KEY
from limpet.wire.jsonrpc import Response, notification_message

NO_HEADERS: Final[Mapping[str, str]] = {}
OnProgress = Callable[[dict[str, Any]], None]
"""Receives the params of each progress notification of one request. Must not wait and must not raise."""


class OutgoingRequest:
    """One request and the future that receives its result."""

    __slots__ = ("answer", "headers", "id", "method", "on_progress", "owner", "params", "reader")

    def __init__(
        self,
        number: int,
        method: str,
        params: dict[str, Any],
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        on_progress: OnProgress | None = None,
        owner: object = None,
    ) -> None:
        self.id: int = number
        self.method: str = method
        self.params: dict[str, Any] = params
        self.headers: Mapping[str, str] = headers
        """HTTP headers of this request only, by lower-case name. A duplex ignores them."""
        self.on_progress: OnProgress | None = on_progress
        self.owner: object = owner
        """Any object of the caller. It finds its request again by this in callbacks. It may have the methods `room` and
        `received`."""
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.reader: asyncio.Task[Any] | None = None
        """A task that waits for something else than `answer`: it is cancelled when that is there."""

    def __repr__(self) -> str:
        return f"<OutgoingRequest {self.id} {self.method}>"

    @property
    def key(self) -> str:
        """The idempotency key of the request; empty if it has none."""
        meta = self.params.get("_meta")
        return meta.get(KEY, "") if isinstance(meta, dict) else ""

    @property
    def is_cancellable(self) -> bool:
        """False if the specification forbids its cancellation: it is `initialize`, or it was answered."""
        was_answered = self.answer.done() and not self.answer.cancelled()
        return self.method != "initialize" and not was_answered

    def room(self) -> Awaitable[None] | None:
        """Return None, or an awaitable for the time at which the owner can take more messages of this request."""
        room = getattr(self.owner, "room", None)
        return None if room is None else room()

    def received(self, size: int) -> None:
        """Tell the owner, if it has a method `received`, how many bytes have arrived that are not taken yet.

        It may raise, to stop the reading.
        """
        if self.owner is not None and (received := getattr(self.owner, "received", None)) is not None:
            received(size)

    def cancellation(self, cancelled: asyncio.CancelledError) -> bytes:
        """Return the notification that cancels the request. Its reason is the argument of `Task.cancel`."""
        reason = str(cancelled.args[0]) if cancelled.args else "cancelled by the caller"
        params: dict[str, Any] = {"requestId": self.id, "reason": reason}
        if self.key:
            params["_meta"] = {KEY: self.key}
        return notification_message("notifications/cancelled", params)

    def settle(self, response: Response) -> None:
        """Accept the response. A second response is ignored."""
        if self.answer.done():
            return
        if response.error is not None:
            self.fail(error_of(response.error))
            return
        self.answer.set_result(response.result)
        if self.reader is not None:
            self.reader.cancel()

    def fail(self, error: Exception) -> None:
        """End without a response."""
        if not self.answer.done():
            self.answer.set_exception(error)
            if self.reader is not None:
                self.reader.cancel()

    def fail_unreadable(self, error: WireError) -> None:
        """End because the response cannot be read. There will be no other response."""
        if isinstance(error, LineTooLong) and not error.has_room:
            self.fail(OutcomeUnknown(ANSWER_DROPPED))
            return
        self.fail(BadAnswer(f"the answer to {self.method} cannot be read: {error}"))


class PendingRequests(dict[int | str, OutgoingRequest]):
    """The requests of one link by id."""

    __slots__ = ()

    def find(self, request_id: object) -> OutgoingRequest | None:
        """Return the request with this id; None if it is not waiting."""
        return self.get(request_id) if isinstance(request_id, int | str) else None

    def unanswered(self) -> tuple[OutgoingRequest, ...]:
        """Return the requests that have no response yet, oldest first."""
        return tuple(request for request in self.values() if not request.answer.done())

    def remove(self, request: OutgoingRequest) -> None:
        """Forget a request. A response that arrives later is ignored."""
        self.pop(request.id, None)
        if request.answer.done() and not request.answer.cancelled():
            # Read the exception, or asyncio logs that it was never retrieved.
            request.answer.exception()

    def settle(self, response: Response) -> None:
        """Give a response to its request."""
        request = self.get(response.id)
        if request is not None:
            request.settle(response)

    def progress(self, params: dict[str, Any]) -> None:
        """Give progress to the request whose id is the token."""
        request = self.find(params.get("progressToken"))
        if request is not None and request.on_progress is not None:
            request.on_progress(params)

    def fail_all(self, make: Callable[[OutgoingRequest], Exception]) -> None:
        """End every request without a response."""
        for request in list(self.values()):
            request.fail(make(request))


def error_of(error: dict[str, Any]) -> McpError:
    """Return the exception for a JSON-RPC error object."""
    code, message, data = error["code"], error["message"], error.get("data")
    if code == OUTCOME_UNKNOWN:
        unknown = OutcomeUnknown(message)
        unknown.data = data
        return unknown
    return McpError(code, message, data)
