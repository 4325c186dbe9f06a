"""Where an exchange's messages go: into its stream's log, or straight onto a connection.

Both end an exchange in the same way: the terminal message last, the claim released with it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

from holdfast.core.stream import Position
from holdfast.engine.asks import ask
from holdfast.engine.reader import End, Reader
from holdfast.engine.session import Channel, Session
from holdfast.engine.wake import Wake, turn
from holdfast.errors import Fenced, NoBackChannel, SessionGone, StoreUnavailable, StreamClosed
from holdfast.ports import Random
from holdfast.stores.base import Claim, Store

_BREATH: Final = 64
"""Messages that a handler may send in a row."""
_NOWHERE: Final = Position(0, 0)
_STORE_SECONDS: Final = 0.5
"""How often a store that is away is tried again."""
T = TypeVar("T")
_PLAIN_JSON: Final = "this endpoint answers with plain JSON only"


class ExchangeWriter(Protocol):
    """The way out of one exchange."""

    async def ask(self, method: str, params: object, timeout: float | None, key: str | None) -> Any:
        """Ask the client and wait for its result."""
        ...

    async def send(self, message: bytes) -> None:
        """Send a message that is not the last."""
        ...


class SessionWriter(ExchangeWriter, Protocol):
    """The way out of an exchange that has claimed its id."""

    async def settle(self, terminal: bytes) -> None:
        """Send the last message and free the exchange's id."""
        ...

    async def close(self, terminal: bytes) -> None:
        """Send the last message of an exchange that the store has ended with its session."""
        ...


