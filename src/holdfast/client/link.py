"""What every connection of a client has in common: calls under way, and what is done with what comes in.

A link is one conversation: one session of the handshake era, or one pipe. When it is lost another
takes its place; calls never move from one to the other by themselves.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from holdfast.client.calls import Call, Calls
from holdfast.client.incoming import Incoming
from holdfast.errors import Broken, NotSent, WireError
from holdfast.ports import Observer
from holdfast.protocol.sessionless import SUBSCRIPTION_KEY
from holdfast.wire.jsonrpc import Message, Notification, Request, Response, decode


class SessionLost(NotSent):
    """The server does not know the session (any more): the request was turned away unread."""


class Overloaded(Broken):
    """HTTP 429 or 503 without our server's mark: somebody on the way may have sent it, after the request was executed.

    `retry_after` is how many seconds the answer asks the client to wait.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Heard(Protocol):
    """Told of the server's notifications."""

    def __call__(self, notification: Notification, subscription: object) -> None:
        """Take a notification and the subscription it names, if any. Must not wait."""
        ...


class Link(Protocol):
    """One conversation with a server."""

    version: str
    """What is spoken; set by whoever negotiates."""
    is_modern: bool
    lost: bool
    """It carries nothing any more."""

    async def request(self, call: Call, headers: Mapping[str, str]) -> Any:
        """Send a call and return its result.

        Raises:
            McpError: the server answered with an error.
            NotSent: it was certainly not executed.
            Broken: nobody knows whether it was.
        """
        ...

    async def notify(self, message: bytes) -> None:
        """Send a notification.

        Raises:
            LinkError: it did not arrive, or nobody knows.
        """
        ...

    async def settled(self) -> None:
        """The handshake is over: what the server may send by itself from now on is listened for."""
        ...

    async def aclose(self, *, goodbye: bool = True) -> None:
        """End the conversation; with `goodbye` the server is told."""
        ...


class Receiver:
    """Takes what comes in on one link to whom it concerns. Never waits."""

    __slots__ = ("_depth", "_hear", "_incoming", "_observer", "calls")

    def __init__(self, incoming: Incoming, hear: Heard, depth: int, observer: Observer) -> None:
        self.calls: Calls = Calls()
        self._incoming = incoming
        self._hear = hear
        self._depth = depth
        self._observer = observer

    def take(self, link: "Answering", data: bytes) -> None:
        """Take the bytes of one message, or of a batch. What is none is noted and passed over."""
        try:
            message = decode(data, max_depth=self._depth)
        except WireError as error:
            self._observer.note("client.garbage", error=error)
            return
        for one in message if isinstance(message, list) else (message,):
            self.take_message(link, one)

    def take_message(self, link: "Answering", message: Message) -> None:
        match message:
            case Response():
                self.calls.settle(message)
            case Request():
                self._incoming.take(link, message, link.answer)
            case Notification("notifications/progress", params):
                self.calls.progress(params)
            case Notification("notifications/cancelled", params):
                self._incoming.cancel(link, params.get("requestId"))
                self._hear(message, None)
            case Notification():
                meta = message.params.get("_meta")
                self._hear(message, meta.get(SUBSCRIPTION_KEY) if isinstance(meta, dict) else None)

    def forget(self, link: object) -> None:
        """The link is gone."""
        self._incoming.forget(link)


class Answering(Protocol):
    """A link by which answers go back."""

    async def answer(self, message: bytes) -> None:
        """Send the answer to a request of the server's."""
        ...
