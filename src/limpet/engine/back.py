"""The contract between the engine and a back, the part that answers.

Every call is asynchronous and names the client it is made for: a back in front of another server has one connection
for each client, and may have to open it first. A back acts outside of any exchange only through `Outside`.
"""

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

from limpet.core.ledger import Charge
from limpet.core.lifecycle import SessionInput
from limpet.engine.access import Access
from limpet.engine.caller import Caller
from limpet.engine.exchange import Exchange
from limpet.engine.session import Session
from limpet.engine.sessionless_client import SessionlessClient
from limpet.errors import LifespanEnded
from limpet.protocol.mirrored_headers import MirroredParameter
from limpet.protocol.sessionless import RequestMeta
from limpet.protocol.subscriptions import Change, Filter, Key, Kind
from limpet.stores.base import SessionRecord
from limpet.wire.jsonrpc import Request


class Outside(Protocol):
    """The actions of a back outside of any exchange. The engine provides them."""

    async def notify(self, key: str, method: str, params: object) -> None:
        """Send a notification on the standalone stream of a session. Nothing happens if the session is closed."""

    def changed(self, change: Change, principal: str | None = None) -> None:
        """Report a change to sessions and listeners; with a principal, only to its own. Does not wait; none is lost."""

    def changed_for(self, key: str, change: Change) -> None:
        """Report a change to one session. Does not wait; none is lost."""

    async def ask(self, record: SessionRecord, method: str, params: object) -> Any:
        """Ask the client of a session on its standalone stream, and wait for its result.

        Raises:
            AskError: the client gave no result.
        """

    def is_read(self, key: str) -> bool:
        """Return True if a connection to this process reads a session's standalone stream, or carries all messages."""

    def listened(self, principal: str) -> set[Key]:
        """Return the changes that the present listeners of a principal asked for (2026-07-28)."""

    def charge(self, caller: Caller, size: int, *, urgent: bool = False) -> Charge | None:
        """Take memory for something that the back keeps for a caller (`core/ledger.py`); None: there is no room.

        `urgent`: it belongs to a call that runs.
        """

    def close(self, key: str) -> None:
        """Close a session soon: the back cannot serve it any more."""

    def failed(self, failure: LifespanEnded) -> None:
        """Report that the back cannot answer any more: the engine drains and refuses new work, and its process ends."""

    async def confirm_home(self, key: str) -> bool:
        """Return False if a session is closed, or has another home: this process may release what it has for it.

        The back asks from time to time, because the wake-up that leads to a call of `left` may be lost.
        """

    async def subscriptions(self, key: str) -> list[str]:
        """Return the resources that a session subscribed to: a new upstream subscribes to them again."""


Described = dict[str, Any] | Awaitable[dict[str, Any]]
"""The description of a server, or the wait for it."""


class Back(Protocol):
    """Answers exchanges. Called in the engine's tasks, concurrently."""

    @property
    def has_home(self) -> bool:
        """True if the back keeps something for a session that can exist in one process only, such as a child process.

        Then one replica, the home, answers all requests of a session. The value does not change after the start.
        """

    @property
    def access(self) -> Access:
        """The scopes that requests need. The engine checks them before it claims or runs anything."""

    async def start(self, outside: Outside) -> None:
        """Get ready. Called once, before every other call."""

    async def stop(self) -> None:
        """Release everything. Called once, after every other call."""

    def initialize(self, record: SessionRecord, caller: Caller) -> Described:
        """Return the members of an initialize result besides `protocolVersion`, or a coroutine that returns them.

        The session is not stored yet. A back that keeps something for it returns a coroutine: `dropped` may not be
        called for a session that was described at once.

        Raises:
            McpError: this client cannot be served; there will be no session.
        """

    async def dropped(self, record: SessionRecord) -> None:
        """Forget a session that was initialized but not stored: no other call will name it."""

    @property
    def server_info(self) -> Any:
        """Name and version of the server, for the `_meta` of results that the engine makes itself."""

    def mirrored(self, request: Request, meta: RequestMeta, caller: Caller) -> tuple[MirroredParameter, ...]:
        """Return the parameters of a request that its headers must mirror (2026-07-28)."""

    def lists(self, key: str) -> Sequence[Kind]:
        """Return the lists that a session may have to read again when events of its stream were dropped."""

    async def honoured(self, client: SessionlessClient, wanted: Filter, caller: Caller) -> Filter:
        """Return the part of a listener's filter that this client will receive (2026-07-28)."""

    async def handle(self, exchange: Exchange) -> bytes:
        """Return the encoded result. Any exception becomes the exchange's error.

        Raises:
            McpError: to answer with that code and message; anything else is masked.
        """

    async def notify(self, session: Session, method: str, params: dict[str, Any]) -> None:
        """Take a notification of the client."""

    # Lifecycle. The calls for one session come in order, and no request waits for them. `opened`, `detached` and
    # `reattached` come at most once for each transition. `closed` comes at least once if the store is shared: after the
    # death of a replica that was about to report it, another one reports it again.

    @property
    def hears_opened(self) -> bool:
        """False if `opened` would do nothing: the engine does not call it then, which saves two tasks."""

    async def opened(self, session: Session) -> None:
        """A session was opened."""

    async def detached(self, session: Session) -> None:
        """A session has lost its last reader, and its grace period has begun."""

    async def reattached(self, session: Session) -> None:
        """The client came back within the grace period."""

    async def closed(self, session: Session, reason: SessionInput) -> None:
        """A session was closed."""

    # Homes: called only if `has_home` is True and the store is shared.

    async def moved(self, record: SessionRecord) -> None:
        """This replica is the home of a session from now on; the former home is gone or is stopping.

        Raises:
            SessionGone: the session cannot continue here; the engine closes it.
        """

    async def serve(self, record: SessionRecord, caller: Caller) -> None:
        """Begin to serve a session that has moved here before its next request: its client listens, as this caller.

        Raises:
            McpError: it cannot be served now; the engine tries again later.
        """

    async def left(self, key: str) -> None:
        """Another replica has closed the session or is its home: release everything that this process has for it."""
