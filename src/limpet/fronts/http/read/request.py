"""The arguments of the front: a plain request, and the channel to its client.

There is one front. `limpet serve` calls it with channels of its sockets (`http1/`), an ASGI host with a channel over
`receive` and `send` (`asgi_host/`). Both give the same two objects, so no decision of the front depends on the server.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol, Self
from weakref import ref

from msgspec import Struct
from msgspec.structs import replace

from limpet.auth import Principal
from limpet.core.ledger import Account
from limpet.fronts.http.read.head import Head, RawHeaders

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

AT_ONCE: Final = 65_536
"""The longest answer that its client has taken when it is written. A longer one is taken when no more bytes of it
wait."""


_LONGEST_ID: Final = 128
"""The characters of a session id that are read: our ids are shorter, so a longer text is unknown."""


class Gone(ConnectionError):
    """The client's connection is gone, or takes no bytes."""


class RawRequest(Struct, eq=False):
    """The head of a request. It does not change, so one object may serve several requests with equal heads."""

    method: str
    path: str
    """Below the mount point, unquoted, without the query."""
    head: Head
    """The headers; their names are in lower case."""
    client: str | None
    """The address of the client; None: it is not known, or the socket is a Unix socket."""
    # The values that every request needs are read once: a connection sends the same head again and again.
    version: str
    session_id: str
    has_origin: bool
    known: tuple[ref[Principal], float] | None = None
    """The principal of this head's token, and the date until which it need not be checked again (`Identities`)."""
    account: Account | None = None
    """The account that its messages are charged to, if it was needed."""
    passed: object = None
    """The rules that this head has passed (`HttpFront`), so that an equal head is not checked again."""

    @classmethod
    def of(cls, method: str, path: str, headers: RawHeaders, client: str | None) -> Self:
        """Return the request of these headers."""
        head = Head(headers)
        version = head.text(b"mcp-protocol-version")
        session_id = head.text(b"mcp-session-id")[:_LONGEST_ID]
        return cls(method, path, head, client, version, session_id, head.has(b"origin"))

    def changed(self, values: dict[bytes, bytes]) -> Self:
        """Return this request with other values of headers that were sent once; `HeadRules` reads none of them."""
        other = replace(self, head=self.head.changed(values))
        if b"mcp-protocol-version" in values:
            other.version = values[b"mcp-protocol-version"].decode("latin-1")
        if b"mcp-session-id" in values:
            other.session_id = values[b"mcp-session-id"][:_LONGEST_ID].decode("latin-1")
            other.account = None
        if b"x-forwarded-for" in values:
            # The rules read the address of the client, which a trusted proxy reports in this header.
            other.account = other.passed = None
        if b"authorization" in values:
            # A principal belongs to its token. With another token it is not known yet.
            other.account = other.known = None
        return other


class Channel(Protocol):
    """The body of one request, and the connection for its response.

    Methods that cannot wait return at once. A method that sends raises `OSError` if it knows that the client is gone.
    """

    def take_body(self) -> bytes | None:
        """Return the whole body if it has arrived; None: use `read`."""

    async def read(self) -> tuple[bytes, bool]:
        """Return the next part of the body, and whether more follows.

        Raises:
            Gone: the client has disconnected.
        """

    def answer_ok(self, body: bytes, *, is_event: bool) -> bool:
        """Write a JSON body or one event with status 200, as `answer` does."""

    def answer(self, status: int, headers: RawHeaders, body: bytes) -> bool:
        """Write a whole answer at once; False, with nothing written, if it cannot be done this way: use `send`.

        The headers must contain the length of the body, and come from this package: they are not checked.
        """

    async def send(self, status: int, headers: RawHeaders, body: bytes) -> None:
        """Send a whole answer."""

    async def start(self, status: int, headers: RawHeaders) -> None:
        """Begin a response whose body follows in parts."""

    async def write(self, part: bytes) -> None:
        """Send a part of the body."""

    def write_nowait(self, part: bytes) -> bool:
        """Send a part of the body if it need not wait; False, with nothing written: use `write`."""

    async def end(self) -> None:
        """Complete the body, after the client has taken most of it."""

    def is_flowing(self) -> bool:
        """True if the next part is written without waiting."""

    def watch(self, on_gone: Callable[[], None]) -> None:
        """Call `on_gone` if the client disconnects before the response is complete."""

    def close(self) -> None:
        """Stop watching: the request has been served."""

    def is_closing(self) -> bool:
        """True if the connection is known to be gone."""

    def may_be_gone(self) -> bool:
        """True if the client is gone, or may be: it has closed its side. An answer is then kept for a repeat."""

    def abort(self) -> None:
        """Close the connection and drop its buffered bytes, where the server allows it."""

    def is_taken(self) -> bool | None:
        """True if the other side has acknowledged all written bytes; None: it cannot be known."""

    def taken(self) -> int | None:
        """Return a number that grows while the client takes bytes.

        None: no write has to wait, or it cannot be known.
        """

    def asgi(self) -> tuple[Scope, Receive, Send]:
        """Return the request in the form of ASGI, for an author's route."""
