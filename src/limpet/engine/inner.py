"""An inner exchange: the call itself, while another exchange answers its request (`hand_over.py`).

Its messages and asks pass through the exchange of the request until the call is handed over. From then on the call is a
task: its progress and asks go into the store, and nothing of the connection or the session is left in it.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from limpet.core.exchange import ExchangeInput, ExchangeState, step
from limpet.engine.caller import Caller
from limpet.engine.exchange import Client, Exchange
from limpet.engine.rounds import RoundWriter
from limpet.engine.writer import ExchangeWriter
from limpet.errors import Busy, CallEnded
from limpet.protocol.tasks import Progress, progress_of
from limpet.wire.jsonrpc import Request


class InnerExchange(Exchange, kw_only=True):
    """A call that can be handed over."""

    if TYPE_CHECKING:
        # As in `SessionExchange`.
        session: Client
        request: Request
        caller: Caller
        writer: ExchangeWriter
        state: ExchangeState = ExchangeState.RUNNING

    outer: Exchange | None
    """The exchange that answers the request; None after the call was handed over."""
    wanted: asyncio.Future[None]
    """Done when the handler itself wants to be handed over, without a wait."""
    handler: asyncio.Task[bytes] | None = None
    """The task of its handler."""
    told: Progress | None = None
    """How far it was when it last said so."""
    handed: asyncio.Future[None] | None = None
    """Done when that has happened, or cannot."""
    on_handed_over: Callable[[], None] | None = None
    """For the back: called when the call is handed over."""

    def adopt_retry(self) -> None:
        """Take the id, the metadata and the caller of a retry."""
        if self.outer is not None:
            self.request, self.caller, self.session = (
                self.outer.request,
                self.outer.caller,
                self.outer.session,
            )

    async def now(self) -> None:
        """Wait until the call is handed over: its handler wants it.

        Raises:
            Busy: it cannot be handed over; the call has not changed.
        """
        if self.handed is None:
            self.handed = asyncio.get_running_loop().create_future()
            self.wanted.set_result(None)
        await asyncio.shield(self.handed)

    def refuse(self, error: Busy) -> None:
        """Answer the wish of the handler: it cannot be handed over now."""
        handed, self.handed = self.handed, None
        if handed is not None:
            self.wanted = asyncio.get_running_loop().create_future()
            handed.set_exception(error)

    def become_task(self, writer: ExchangeWriter) -> None:
        """Belong to no request any more: write to the store from now on."""
        passing = self.writer
        if isinstance(passing, PassingWriter):
            passing.following = writer
        self.writer, self.outer = writer, None
        self.state, _ = step(self.state, ExchangeInput.BECAME_TASK)
        if self.handed is not None:
            self.handed.set_result(None)
        if self.on_handed_over is not None:
            self.on_handed_over()

    @override
    def note_progress(self, done: float, total: float | None, message: str | None) -> None:
        self.told = Progress(done, total, message)

    @property
    @override
    def is_connected(self) -> bool:
        return self.outer is None or self.outer.is_connected

    @override
    async def close_stream(self) -> None:
        if self.outer is not None:
            await self.outer.close_stream()


def inner_of(outer: Exchange) -> InnerExchange:
    """Return the inner exchange of a call, whose request `outer` answers."""
    request = outer.request
    wanted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    inner = InnerExchange(
        outer.key, session=outer.session, request=request, inner=request, caller=outer.caller, writer=outer.writer, store=outer.store,
        given=outer.given, outer=outer, wanted=wanted,
    )  # fmt: skip
    inner.writer = PassingWriter(inner)
    if isinstance(outer.writer, RoundWriter):
        outer.writer.on_retried = inner.adopt_retry
    return inner


def answering(exchange: Exchange) -> Exchange:
    """Return the exchange that answers the request of a call: another one, if it can be handed over and was not."""
    return (exchange.outer or exchange) if isinstance(exchange, InnerExchange) else exchange


class PassingWriter:
    """Passes the messages of a call to the exchange of its request."""

    __slots__ = ("_exchange", "following")

    def __init__(self, exchange: InnerExchange) -> None:
        self._exchange = exchange
        self.following: ExchangeWriter | None = None
        """The writer of the task, after the call was handed over."""

    @property
    def is_unread(self) -> bool:
        outer = self._exchange.outer
        return outer is not None and outer.writer.is_unread

    async def send(self, message: bytes) -> None:
        """Send a message on the response of the request."""
        outer = self._exchange.outer
        self._exchange.told = progress_of(message) or self._exchange.told
        if outer is not None and not outer.has_ended:
            await outer.writer.send(message)

    async def ask(self, method: str, params: object, timeout: float | None, key: str | None) -> Any:
        """Ask the client during the request. An ask that the hand-over has ended is made again, by the task."""
        outer = self._exchange.outer
        if outer is not None and not outer.has_ended:
            try:
                # Not `outer.ask`: the question has its span already.
                return await outer.writer.ask(method, params, timeout, key)
            except CallEnded:
                if self.following is None:
                    raise
        if self.following is None:
            raise CallEnded(method)
        return await self.following.ask(method, params, timeout, key)

    def end_asks(self) -> None:
        """Do nothing: the asks of the request end with it."""
