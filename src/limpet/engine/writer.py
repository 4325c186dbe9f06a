"""The writers of a session's exchange: into the log of its stream, or straight onto a connection.

A handler sends through its exchange's writer. Both writers have the same members, so no other module needs to know
which one an exchange has: methods for a log or for readers do nothing on a connection; only `open` raises StreamClosed.

    handler ── send ──▶ LogWriter ── append ──▶ store's log ◀── read ── Reader ──▶ HTTP response
                      (shared store: through a StreamBuffer)
                           │  ▲                                           │
                           │  └──────────── how far it has read ──────────┘
                           └── settle: the terminal message, last

    handler ── send ──▶ ConnectionWriter ──▶ stdio, or a pair in memory

How a LogWriter works. A stream begins when it is first needed: the handler sends something or closes the stream, the
answer takes so long that the POST becomes a stream, or the POST is repeated. In a plain call none of this happens: its
terminal message is in no log, and the POST that waits takes it from `terminal`. Once the stream exists (`position` is
not None), everything goes into the log first (law 4), and connections read it from there. If the store is shared,
messages wait in a buffer and are appended together while the handler continues (`stream_buffer.py`). A store of this
process gets each message at once.

Three things are decided elsewhere. The state of the exchange is in its table (`core/exchange.py`). Whether a connection
waits for the answer, and has taken it, is in another table (`core/fate.py`), and `fate` has its state. `exchanges.py`
decides what follows a failed write, and reports it to the table of the exchange.

Why the terminal message is the last one. All calls to the store that concern the stream (open, append, settle) take
one lock, in the order in which they reach it. The end stores the messages of the buffer before itself, under this
lock. `terminal` is set before the lock is taken: a call that waits behind the end finds it set, or is refused by the
store, where a settled stream accepts nothing more. A stream that is just beginning holds the lock too, so an end cannot
miss it: it sees `position` and is appended to the log. A stream cannot begin after the end, because `open` looks at
`terminal` while it holds the lock.

Why no message is in the log twice. Messages keep their tags when they are sent again after a failure, and so does the
end (`_tag`). A store counts an append, which the tag of its last event identifies, once.

Why a handler waits for its own reader only (law 7). A log has a bound. If a handler writes faster than its client
reads, the head of the log would be trimmed and the client would see a gap. So a write waits while the exchange's own
reader is more than half a log behind the last message, including the buffer. It waits for a reader that is connected:
WAITING, RELEASING or ATTACHED. A reader that has ended or was superseded delays nothing; its client reads the
retained part when it comes back.

Why no waiting task sleeps forever. There is one wake-up, `wake`. Every event that a task can wait for sets it:
the stream has begun, the exchange has ended, the reader has come, moved or gone. A task checks its condition and
waits for the next wake-up with no await between the two. It is made when a task first waits: a plain call has none.

Why a ConnectionWriter sends its end once. Freeing the id may be tried again, sending the message may not: the first
attempt takes the function that sends (`_last`) away with it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from msgspec import Struct
from typing_extensions import override

from limpet.core.fate import Fate, FateAction, FateActions, FateInput, step
from limpet.core.stream import NewEvents, Position
from limpet.engine.asks import ask
from limpet.engine.outages import insisted
from limpet.engine.reader import End, Reader
from limpet.engine.session import ClientDuplex, Session
from limpet.engine.stream_buffer import StreamBuffer
from limpet.engine.wake import Wake, one_pass
from limpet.errors import NoBackChannel, SessionGone, StoreUnavailable, StreamClosed
from limpet.ports import Random
from limpet.stores.base import Claim, Store

_BREATH: Final = 64
"""Messages that a handler may send in a row."""
T = TypeVar("T")
Send = Callable[[bytes], Awaitable[None]]
_PLAIN_JSON: Final = "this endpoint answers with plain JSON only"
_WAITING: Final = Fate.WAITING
_END_ONLY: Final = Position(0, 0)
"""The position of a writer whose stream begins with the terminal message, when the store writes that."""
_UNREAD: Final = (Fate.WAITING, Fate.RELEASING)
"""The POST is there and has not begun to read."""
_UNAWAITED: Final = (Fate.GONE, Fate.KEPT)
"""No connection waits for the answer."""
_OVER: Final = (*_UNAWAITED, Fate.TAKEN)
_OF_CONNECTION: Final = frozenset({FateInput.WROTE, FateInput.TAKEN, FateInput.FAILED, FateInput.LEFT})
"""Reports of a connection: they count if it has the place."""
_OF_STORE: Final = frozenset({FateAction.LEAVE, FateAction.KEEP, FateAction.RELEASE})
"""Actions that `Readers.follow_up` carries out."""


class ExchangeWriter(Protocol):
    """Sends the messages of an exchange."""

    @property
    def is_unread(self) -> bool:
        """True if the client's connection does not take the messages that are written to it, for operators."""

    async def ask(self, method: str, params: object, timeout: float | None, key: str | None) -> Any:
        """Ask the client and wait for its result."""

    async def send(self, message: bytes) -> None:
        """Send a message that is not the last."""

    def end_asks(self) -> None:
        """End the asks of an exchange whose handler is over: other tasks may still wait for them."""


