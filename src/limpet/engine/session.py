"""A local session: the record of a session, and the calls, readers and asks that live in this process."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec.structs import replace

from limpet.config import Limits, Settings
from limpet.core.admission import Gate
from limpet.core.empty_table import EMPTY
from limpet.core.ledger import Charge
from limpet.core.stream import Position
from limpet.engine.author_errors import ends_the_task
from limpet.engine.pace import Pace
from limpet.engine.wake import Wake
from limpet.protocol.quirks import quirks_of, shown_name
from limpet.protocol.versions import REVISIONS, Revision
from limpet.stores.base import SessionRecord
from limpet.wire.jsonrpc import RequestId

if TYPE_CHECKING:
    from limpet.engine.exchange import SessionExchange
    from limpet.engine.reader import Reader

Listener = Callable[[], Awaitable[None]]
HIDDEN: Final = "~"
"""The first character of the key of a hidden session: it is no client's, and holds the claims of calls without a
session."""


class ClientDuplex(Protocol):
    """A connection that carries a whole session both ways: stdio, or a pair in memory."""

    @property
    def is_gone(self) -> bool:
        """True if the other side no longer reads. The end of its own messages does not count."""

    async def send(self, message: bytes) -> None:
        """Write a message; wait while the other side is behind."""


class OpenAsk:
    """An ask of this process that has not ended."""

    __slots__ = ("_arrived", "_bound", "has_ended", "is_cut_off", "is_sent", "stream")

    def __init__(self, stream: str, bound: asyncio.Timeout) -> None:
        self.stream: str = stream
        self._arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when its answer may be in the store, or can no longer come."""
        self.is_sent: bool = False
        """False while it waits for a place."""
        self.has_ended: bool = False
        """True if its call has ended."""
        self.is_cut_off: bool = False
        """True if no answer can arrive any more."""
        self._bound = bound

    def look(self) -> None:
        """Let the handler look for the answer."""
        if not self._arrived.done():
            self._arrived.set_result(None)

    def cut_off(self) -> None:
        """Let the handler look for the answer a last time."""
        self.is_cut_off = True
        self.look()

    async def wait(self) -> None:
        """Return when it is time to look for the answer; the next time after another `look`."""
        await self._arrived
        self._arrived = asyncio.get_running_loop().create_future()

    def end(self) -> None:
        """End it: it waits for a place or for its answer."""
        if not self._bound.expired():
            self._bound.reschedule(asyncio.get_running_loop().time())