class LogWriter:
    """The writer's side of a resumable stream. The stream begins to exist when it is first needed."""

    __slots__ = ("_begun", "_leaving", "_random", "_room", "_store", "_tag", "_wake", "_writing", "claim", "fence", "fenced", "has_reader", "position",
                 "reader", "releasing", "session", "start", "streams", "terminal", "written_bytes")  # fmt: skip

    def __init__(
        self, store: Store, random: Random, session: Session, claim: Claim, fence: int, *, streams: bool
    ) -> None:
        self._store = store
        self._random = random
        self.session: Session = session
        self.claim: Claim = claim
        self.fence: int = fence
        self.streams: bool = streams
        """False in always-JSON mode: nothing but the terminal message can be sent."""
        self.start: Position = _NOWHERE
        """Where the stream began, once it exists."""
        self.position: Position | None = None
        """The newest position; None while no stream exists."""
        self.terminal: bytes | None = None
        self.fenced: bool = False
        """Others have ended the exchange, or run it again: what follows is in the log, and not from here."""
        self._tag = 0
        """The terminal message's, once it was sent: sent again it is the same one."""
        self._wake: Wake | None = None
        self.reader: Reader | None = None
        self.releasing: bool = False
        """The next reader is to end as soon as it has its position."""
        self.has_reader: bool = True
        """False once the connection that waits for the answer is known to be gone."""
        self.written_bytes: int = 0
        self._writing: asyncio.Lock | None = None
        """Held while the stream is written: it grows one message at a time, however many tasks a handler has."""
        self._begun: asyncio.Event | None = None
        """Set when the store has answered whoever wanted the stream to begin."""
        self._room: asyncio.Event | None = None
        self._leaving: asyncio.Event | None = None

    @property
    def wake(self) -> Wake:
        """Rung when the stream begins to exist and when the exchange is settled. Most calls end with nobody waiting."""
        if self._wake is None:
            self._wake = Wake()
        return self._wake

    @property
    def is_due(self) -> bool:
        """Whether who waits for the answer has something to do: it is there, or in a stream that has begun."""
        return self.terminal is not None or self.position is not None or self.fenced

    async def open(self) -> Position:
        """Begin the stream, if it has not begun, and return its newest position.

        Raises:
            StreamClosed: the exchange has ended without one.
        """
        while self.position is None and self._begun is not None and not self._begun.is_set():
            # Asked twice at once, the slower question could reach the store after the exchange has ended.
            await self._begun.wait()
        if self.position is None:
            if self.terminal is not None:
                raise StreamClosed
            begun = self._begun = asyncio.Event()
            try:
                self.start = self.position = await self._store.open_stream(
                    self.session.record.key, self.claim.stream, self.fence, self._random.tag()
                )
            finally:
                begun.set()
            self.wake.ring()
        return self.position

    async def send(self, message: bytes) -> None:
        """Append to the log (law 4), then wait while this exchange's own reader is far behind (law 7).

        A store that is away is waited for: under the same tag the message is there once, however often it is sent.

        Raises:
            StoreUnavailable: it stayed away for too long, or until the exchange had ended.
            CancelledError: the session was closed, and with it this exchange. Its handler is about to be cancelled.
        """
        if not self.streams:
            raise NoBackChannel(f"nothing but the result can be sent: {_PLAIN_JSON}")
        try:
            position = await self._append(message)
        except SessionGone:
            raise asyncio.CancelledError from None
        self.position = max(self.position or position, position)
        self.written_bytes += len(message)
        if position.seq % _BREATH == 0:
            # A handler that waits for nothing must not keep the loop from everybody else, its reader's end included.
            await turn()
        while self._is_behind():
            await self._moved()

    async def _append(self, message: bytes) -> Position:
        try:
            await self.open()
        except StoreUnavailable as error:
            await self._insist(self.open, error)
        self._writing = self._writing or asyncio.Lock()
        where = (self.session.record.key, self.claim.stream, self.fence, self._random.tag(), message)
        async with self._writing:
            try:
                return await self._store.append(*where)
            except StoreUnavailable as error:
                return await self._insist(lambda: self._store.append(*where), error)

    async def _insist(self, attempt: Callable[[], Awaitable[T]], failed: StoreUnavailable) -> T:
        """Try again until the store is back. Raises the last failure after too long, or once the exchange has ended."""
        now = asyncio.get_running_loop().time
        deadline = now() + self.session.limits.store_seconds
        while self.terminal is None and now() < deadline:
            await asyncio.sleep(_STORE_SECONDS)
            try:
                return await attempt()
            except StoreUnavailable as error:
                failed = error
        raise failed

    async def ask(self, method: str, params: object, timeout: float | None, key: str | None) -> Any:  # noqa: ARG002
        """Ask on the stream, where it waits for a reader; an always-JSON answer can carry no ask.

        Raises:
            CancelledError: as `send`.
        """
        if not self.streams:
            raise NoBackChannel(f"{method} cannot reach the client: {_PLAIN_JSON}")
        try:
            return await ask(
                self._store, self._random, self.session, self.claim.stream, self.send, method, params, timeout
            )
        except SessionGone:
            raise asyncio.CancelledError from None

    async def settle(self, terminal: bytes) -> None:
        """Append the terminal message to the stream if there is one; keep it if nobody is there to take it."""
        self.terminal = terminal
        if self._begun is not None:
            # Decided before the stream exists, the end would be missing from it.
            await self._begun.wait()
        if self._writing is None:
            await self._end(terminal)
        else:
            async with self._writing:
                await self._end(terminal)

    async def _end(self, terminal: bytes) -> None:
        keep = not self.has_reader and not self.session.record.isolate
        logged = terminal if keep or self.position is not None else None
        if logged is not None and not self._tag:
            self._tag = self._random.tag()
        try:
            await self._store.settle(
                self.session.record.key,
                self.claim.stream,
                self.fence,
                logged,
                tag=self._tag,
                keep=keep,
            )
        except (Fenced, StreamClosed):
            # Not this one: whoever still waits here is to get the end that is in the log.
            self.terminal, self.fenced = None, True
            raise
        finally:
            self._ended()

    async def close(self, terminal: bytes) -> None:
        """Let the POST that waits answer with the end; a reader finds an end like it in the log."""
        self.terminal = self.terminal or terminal
        self._ended()

    def fence_off(self) -> None:
        """Take note that the exchange is no longer this process's: it ends elsewhere."""
        self.fenced = True
        self._ended()

    def _ended(self) -> None:
        """Wake all who wait for the end, or for the reader to move."""
        if self._wake is not None:
            self._wake.ring()
        self.freed()
        if self._leaving is not None:
            self._leaving.set()

    def release_reader(self) -> None:
        """End the reader's connection by design: not a break."""
        if self.reader is not None:
            self.reader.stop(End.AGED)
        else:
            self.releasing = True

    def attached(self, reader: Reader) -> None:
        """Take note of the reader that writes wait for."""
        self.reader = reader
        self.has_reader = True
        self._leaving = None
        reader.on_progress = self.freed
        # Bytes are counted from where this reader begins; how many it is behind is not known, so assume the most.
        is_behind = self.position is not None and reader.cursor.seq < self.position.seq
        reader.read_bytes = max(0, self.written_bytes - is_behind * self.session.limits.stream_bytes)
        self.freed()
        if self.releasing:
            self.releasing = False
            reader.stop(End.AGED)

    def lost(self, reader: Reader) -> None:
        """Forget a reader that has ended, unless another has taken its place."""
        if self.reader is reader:
            self.abandoned()

    def abandoned(self) -> None:
        """Take note that nobody is there to read."""
        self.reader = None
        self.has_reader = False
        self.freed()
        if self._leaving is not None:
            self._leaving.set()

    async def is_abandoned_within(self, seconds: float) -> bool:
        """Wait a moment for the reader to go; False if it stays, or has taken the answer."""
        self._leaving = self._leaving or asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._leaving.wait()
        return not self.has_reader

    async def flushed(self, seconds: float) -> None:
        """Wait until whoever reads, or is about to, has taken everything; at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.position is not None and self.has_reader and self.reader is None:
                    await self._moved()
                if self.reader is not None:
                    await self.reader.ended.wait()

    async def _moved(self) -> None:
        self._room = self._room or asyncio.Event()
        self._room.clear()
        await self._room.wait()

    def freed(self) -> None:
        """Let a waiting writer look again: the reader has moved or gone."""
        if self._room is not None:
            self._room.set()

    def _is_behind(self) -> bool:
        reader = self.reader
        if self.position is None or self.terminal is not None or not self.has_reader:
            return False
        if reader is None:
            # The POST is there and has not begun to read: a handler that never suspends must let it.
            return self._is_far(self.start, 0)
        if reader.end is not None:
            return False
        if reader.cursor.seq >= self.position.seq:
            reader.read_bytes = self.written_bytes
            return False
        return self._is_far(reader.cursor, reader.read_bytes)

    def _is_far(self, cursor: Position, read_bytes: int) -> bool:
        limits = self.session.limits
        top = self.position or cursor
        return (
            top.seq - cursor.seq > limits.stream_events // 2
            or self.written_bytes - read_bytes > limits.stream_bytes // 2
        )


class ConnectionWriter:
    """Straight onto the connection that carries the whole session."""

    __slots__ = ("_channel", "_claim", "_fence", "_is_written", "_random", "_session", "_store", "last")

    def __init__(
        self, store: Store, random: Random, session: Session, channel: Channel, claim: Claim, fence: int
    ) -> None:
        self._store = store
        self._random = random
        self._session = session
        self._channel = channel
        self._claim = claim
        self._fence = fence
        self._is_written = False
        """The terminal message was handed over: freeing the id is tried again, writing is not."""
        self.last: Callable[[bytes], Awaitable[None]] = channel.send
        """Where the terminal message goes: onto the connection, unless it is gathered with others."""

    async def ask(self, method: str, params: object, timeout: float | None, key: str | None) -> Any:  # noqa: ARG002
        """Ask on the connection."""
        stream = self._claim.stream
        return await ask(self._store, self._random, self._session, stream, self.send, method, params, timeout)

    async def send(self, message: bytes) -> None:
        """Write it; waits while the peer is behind."""
        await self._channel.send(message)

    async def settle(self, terminal: bytes) -> None:
        """Free the id, then write: the peer may reuse the id as soon as it sees the answer."""
        try:
            await self._store.settle(self._session.record.key, self._claim.stream, self._fence, None)
        finally:
            await self.close(terminal)

    async def close(self, terminal: bytes) -> None:
        """Write it, once: the store has freed the id."""
        if not self._is_written:
            self._is_written = True
            await self.last(terminal)
