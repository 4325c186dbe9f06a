"""The work of every link to a server, and the ways of its messages.

A link is one conversation with a server: one session (2025-03-26 to 2025-11-25), the sessionless conversation of
2026-07-28 over HTTP, or one duplex. When a link ends, the connection opens another one. A request never moves
from one link to another by itself: `retries.py` decides whether it is sent again.

The end of a link is reported exactly once, with its reason (`LinkEnd`). An HTTP link ends when the server no longer
knows its session (`http_link.py`), or when we close it. A server that cannot be reached does not end it: each request
then fails by itself. A duplex link ends when the other side closes its output.
"""

import sys
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct

from limpet.errors import INTERNAL_ERROR, Broken, LimpetError, NotSent, WireError
from limpet.ports import Observer
from limpet.protocol.params import cancellation_reason
from limpet.upstream.incoming import IncomingRequests
from limpet.upstream.pending import OutgoingRequest, PendingRequests
from limpet.wire.jsonrpc import Message, Notification, Request, RequestId, Response
from limpet.wire.lines import FREE, Reserve
from limpet.wire.shape import cost
from limpet.wire.unreadable import Recognised, recognise


class SessionLost(NotSent):
    """The server does not know the session, so it did not execute the request: HTTP 404, or 400 to a ping too."""