class Session:
    """The part of one session in this process. The store has the authoritative state."""

    __slots__ = (
        "_asking",
        "_listeners",
        "answering",
        "calling",
        "charge",
        "duplex",
        "exchanges",
        "gate",
        "lasting",
        "limits",
        "notified",
        "pace",
        "pending",
        "readers",
        "record",
        "revision",
        "waiting",
    )

    def __init__(self, record: SessionRecord, settings: Settings, duplex: ClientDuplex | None = None) -> None:
        self.limits: Limits = settings.limits
        limits = self.limits
        self.record: SessionRecord = record
        self.charge: Charge | None = None
        """The memory of the session in this process, if it was opened here."""
        self.lasting: bool = duplex is not None or not (settings.stateless or record.key.startswith(HIDDEN))
        """False for a hidden session, and for one that exists for a single request: no listener is called for it,
        and no client comes back to it."""
        primes = self.lasting and not quirks_of(record.client, settings.quirks).no_priming
        self.revision: Revision = _revision(record.version, lasting=self.lasting, primes=primes)
        self.duplex: ClientDuplex | None = duplex
        self.exchanges: dict[str, SessionExchange] = EMPTY
        self.answering: dict[RequestId, SessionExchange] = EMPTY
        """By id: the calls whose POST waits for the answer, until the answer is written or kept for a repeat."""
        self.gate: Gate[SessionExchange] = Gate(limits.running, limits.queued)
        self._asking: Gate[asyncio.Future[None]] | None = None
        self.pending: dict[str, OpenAsk] = EMPTY
        """By name: the asks of this process that are not answered yet."""
        self.notified: int = 0
        """How many notifications of the client the back still handles."""
        self.waiting: dict[str, Wake] = EMPTY
        """By stream: the calls of this process that wait for their turn, each with its wake-up."""
        self.readers: dict[str, list[Reader]] = EMPTY
        self.pace: Pace | None = None
        """How far the reader of the standalone stream is behind. Exists from the first message on: most sessions
        have none."""
        self._listeners: tuple[tuple[Listener, Context], ...] = ()
        """Lifecycle listeners that wait for the one that is called now, each with the context variables of the request
        that caused its event. There are few events."""
        self.calling: asyncio.Task[None] | None = None
        """Calls the lifecycle listeners."""

    def __repr__(self) -> str:
        readers = sum(map(len, self.readers.values()))
        return f"<Session {self.name} {len(self.exchanges)} exchanges, {readers} readers, {self.asks} asks>"

    @property
    def name(self) -> str:
        """A short name for logs. The session id cannot be computed from it."""
        return self.record.key[:8]

    @property
    def client_name(self) -> str:
        """The name that the client gave itself, cut for a log line."""
        return shown_name(self.record.client)

    @property
    def is_quiet(self) -> bool:
        """True if this process needs nothing of the session any more."""
        busy = (
            self.duplex
            or self.exchanges
            or self.answering
            or self.readers
            or self.pending
            or self.notified
            or self.calling
        )
        # A handler that was cancelled and still cleans up holds its slot.
        return not (busy or self.gate.inside)

    @property
    def asking(self) -> Gate[asyncio.Future[None]]:
        """The places of its asks; made with the first one, since most sessions ask nothing."""
        if self._asking is None:
            self._asking = Gate(self.limits.asks, self.limits.asks_queued)
        return self._asking

    @property
    def asks(self) -> int:
        """How many asks of this process wait for the client's answer."""
        return sum(ask.is_sent for ask in self.pending.values())

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities that the client declared."""
        return self.record.capabilities

    def wake_reader(self, stream: str) -> None:
        """Wake the active reader of a stream. For an idle reader a wake-up would only delay the keep-alive."""
        for reader in self.readers.get(stream, ()):
            if reader.active:
                reader.wake.set()

    def answered(self, ask: str) -> None:
        """Wake the handler that waits for the answer to an ask."""
        if (pending := self.pending.get(ask)) is not None:
            pending.look()

    def end_asks(self, stream: str, *, is_over: bool) -> list[str]:
        """Record that the call of these asks has ended; return the names of those that were sent.

        `is_over`: its handler is over too, and they end now. Before that, the asks of a handler that is being stopped
        end by its cancellation.
        """
        ended = [(name, ask) for name, ask in self.pending.items() if ask.stream == stream]
        for _, ask in ended:
            ask.has_ended = True
            if is_over:
                ask.end()
        return [name for name, ask in ended if ask.is_sent]

    def look_for_turn(self, stream: str) -> None:
        """Wake a call that waits for its turn."""
        if (wake := self.waiting.get(stream)) is not None:
            wake.set()

    def add_reader(self, reader: "Reader") -> list["Reader"]:
        """Make the reader the active one of its stream; return the earlier readers, oldest first."""
        if self.readers is EMPTY:
            self.readers = {}
        readers = self.readers.setdefault(reader.stream, [])
        before = list(readers)
        readers.append(reader)
        if self.pace is not None:
            self.pace.moved.set()
        return before

    def remove_reader(self, reader: "Reader") -> "Reader | None":
        """Remove a reader; return the one that takes over, if the removed one was active and others are left.

        Readers that have ended and are not removed yet do not take over: connections often break together.
        """
        readers = self.readers[reader.stream]
        readers.remove(reader)
        if not readers:
            del self.readers[reader.stream]
            self.readers = self.readers or EMPTY
        if self.pace is not None:
            self.pace.moved.set()
        alive = [other for other in readers if other.end is None]
        return alive[-1] if reader.active and alive else None

    def queue_listener(self, listener: Listener) -> None:
        """Call a lifecycle listener after the earlier ones, in the task `calling`."""
        if self.calling is None:
            self.calling = asyncio.get_running_loop().create_task(self._call_listeners(listener))
        else:
            self._listeners += ((listener, copy_context()),)

    async def _call_listeners(self, first: Listener) -> None:
        try:
            await self._call_listener(first)
            while self._listeners:
                (listener, context), *rest = self._listeners
                self._listeners = tuple(rest)
                telling = self._call_listener(listener)
                await asyncio.get_running_loop().create_task(telling, context=context)
        finally:
            self.calling = None

    async def _call_listener(self, listener: Listener) -> None:
        try:
            await listener()
        except BaseException as error:  # a listener that fails must not prevent the next call
            if ends_the_task(error):
                raise
            message = f"a lifecycle listener of session {self.name} failed"
            context = {"message": message, "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    async def listeners_called(self) -> None:
        """Wait until every listener that is queued has returned."""
        if self.calling is not None:
            await self.calling


@cache
def _revision(version: str, *, lasting: bool, primes: bool) -> Revision:
    """Return the rules of a revision.

    A client that cannot come back (not `lasting`) gets no event id, and no stream that ends early. A client that
    fails on an empty event gets none (not `primes`).
    """
    revision = REVISIONS[version]
    if lasting and primes:
        return revision
    return replace(revision, priming=False, early_close=revision.early_close and lasting)


def event_id(stream: str, position: Position) -> str:
    """Return the SSE event id of a position."""
    return f"{stream}.{position.seq}.{position.tag:x}"


def parse_event_id(text: str) -> tuple[str, Position] | None:
    """Return stream and position of an event id; None if the id is invalid."""
    parts = text.split(".")
    if len(parts) != 3 or len(text) > 128 or not text.isascii():  # noqa: PLR2004
        return None
    stream, seq, tag = parts
    if not (stream and seq.isdecimal() and len(tag) <= 16):  # noqa: PLR2004
        return None
    try:
        return stream, Position(int(seq), int(tag, 16))
    except ValueError:
        return None