class SessionWriter(Struct, eq=False):
    """The common members of the writers of a session's exchanges.

    A method that a connection does not need does nothing.
    """

    store: Store
    _random: Random
    session: Session
    claim: Claim
    fence: int
    streams: bool = False
    """False where only the terminal message can be sent on a stream: in always-JSON mode."""
    terminal: bytes | None = None
    """The terminal message, once it is decided; None again if another replica has ended the exchange."""
    stored: Position | None = None
    """Where the home of the session has stored the terminal message, if this process has received it from there."""
    start: Position = _END_ONLY
    """Where the stream began; set with the first position."""
    position: Position | None = None
    """The newest position; None while no stream exists."""
    written_bytes: int = 0
    """How many bytes of messages the stream has from here."""
    fate: Fate = _WAITING
    owed: FateActions = ()
    """Commands to the store that follow from reports, and are not sent yet."""
    reader: Reader | None = None
    _tag: int = 0
    """The terminal message's; an end that is stored again has the same one."""
    _wake: Wake | None = None
    _buffer: StreamBuffer | None = None
    """The messages on their way to the log, and the lock of the stream. A plain call never has one."""

    @property
    def wake(self) -> Wake:
        """Set at each change that a task can wait for. Most calls end before any task waits."""
        if self._wake is None:
            self._wake = Wake()
        return self._wake

    @property
    def is_unread(self) -> bool:
        """True if the client's connection does not take the messages that are written to it, for operators."""
        return self.reader is not None and self.reader.end is None and self.reader.is_writing

    def changed(self) -> None:
        """Let the tasks that wait look again."""
        if self._wake is not None:
            self._wake.set()

    async def send(self, message: bytes) -> None:
        """Send a message that is not the last."""
        raise NotImplementedError

    async def send_now(self, message: bytes) -> None:
        """Send a message that is not the last. When this returns, it was sent, after all before it."""
        await self.send(message)

    async def ask(self, method: str, params: object, timeout: float | None, key: str | None) -> Any:  # noqa: ARG002
        """Ask the client on the exchange's stream or connection, and wait for its result."""
        stream, send = self.claim.stream, self.send_now
        return await ask(self.store, self._random, self.session, stream, send, method, params, timeout)

    def end_asks(self) -> None:
        """End the asks of an exchange whose handler is over: other tasks may still wait for them."""
        if self.session.pending:
            self.session.end_asks(self.claim.stream, is_over=True)

    def before_end(self, messages: list[bytes]) -> None:
        """Send short messages with the end, right before it: the cancellations of asks that end with the exchange."""
        raise NotImplementedError

    # The end. The caller has set `terminal`.

    def is_plain(self) -> bool:
        """Return True if the end needs neither a log nor a connection: the POST that waits takes it from `terminal`."""
        return False

    def end_with(self, message: bytes) -> None:
        """Take the terminal message."""
        self.terminal = message
        self.report(FateInput.ENDED)

    async def settle(self) -> None:
        """Store the end and free the exchange's id. Safe to call again."""
        raise NotImplementedError

    async def show(self) -> None:
        """Give the end to the connection that waits: the store has ended the exchange with its session."""
        self.changed()

    async def disown(self) -> None:
        """Take back the end that was not stored: another replica has ended the exchange, or runs it again."""

    @property
    def is_left(self) -> bool | None:
        """True if no connection waits for the answer of a call that has not started, and none will read its stream.

        None: another replica has the connection; the store knows.
        """
        raise NotImplementedError

    # Streams and readers: a connection has none

    async def open(self) -> Position:
        """Begin the stream, if it has not begun, and return its newest position.

        Raises:
            StreamClosed: the exchange has ended without one, or writes to a connection.
        """
        raise StreamClosed

    async def release(self) -> None:
        """End the reader's connection on purpose, where the client may come back for the rest."""

    def report(self, happened: FateInput, reader: Reader | None = None) -> None:
        """Record an event of the answer, or of the connection that waits for it; `reader`: its reader, if any."""

    async def wait_abandoned(self, seconds: float) -> bool:  # noqa: ARG002
        """Wait a moment for the reader to go; False if it stays, or has taken the answer."""
        return False

    async def flushed(self, seconds: float) -> None:
        """Wait until the reader, or the POST that is about to read, has taken everything; at most so long."""

    def redirect_end(self, send: Send) -> None:
        """Let the terminal message go to `send`, which collects the answers of a batch."""


