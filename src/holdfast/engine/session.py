"""A session as this process sees it: its record, and what is alive here on its behalf."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from holdfast.config import Limits, Settings
from holdfast.core.admission import Gate
from holdfast.core.stream import Position
from holdfast.engine.faults import ends_the_task
from holdfast.engine.wake import Wake
from holdfast.protocol.versions import REVISIONS, Revision
from holdfast.stores.base import SessionRecord

if TYPE_CHECKING:
    from holdfast.engine.exchange import SessionExchange
    from holdfast.engine.reader import Reader

Listener = Callable[[], Awaitable[None]]


class Channel(Protocol):
    """A connection that carries a whole session both ways: stdio, or a pair in memory."""

    async def send(self, message: bytes) -> None:
        """Write a message; wait while the other side is behind."""
        ...


class Session:
    """What lives here of one session. The truth about it is in the store."""

    __slots__ = (
        "_calling",
        "_listeners",
        "asking",
        "channel",
        "exchanges",
        "gate",
        "lasting",
        "limits",
        "notified",
        "pending",
        "readers",
        "record",
        "revision",
        "waiting",
    )

    def __init__(self, record: SessionRecord, settings: Settings, channel: Channel | None = None) -> None:
        self.limits: Limits = settings.limits
        limits = self.limits
        self.record: SessionRecord = record
        self.lasting: bool = channel is not None or not settings.stateless
        """False for one that lives for a single request: no listener knows it, nobody can come back to it."""
        self.revision: Revision = _revision(record.version, lasting=self.lasting)
        self.channel: Channel | None = channel
        self.exchanges: dict[str, SessionExchange] = {}
        self.gate: Gate[SessionExchange] = Gate(limits.running, limits.queued)
        self.asking: Gate[asyncio.Future[None]] = Gate(limits.asks, limits.asks_queued)
        self.pending: dict[str, asyncio.Future[None]] = {}
        """Asks made here and not yet answered."""
        self.notified: int = 0
        """Notifications of the client that its back has not ended with."""
        self.waiting: dict[str, Wake] = {}
        """Calls that wait here for their turn, by their streams, each with the bell that it hears."""
        self.readers: dict[str, list[Reader]] = {}
        self._listeners: deque[tuple[Listener, Context]] = deque()
        """What is to be told, each with the context variables of the request that led to it."""
        self._calling: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        readers = sum(map(len, self.readers.values()))
        return f"<Session {self.name} {len(self.exchanges)} exchanges, {readers} readers, {len(self.pending)} asks>"

    @property
    def name(self) -> str:
        """A short name for logs; the session id cannot be computed from it."""
        return self.record.key[:8]

    @property
    def is_quiet(self) -> bool:
        """Whether nothing lives here on its behalf."""
        busy = (
            self.channel or self.exchanges or self.readers or self.pending or self.notified or self._calling
        )
        # A handler that was cancelled and still cleans up has its slot.
        return not (busy or self.gate.inside)

    @property
    def capabilities(self) -> dict[str, Any]:
        """What the client declared."""
        return self.record.capabilities

    def ring(self, stream: str) -> None:
        """Wake the active reader of a stream. Idle ones sleep on: waking, they would put off their keep-alive."""
        for reader in self.readers.get(stream, ()):
            if reader.active:
                reader.wake.ring()

    def answered(self, ask: str) -> None:
        """Wake the handler that waits for the answer to an ask."""
        arrived = self.pending.get(ask)
        if arrived is not None and not arrived.done():
            arrived.set_result(None)

    def look_for_turn(self, stream: str) -> None:
        """Wake a call that waits for its turn."""
        if (wake := self.waiting.get(stream)) is not None:
            wake.ring()

    def add_reader(self, reader: "Reader") -> list["Reader"]:
        """Make the reader the active one of its stream; return those that were there before, oldest first."""
        readers = self.readers.setdefault(reader.stream, [])
        before = list(readers)
        readers.append(reader)
        return before

    def remove_reader(self, reader: "Reader") -> "Reader | None":
        """Forget a reader; return the one that takes over, if it was the active one of several.

        Those that have ended and not let go yet are passed over: connections often break together.
        """
        readers = self.readers[reader.stream]
        readers.remove(reader)
        if not readers:
            del self.readers[reader.stream]
        alive = [other for other in readers if other.end is None]
        return alive[-1] if reader.active and alive else None

    def queue_listener(self, listener: Listener) -> None:
        """Run a lifecycle listener after those told before it; nobody waits for it."""
        self._listeners.append((listener, copy_context()))
        if self._calling is None:
            self._calling = asyncio.get_running_loop().create_task(self._call_listeners())

    async def _call_listeners(self) -> None:
        try:
            while self._listeners:
                listener, context = self._listeners.popleft()
                telling = self._call_listener(listener)
                await asyncio.get_running_loop().create_task(telling, context=context)
        finally:
            self._calling = None

    async def _call_listener(self, listener: Listener) -> None:
        try:
            await listener()
        except BaseException as error:  # one listener's fault must not silence the next
            if ends_the_task(error):
                raise
            message = f"a lifecycle listener of session {self.name} failed"
            context = {"message": message, "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    async def listeners_called(self) -> None:
        """Wait until every listener told so far has returned."""
        if self._calling is not None:
            await self._calling


@cache
def _revision(version: str, *, lasting: bool) -> Revision:
    """Return the rules of a revision; where nobody can come back, no stream may invite to it or end early."""
    revision = REVISIONS[version]
    return revision if lasting else replace(revision, priming=False, early_close=False)


def event_id(stream: str, position: Position) -> str:
    """Return a position as it travels: the SSE event id."""
    return f"{stream}.{position.seq}.{position.tag:x}"


def parse_event_id(text: str) -> tuple[str, Position] | None:
    """Return stream and position of an event id; None if it cannot be one of ours."""
    parts = text.split(".")
    if len(parts) != 3 or len(text) > 64 or not text.isascii():  # noqa: PLR2004
        return None
    stream, seq, tag = parts
    if not (stream and seq.isdecimal() and len(tag) <= 16):  # noqa: PLR2004
        return None
    try:
        return stream, Position(int(seq), int(tag, 16))
    except ValueError:
        return None
