"""One client request being answered: what a back is given to answer it with."""

import asyncio
from collections.abc import Mapping
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.auth import Principal
from holdfast.core.budget import Charge
from holdfast.engine.session import Session
from holdfast.engine.sessionless_client import SessionlessClient
from holdfast.engine.writer import ExchangeWriter, LogWriter, SessionWriter
from holdfast.stores.base import Claim, Store
from holdfast.wire.jsonrpc import Request, notification_message

if TYPE_CHECKING:
    from holdfast.engine.turns import Turn

Client = Session | SessionlessClient
"""Who a request is from, as far as the protocol knows it: a session, or a guest of one request."""


class Caller(Struct, frozen=True):
    """Who sends a request: the key its sessions are bound to, who that is, and the request's headers."""

    key: str
    principal: Principal | None = None
    headers: Mapping[str, str] = {}
    charge: Charge | None = None
    """What the message costs in memory, where it is large; free when this and its copies go (`load.py`)."""


class Given(Struct, frozen=True):
    """What an earlier round by hand left for this call of the handler: its state and the client's answers."""

    state: str | None = None
    answers: Mapping[str, Any] = {}


NOTHING_GIVEN: Final = Given()


class Exchange:
    """What a back is given. Starts at most once, ends with exactly one terminal message."""

    __slots__ = ("caller", "given", "key", "request", "session", "settled", "store", "task", "writer")

    session: Client
    writer: ExchangeWriter

    def __init__(
        self,
        key: str,
        session: Client,
        request: Request,
        caller: Caller,
        writer: ExchangeWriter,
        store: Store,
    ) -> None:
        self.key: str = key
        """Minted by us; the client's id is only a label (law 1)."""
        self.session = session
        self.request: Request = request
        self.caller: Caller = caller
        self.writer = writer
        self.store: Store = store
        self.given: Given = NOTHING_GIVEN
        self.settled: bool = False
        self.task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = "settled" if self.settled else "running" if self.task else "queued"
        return f"<{type(self).__name__} {self.request.method} {state} in {self.session.name}>"

    def let_go(self) -> None:
        """Drop what a large request brought, once its handler has ended: the exchange may be kept for long after."""
        self.request = Request(self.request.id, self.request.method, {})
        self.caller = replace(self.caller, charge=None)

    @property
    def principal(self) -> Principal | None:
        """Who sent this request; None for an anonymous client."""
        return self.caller.principal

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's headers, by lower-case name; empty where there are none."""
        return self.caller.headers

    async def notify(self, method: str, params: object = None) -> None:
        """Send a notification that belongs to this exchange. Dropped once it is settled."""
        if not self.settled:
            await self.writer.send(notification_message(method, params))

    async def ask(
        self, method: str, params: object, *, timeout: float | None = None, key: str | None = None
    ) -> Any:
        """Send the client a request within this exchange and wait for its result.

        `key` names the ask for clients of 2026-07-28, which see one; others do not.

        Raises:
            AskRefused, AskTimeout, BackPressureError, NoBackChannel: as their names say.
        """
        return await self.writer.ask(method, params, timeout, key)

    async def close_stream(self) -> None:
        """End this exchange's connection now; the client comes back for the rest. Nothing where that is not allowed."""


class SessionExchange(Exchange):
    """An exchange of a session: it has claimed its id in the store."""

    __slots__ = ("busy", "claim", "context", "deadline", "fence", "is_rerun", "turn")

    session: Session
    writer: SessionWriter

    def __init__(
        self,
        store: Store,
        session: Session,
        request: Request,
        claim: Claim,
        fence: int,
        writer: SessionWriter,
        caller: Caller,
    ) -> None:
        # Not by super(), which makes an object for each request.
        Exchange.__init__(self, claim.stream, session, request, caller, writer, store)
        self.claim: Claim = claim
        self.fence: int = fence
        self.context: Context | None = None
        """While it waits for a slot: the context variables of its request. It starts in another task's."""
        self.deadline: asyncio.TimerHandle | None = None
        """While it waits for a slot: when it is refused as busy."""
        self.turn: Turn | None = None
        """What still runs of it, where calls run in order."""
        self.busy: bool = False
        """It was refused because no slot became free."""
        self.is_rerun: bool = False
        """It had begun at a replica that died: whether it has had its effect is not known."""

    @property
    def log_writer(self) -> LogWriter:
        """The exchange's stream; only exchanges of the HTTP front have one."""
        if not isinstance(self.writer, LogWriter):
            raise TypeError("this exchange writes to a connection, not to a stream")
        return self.writer

    async def close_stream(self) -> None:
        """End this exchange's connection now; the client comes back for the rest. Nothing where that is not allowed."""
        if isinstance(self.writer, LogWriter) and self.session.revision.early_close and self.writer.streams:
            await self.writer.open()
            self.writer.release_reader()