class Doubtful(LimpetError):
    """HTTP 400 within a session: the server refuses this message, or does not know the session.

    `reason` is the refusal: an `McpError` or an `HttpRefused`.
    """

    def __init__(self, reason: LimpetError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Overloaded(Broken):
    """HTTP 429 or 503 without our server's mark: a balancer may have sent it after the request was executed.

    `retry_after` is how many seconds the response asks the client to wait.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class EndReason(Enum):
    """Why a link ended."""

    CLOSED = "closed by us"
    SESSION_GONE = "the server does not know the session (HTTP 404 or 400)"
    PROCESS_EXITED = "the server's process exited"
    CONNECTION_LOST = "the server closed the connection"


class LinkEnd(Struct, frozen=True, kw_only=True):
    """The end of a link."""

    reason: EndReason
    message: str = ""
    """A text for logs and errors. For a child process it contains the last lines of its stderr."""
    exit_status: int | None = None
    """The exit status of a child process; negative: the signal that ended it."""


OnNotification = Callable[[Notification, OutgoingRequest | None], None]
"""Receives each notification except progress, and the request whose HTTP response carried it. The request is None on
duplexes and on the standalone stream, where it is unknown. Must not wait and must not raise."""
OnEnd = Callable[[LinkEnd], None]
Decode = Callable[[bytes], Message | list[Message]]
LARGEST_BATCH: Final = 100
"""An invalid batch with more messages is dropped as a whole: reading each message by itself would take too long."""
_decode_batch = msgspec.json.Decoder(list[msgspec.Raw]).decode


class UpstreamLink(Protocol):
    """One conversation with a server."""

    version: str
    """The protocol version of this link; the negotiation sets it."""
    is_sessionless: bool
    """True for 2026-07-28."""
    lost: bool
    """True if the link has ended, or is about to be replaced: no new request may use it."""
    receiver: "Receiver"

    async def request(self, request: OutgoingRequest) -> Any:
        """Send a request and return its result. Cancelling this call cancels the request at the server.

        Raises:
            McpError: the server answered with an error.
            NotSent: the server certainly did not execute the request.
            Broken: it is unknown whether the server executed it.
        """

    async def notify(self, message: bytes) -> None:
        """Send a notification.

        Raises:
            LinkError: the server did not receive it, or it is unknown whether it did.
        """

    async def answer(self, message: bytes) -> None:
        """Send the response to a request of the server."""

    async def settled(self) -> None:
        """Start to listen for messages that belong to no request. Called when the negotiation is over."""

    async def aclose(self, *, goodbye: bool = True) -> None:
        """End the conversation. With `goodbye` a session is deleted at the server."""


class Receiver:
    """Gives each message of one link to the code it is for. Never waits."""

    __slots__ = (
        "_incoming",
        "_observer",
        "_on_end",
        "_on_notification",
        "decode",
        "end",
        "on_missed",
        "pending",
        "reserve",
        "standalone",
    )

    def __init__(
        self,
        incoming: IncomingRequests,
        on_notification: OnNotification,
        decode: Decode,
        observer: Observer,
    ) -> None:
        self.pending: PendingRequests = PendingRequests()
        self.decode: Decode = decode
        self.end: LinkEnd | None = None
        """None while the link works."""
        self.standalone: object | None = object()
        """An object for the standalone stream, on which the server reports changes outside of calls; None while it is
        closed. After a
        break it is another object: a change may have been missed."""
        self.reserve: Reserve | None = None
        """For a long message that belongs to no request and is being read; None: there is no limit but its length."""
        self.on_missed: Callable[[], None] | None = None
        """Called when that stream is open again after a break, and could not be resumed."""
        self._on_end: OnEnd | None = None
        self._incoming = incoming
        self._on_notification = on_notification
        self._observer = observer

    def take(self, link: UpstreamLink, data: bytes, origin: OutgoingRequest | None = None) -> None:
        """Take the bytes of one message or of a batch.

        Bytes that are not a valid message are noted, and `refuse` ends the request that they belong to. Each message of
        a batch counts by itself.

        `origin` is the request whose HTTP response carried the message.
        """
        try:
            message = self.decode(data)
        except WireError as error:
            messages = _messages_of_batch(data)
            for single in messages:
                self.take(link, single, origin)
            if not messages:
                self._observer.note("client.garbage", error=error)
                self.refuse(link, recognise(data), error)
            return
        self.take_decoded(link, message, data, origin)

    def take_decoded(
        self,
        link: UpstreamLink,
        message: Message | list[Message],
        data: bytes,
        origin: OutgoingRequest | None,
    ) -> None:
        """Take what `data` was decoded to."""
        if type(message) is Response:
            self.pending.settle(message)
            return
        for one in message if isinstance(message, list) else (message,):
            size = 0
            if data and isinstance(one, Request):
                # The requests of a batch share the cost of the batch: the first one is charged for all.
                size, data = cost(data, sys.maxsize), b""
            self._take_message(link, one, origin, size)

    def keep(self, size: int) -> None:
        """Charge the bytes of a message that belongs to no request and is not complete; 0: there is none.

        Raises:
            WireError: there is no memory for it.
        """
        if self.reserve is not None and not self.reserve(size if size >= FREE else 0):
            raise WireError(INTERNAL_ERROR, "there is no memory for a message of the server")

    def refuse(self, link: UpstreamLink, found: Recognised | None, error: WireError) -> None:
        """End the request that an invalid message belongs to.

        A response: our request fails, because no other response will come. A request: the server gets an error.
        """
        if found is None:
            return
        number, is_request = found
        if is_request and link.is_sessionless:
            self._drop(number)
        elif is_request:
            self._incoming.refuse(link, number, error)
        elif (request := self.pending.find(number)) is not None:
            request.fail_unreadable(error)

    def _take_message(
        self, link: UpstreamLink, message: Message, origin: OutgoingRequest | None, size: int
    ) -> None:
        """Pass a decoded message on. `size` is its cost in memory; it matters for requests."""
        match message:
            case Response():
                self.pending.settle(message)
            case Request() if link.is_sessionless:
                self._drop(message.id)
            case Request():
                origins = self.pending.unanswered() if origin is None else (origin,)
                self._incoming.take(link, message, origins, size=size)
            case Notification("notifications/progress", params):
                self.pending.progress(params)
            case Notification():
                if message.method == "notifications/cancelled":
                    if reason := cancellation_reason(message.params):
                        self._observer.note("client.request_cancelled", reason=reason)
                    self._incoming.cancel(link, message.params.get("requestId"))
                self._on_notification(message, origin)

    def _drop(self, number: RequestId) -> None:
        """Drop a request of a server of 2026-07-28: the server may not send one, and a client may not respond."""
        self._observer.note("client.request_dropped", request=number)

    def ended(self, link: UpstreamLink, end: LinkEnd) -> None:
        """Cancel the server's requests on a link that has ended. Only the first end is reported."""
        self._incoming.forget(link)
        if self.end is None:
            self.end = end
            if self._on_end is not None:
                self._on_end(end)

    def when_ended(self, on_end: OnEnd) -> None:
        """Report the end of the link once: now, if it has ended already."""
        self._on_end = on_end
        if self.end is not None:
            on_end(self.end)


def _messages_of_batch(data: bytes) -> list[bytes]:
    """Return the objects of a batch; empty if the text is not a batch, or has more than LARGEST_BATCH messages."""
    try:
        found = _decode_batch(data)
    except (msgspec.DecodeError, RecursionError):
        return []
    return [bytes(one) for one in found if bytes(one).startswith(b"{")] if len(found) <= LARGEST_BATCH else []