class LogWriter(SessionWriter):
    """Writes to the log of a stream that can be resumed. The stream begins when it is first needed."""

    if TYPE_CHECKING:
        # Declared once more for type checkers: assigned below. To msgspec they would be new fields.
        start: Position = _END_ONLY
        position: Position | None = None
        fate: Fate = _WAITING
        owed: FateActions = ()
        written_bytes: int = 0
        terminal: bytes | None = None
        _tag: int = 0
        _buffer: StreamBuffer | None = None
        reader: Reader | None = None

    @override
    async def open(self) -> Position:
        position = self.position
        if position is None:
            # Before the first await: it also shows that a repeat is about to read the stream (`is_left`).
            self._buffer = self._buffer or StreamBuffer()
            async with self._buffer.lock:
                position = self.position or await self._open_log()
        return position

    async def _open_log(self) -> Position:
        if self.terminal is not None:
            raise StreamClosed
        key, stream = self.session.record.key, self.claim.stream
        self.start = self.position = position = await self.store.open_stream(
            key, stream, self.fence, self._random.tag()
        )
        if (exchange := self.session.exchanges.get(stream)) is not None:
            exchange.opened()
        self.changed()
        return position

    @override
    async def send(self, message: bytes) -> None:
        """Append to the log (law 4), then wait while this exchange's own reader is far behind (law 7).

        If the store is outside of this process, the message is in the buffer when this returns, and in the log soon
        after (`stream_buffer.py`). It waits for an unavailable store: under the same tag a repeated message is stored
        once.

        Raises:
            StoreError: this message, or one before it, could not be stored: the store stayed unavailable for too long,
                or until the exchange had ended, or another replica has ended the exchange.
            CancelledError: the session was closed, and with it this exchange. Its handler is about to be cancelled.
        """
        if not self.streams:
            raise NoBackChannel(f"nothing but the result can be sent: {_PLAIN_JSON}")
        buffer = self._buffer
        try:
            if buffer is None or self.position is None:
                buffer = await self._begin()
            if self.store.is_shared:
                await buffer.add(self._random.tag(), message, self._append_surely, self.wake)
            else:
                async with buffer.lock:
                    await self._append_surely([(self._random.tag(), message)])
                if self.position is not None and self.position.seq % _BREATH == 0:
                    # A handler that never waits must let other tasks run, such as the one that notices its reader's
                    # end.
                    await one_pass()
            while self._check_behind():
                await buffer.progress(self._append_surely, self.wake)
        except SessionGone:
            raise asyncio.CancelledError from None

    @override
    async def send_now(self, message: bytes) -> None:
        await self.send(message)
        buffer = self._buffer
        try:
            while buffer is not None and buffer.events:
                await buffer.progress(self._append_surely, self.wake)
        except SessionGone:
            raise asyncio.CancelledError from None

    async def _begin(self) -> StreamBuffer:
        """Begin the stream, if it has not begun, and return its buffer."""
        try:
            await self.open()
        except StoreUnavailable as error:
            await self._insist(self.open, error)
        self._buffer = self._buffer or StreamBuffer()
        return self._buffer

    async def _append_surely(self, events: NewEvents) -> None:
        """Append to the log, also if the store is unavailable for a while. The caller holds the lock."""
        where = (self.session.record.key, self.claim.stream, self.fence, events)
        try:
            position = await self.store.append(*where)
        except StoreUnavailable as error:
            position = await self._insist(lambda: self.store.append(*where), error)
        self.position = max(self.position or position, position)
        for _, message in events:
            self.written_bytes += len(message)

    async def _insist(self, attempt: Callable[[], Awaitable[T]], failed: StoreUnavailable) -> T:
        """Try again until the store is back. Raises the last failure after too long, or once the exchange has ended."""
        seconds = self.session.limits.store_seconds
        return await insisted(attempt, failed, seconds, lambda: self.terminal is not None)

    @override
    async def ask(self, method: str, params: object, timeout: float | None, key: str | None) -> Any:
        """Ask on the stream, where the ask waits for a reader; an always-JSON answer cannot carry one.

        Raises:
            CancelledError: as `send`.
        """
        if not self.streams:
            raise NoBackChannel(f"{method} cannot reach the client: {_PLAIN_JSON}")
        try:
            return await super().ask(method, params, timeout, key)
        except SessionGone:
            raise asyncio.CancelledError from None

    # The end

    @override
    def before_end(self, messages: list[bytes]) -> None:
        if self._buffer is not None and self.position is not None:
            for message in messages:
                self._buffer.put(self._random.tag(), message)

    @override
    def is_plain(self) -> bool:
        # A plain call is WAITING here: one comparison.
        is_awaited = self.fate is _WAITING or self.fate not in _UNAWAITED
        return is_awaited and self._buffer is None and self.position is None

    @property
    @override
    def is_left(self) -> bool | None:
        return self.fate is Fate.GONE and self._buffer is None

    @override
    async def settle(self) -> None:
        """Append the terminal message to the stream if there is one, or begin one if no connection waits.

        Keep it until it is taken.
        """
        buffer = self._buffer
        if buffer is not None:
            await buffer.lock.acquire()
        try:
            if buffer is not None and buffer.events:
                await buffer.store(self._append_surely, self.wake)
            record = self.session.record
            keep = not record.isolate
            is_logged = self.position is not None or (keep and self.fate in _UNAWAITED)
            logged = self.terminal if is_logged else None
            if logged is not None and not self._tag:
                self._tag = self._random.tag()
            await self.store.settle(
                record.key, self.claim.stream, self.fence, logged, tag=self._tag, keep=keep and is_logged
            )
        finally:
            if buffer is not None:
                buffer.lock.release()
            if self._wake is not None:
                self._wake.set()

    @override
    async def disown(self) -> None:
        """Let the POST that waits read the end in the log, which is the only one."""
        self.terminal = None
        self.changed()

    # The reader

    @override
    async def release(self) -> None:
        if self.streams and self.session.revision.early_close:
            await self.open()
            self.report(FateInput.RELEASED)

    @override
    def report(self, happened: FateInput, reader: Reader | None = None) -> None:
        """Record an event, or with ATTACHED and REPEATED: the reader that writes wait for from now on.

        The event of a connection whose place another one has changes nothing (law 13).
        """
        if happened in _OF_CONNECTION:
            if reader is not self.reader:
                return
            if self.terminal is not None and self.fate < Fate.DUE:
                # A plain call that ends in one step reports nothing: mostly its answer is taken in the same pass of the
                # loop.
                self.fate, _ = step(self.fate, FateInput.ENDED)
        elif reader is not None:
            self._follow(reader)
        self.fate, actions = step(self.fate, happened)
        if FateAction.LET_GO in actions and self.reader is not None:
            self.reader.stop(End.AGED)
        if FateAction.LOOK in actions:
            self.changed()
        if happened is FateInput.LEFT or happened is FateInput.FAILED:
            self.reader = None
        self.owed += tuple(action for action in actions if action in _OF_STORE)

    def _follow(self, reader: Reader) -> None:
        """Measure from now on how far this reader is behind."""
        self.reader = reader
        reader.on_progress = self.changed
        reader.on_last = lambda: self.report(FateInput.WROTE, reader)
        # Bytes are counted from where this reader begins; it is not known how many it is behind, so assume the most.
        is_behind = self.position is not None and reader.cursor.seq < self.position.seq
        reader.read_bytes = max(0, self.written_bytes - is_behind * self.session.limits.stream_bytes)

    @override
    async def wait_abandoned(self, seconds: float) -> bool:
        now = asyncio.get_running_loop().time
        deadline = now() + seconds
        while self.fate not in _UNAWAITED and (left := deadline - now()) > 0:
            if await self.wake.next(left) and self.terminal is not None:
                break
        return self.fate in _UNAWAITED

    @override
    async def flushed(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.position is not None and self.reader is None and self.fate not in _OVER:
                    await self.wake.next()
                if self.reader is not None:
                    await self.reader.ended.wait()

    def _check_behind(self) -> bool:
        """Count what the reader has read. True if it is connected and so far behind that a write must wait for it."""
        reader = self.reader
        if self.position is None or self.terminal is not None:
            return False
        if self.fate in _UNREAD:
            # A handler that never waits must let the POST begin to read.
            return self._is_far(self.start, 0)
        if reader is None or reader.end is not None or self.fate is not Fate.ATTACHED:
            return False
        if reader.cursor.seq >= self.position.seq:
            reader.read_bytes = self.written_bytes
            if self._buffer is None or not self._buffer.events:
                return False
        return self._is_far(reader.cursor, reader.read_bytes)

    def _is_far(self, cursor: Position, read_bytes: int) -> bool:
        limits, buffer = self.session.limits, self._buffer
        events = (self.position or cursor).seq - cursor.seq
        size = self.written_bytes - read_bytes
        if buffer is not None:
            events += buffer.events
            size += buffer.size
        return events > limits.stream_events // 2 or size > limits.stream_bytes // 2


class ForwardedWriter(LogWriter):
    """Writes to the log for a request that another replica has received. Its end is always in the log.

    That replica may have to read it there, and the store must know that the exchange has run (`home.py`).
    """

    if TYPE_CHECKING:
        start: Position = _END_ONLY
        position: Position | None = None

    @property
    def has_begun(self) -> bool:
        """True if its stream began before its end: there may be other messages in it."""
        return self.position is not None and self.position is not _END_ONLY

    @override
    def is_plain(self) -> bool:
        return False

    @property
    def tag(self) -> int:
        """The tag of the terminal message."""
        return self._tag

    @property
    @override
    def is_left(self) -> bool | None:
        """None: the connection is at the other replica."""
        return None

    @override
    async def settle(self) -> None:
        if self.position is None:
            self.start = self.position = _END_ONLY
        await super().settle()


async def _nowhere(message: bytes) -> None:
    """Send nothing: the terminal message was sent."""


class ConnectionWriter(SessionWriter, kw_only=True):
    """Writes to the connection that carries the whole session."""

    duplex: ClientDuplex
    _last: Send | None = None
    """Sends the terminal message, if another function than the connection's does."""
    _before_end: Sequence[bytes] = ()
    _writing: int = 0
    """How many messages are being written."""

    @property
    @override
    def is_unread(self) -> bool:
        return self._writing > 0

    @override
    def before_end(self, messages: list[bytes]) -> None:
        self._before_end = messages

    @property
    @override
    def is_left(self) -> bool | None:
        return self.duplex.is_gone

    @override
    def redirect_end(self, send: Send) -> None:
        self._last = send

    @override
    async def send(self, message: bytes) -> None:
        """Write it; waits while the client is behind."""
        self._writing += 1
        try:
            await self.duplex.send(message)
        finally:
            self._writing -= 1

    @override
    async def settle(self) -> None:
        """Free the id, then write: the client may use the id again as soon as it has the answer."""
        try:
            await self.store.settle(self.session.record.key, self.claim.stream, self.fence, None)
        finally:
            await self.show()

    @override
    async def show(self) -> None:
        """Write the end, once. A connection that is gone is no error here: its session closes with it."""
        last, self._last = self._last or self.duplex.send, _nowhere
        messages, self._before_end = self._before_end, ()
        with contextlib.suppress(OSError):
            for message in messages:
                await self.duplex.send(message)
            await last(self.terminal or b"")

    @override
    async def disown(self) -> None:
        """Write the end that was decided here: this connection reads no log, so its client can get no other end."""
        await self.show()
