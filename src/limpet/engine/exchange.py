"""An exchange: one request of a client while it is answered. This is the object that a back gets."""

import asyncio
from collections.abc import Mapping
from contextvars import Context
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace
from typing_extensions import override

from limpet.auth import Principal
from limpet.core.exchange import FENCED_STATES, ExchangeInput, ExchangeState, step
from limpet.core.fate import Fate
from limpet.core.ledger import Charge
from limpet.core.rounds import NOTHING_GIVEN, Given
from limpet.engine.caller import Caller
from limpet.engine.session import Session
from limpet.engine.sessionless_client import SessionlessClient
from limpet.engine.writer import ExchangeWriter, SessionWriter
from limpet.errors import Busy, CallEnded
from limpet.ports import CallSpan
from limpet.stores.base import Claim, Store
from limpet.wire.jsonrpc import Request, notification_message

if TYPE_CHECKING:
    from limpet.engine.turn import Turn

Client = Session | SessionlessClient
"""The sender of a request, as the protocol describes it: a session, or the metadata of a request without one."""


class Exchange(Struct, eq=False):
    """Starts at most once, and ends with exactly one terminal message (`core/exchange.py`).

    A call of a session makes an exchange and a writer. Both are structs: msgspec sets their fields without a frame of
    ours, and the 75 bytecodes of their former constructors are gone (of 2,180).
    """

    key: str
    """Made by the server; the client's id is only a label (law 1)."""
    session: Client
    request: Request
    """The request as its client sent it."""
    inner: Request
    """The request as the back reads it: with the server's own names, where clients know others (`backs/shown.py`)."""
    caller: Caller
    writer: ExchangeWriter
    store: Store
    state: ExchangeState = ExchangeState.RUNNING
    """The present state of its life. Only the table changes it."""
    given: Given = NOTHING_GIVEN
    task: asyncio.Task[None] | None = None
    """The task of its handler; None until it starts."""
    progress: float | None = None
    """The last progress that was sent: progress must increase."""
    began: float | None = None
    """When its handler began, while it runs and the calls of the server are watched (`Watch`)."""

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.request.method} {self.state.name.lower()} in {self.session.name}>"
        )

    def drop_request(self, charge: Charge | None = None) -> None:
        """Free the memory of a large request when its handler has ended: the exchange may be kept for long after.

        `charge`: the memory of its answer, while the exchange is kept.
        """
        self.request = self.inner = Request(self.request.id, self.request.method, {})
        self.caller = replace(self.caller, charge=charge)

    def note_progress(self, done: float, total: float | None, message: str | None) -> None:
        """Keep how far a call without a progress token is, if an answer that hands it over may have to say so."""

    @property
    def has_ended(self) -> bool:
        """True if its end is decided. The end may not be stored yet."""
        return self.state >= ExchangeState.ENDING

    @property
    def is_connected(self) -> bool:
        """False if the client's connection is gone, and the client has not come back for the answer."""
        return True

    @property
    def session_key(self) -> str:
        """The key of its session; empty without one."""
        return self.session.record.key

    @property
    def principal(self) -> Principal | None:
        """The principal of the sender; None for an anonymous client."""
        return self.caller.principal

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's headers, by lower-case name; empty if there are none."""
        return self.caller.headers

    def bind(self, span: CallSpan, **facts: str) -> None:
        """Let the span of its request end with this exchange."""
        if self.store.is_shared:
            facts["replica"] = self.store.replica
        span.describe(version=self.session.record.version, **facts)
        span.bind()

    async def notify(self, method: str, params: object = None) -> None:
        """Send a notification that belongs to this exchange. Dropped once the exchange has ended."""
        if self.state < ExchangeState.ENDING:
            await self.writer.send(notification_message(method, params))

    async def ask(
        self, method: str, params: object, *, timeout: float | None = None, key: str | None = None
    ) -> Any:
        """Send the client a request within this exchange and wait for its result.

        `key` is the ask's name in the `inputRequests` that a client of 2026-07-28 receives. Sessions do not use it.

        Raises:
            AskRefused: the client answered with an error.
            AskTimeout: no answer came within `timeout`.
            BackPressureError: too many asks wait already.
            CallEnded: this exchange has ended, or ends before the answer comes.
            NoBackChannel: this response cannot carry an ask.
        """
        if self.has_ended:
            raise CallEnded(method)
        if self.caller.span is None:
            return await self.writer.ask(method, params, timeout, key)
        with self.caller.span.ask(method):
            return await self.writer.ask(method, params, timeout, key)

    async def close_stream(self) -> None:
        """End this exchange's connection now; the client resumes. Does nothing if the revision does not allow that."""


class QueuedStart(Struct, frozen=True):
    """The data of an exchange while it waits for its slot or its turn."""

    context: Context
    """The context variables of its request: it starts from another task."""
    deadline: asyncio.TimerHandle | None = None
    """When it is refused as busy; None where calls run in order, which has its own limit."""


class SessionExchange(Exchange, kw_only=True):
    """An exchange of a session: it has claimed its id in the store. `exchange_of` makes it."""

    if TYPE_CHECKING:
        # Declared once more for type checkers: narrower, or assigned below. To msgspec they would be new fields.
        session: Session
        writer: SessionWriter
        state: ExchangeState

    claim: Claim
    fence: int
    waiting: QueuedStart | None = None
    """None after it has started, and for an exchange that started at once."""
    turn: "Turn | None" = None
    """The parts of it that still run, where calls run in order."""
    refusal: Busy | None = None
    """The error of an exchange that ended before it could start: no slot became free."""

    @property
    def is_fenced(self) -> bool:
        """True if another replica has ended it, or runs it again: its end is in the log."""
        return self.state in FENCED_STATES

    @property
    @override
    def is_connected(self) -> bool:
        return self.writer.fate is not Fate.GONE

    @property
    def is_due(self) -> bool:
        """True if the POST that waits has something to do: the answer is there, or a stream has begun."""
        writer = self.writer
        return writer.terminal is not None or writer.position is not None or self.is_fenced

    def opened(self) -> None:
        """Record that its stream has begun."""
        self.state, _ = step(self.state, ExchangeInput.OPENED)

    async def close_stream(self) -> None:
        """End this exchange's connection now; the client resumes. Does nothing if the revision does not allow that."""
        await self.writer.release()


def exchange_of(
    writer: SessionWriter,
    request: Request,
    caller: Caller,
    state: ExchangeState = ExchangeState.CLAIMED,
) -> SessionExchange:
    """Return the exchange of a claim, which its writer has."""
    claim = writer.claim
    return SessionExchange(
        claim.stream, session=writer.session, request=request, inner=request, caller=caller, writer=writer, store=writer.store,
        state=state, claim=claim, fence=writer.fence,
    )  # fmt: skip
