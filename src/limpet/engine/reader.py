"""One reader of one stream: a cursor in the store's log, and a source for the one loop of `delivery.py`.

A reader is the part of a connection in a stream. The loop does four things with it, in this order, again and again:

       ┌──▶ clear the wake-up ──▶ take: read from the cursor ──▶ write it ──▶ written: move the cursor ──┐
       │                                   │ nothing there                                              │
       │                                   ▼                                                            │
       └──────────────────────── wait for the wake-up ◀─────────────────────────────────────────────────┘
                                 (a keep-alive is due if none comes)

Why nothing is lost and nothing comes twice (law 5). There is no replay followed by live delivery: a reader that has
just attached and one that waits for the next message run the same loop from the same cursor. The wake-up is cleared
before the log is read. So a message that is appended after the read sets it again, and the wait ends at once. A wake-up
that was lost on the way (a store sends them without a guarantee) costs time only: the next keep-alive reads too.

When a message counts as read. The cursor moves after the connection has taken the batch. If the write fails, the
cursor stays, and the store learns that position when the reader leaves. The client has its own position anyway: it
sends the id of the last event that it received.

How a reader ends. `end` says why, and the first reason counts. The connection breaks or stalls (BROKE, STALLED): the
session may become detached. The server ends it (AGED): the client resumes, and this is no break. Another reader has the
stream (TAKEN_OVER), the session is closed (CLOSED), the log was replaced (FORKED). The stream has ended and all of it
was written (FINISHED). None of these ends the session or the work (law 6). A reader that leaves the loop without an end
was cancelled by its host: see `Readers.detach`.

A superseded reader of the standalone stream stays open: `active` is False, it reads nothing and writes keep-alives.
If it were closed, its client would open a new one at once, and the two would close each other forever.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final

from limpet.core.stream import Continuity, Position
from limpet.engine.caller import Caller
from limpet.engine.delivery import Batch
from limpet.engine.session import Session
from limpet.engine.wake import Wake
from limpet.errors import OutcomeUnknown, StoreError, StoreUnavailable
from limpet.ports import Clock
from limpet.stores.base import Store
from limpet.wire.jsonrpc import RequestId, refusal

PAGE_EVENTS: Final = 100
PAGE_BYTES: Final = 256 * 1024


class End(Enum):
    """Why a reader ended."""

    FINISHED = "finished"
    """The terminal message was written."""
    BROKE = "broke"
    """The connection is gone."""
    STALLED = "stalled"
    """The client took no byte for `Times.write_stall`."""
    AGED = "aged"
    """The server ends the connection on purpose; the client resumes."""
    TAKEN_OVER = "taken over"
    """Another reader has this stream now."""
    CLOSED = "closed"
    """The session is closed."""
    FORKED = "forked"
    """The log is not the one that this reader was reading."""


class Reader:
    """A cursor in a stream, and the wake-up that says that there are more messages."""

    __slots__ = ("_clock", "_expires", "_is_nudged", "_store", "active", "caller", "cursor", "delivered_at", "end",
                 "ended", "generation", "is_taken", "is_writing", "keep_alive", "on_gap", "on_idle", "on_last", "on_progress", "read_bytes",
                 "request_id", "session", "stream", "wake")  # fmt: skip

    is_writing: bool
    """True from the moment in which messages were taken until they are written: a write waits only for the client."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        session: Session,
        stream: str,
        generation: int,
        cursor: Position,
        *,
        keep_alive: float,
        age: float | None,
    ) -> None:
        self._store = store
        self._clock = clock
        self.keep_alive: float = keep_alive
        """Seconds after which the store is read again in any case: a wake-up may be lost."""
        self._expires = None if age is None else clock.now() + age
        self.session: Session = session
        self.stream: str = stream
        self.generation: int = generation
        self.cursor: Position = cursor
        self.wake: Wake = Wake()
        self.active: bool = True
        """Superseded readers of the standalone stream stay open and idle."""
        self.end: End | None = None
        self.ended: Wake = Wake()
        """Set when its connection has detached it."""
        self.request_id: RequestId | None = None
        """The request that its connection answers; None for a GET."""
        self.caller: Caller | None = None
        """The sender of the GET that reads; None for a POST."""
        self.delivered_at: float = clock.now()
        self.read_bytes: int = 0
        self.on_progress: Callable[[], None] | None = None
        """Called when the cursor has moved: a writer may wait for it."""
        self.on_last: Callable[[], None] | None = None
        """Called when the terminal message is about to be written."""
        self.on_gap: Callable[[], None] | None = None
        """Called when events were dropped that this reader has not read."""
        self._is_nudged = self.is_writing = False
        self.is_taken: Callable[[], bool | None] | None = None
        """Returns whether the client has received all written bytes; None: this cannot be known."""
        self.on_idle: Callable[[], None] | None = None
        """Called at each keep-alive of a superseded reader: the reader that superseded it may be gone."""

    def __repr__(self) -> str:
        state = self.end.value if self.end else "active" if self.active else "idle"
        return f"<Reader {self.session.name} {self.stream} at {self.cursor.seq}, {state}>"

    def expire_within(self, seconds: float) -> None:
        """End after this time at the latest, when the caller's token expires."""
        expires = self._clock.now() + max(0.0, seconds)
        self._expires = expires if self._expires is None else min(self._expires, expires)

    def stop(self, end: End) -> None:
        """End the loop; the first reason counts."""
        if self.end is None:
            self.end = end
        self.wake.set()

    def resume(self) -> None:
        """Become the active reader again."""
        self.active = True
        self.wake.set()

    def nudge(self) -> None:
        """Write a keep-alive now: on a dead connection the write fails, on a live one the client's system answers."""
        self._is_nudged = True
        self.wake.set()

    def check_end(self) -> bool:
        """End it if it is too old: a stream that is never silent must end as well. True if it has ended."""
        if self.end is None and self._expires is not None and self._clock.now() >= self._expires:
            self.end = End.AGED
        return self.end is not None

    async def take(self) -> Batch | None:
        """Read the events after the cursor; None if there are none, or another reader has the place."""
        if not self.active:
            return None
        try:
            page = await self._store.read(
                self.session.record.key, self.stream, self.cursor, PAGE_EVENTS, PAGE_BYTES
            )
        except StoreUnavailable:
            # The connection stays open; the next wake-up or keep-alive reads again.
            return None
        if (page is None or page.continuity is not Continuity.OK) and self.on_gap is not None:
            self.on_gap()
        if page is None:
            return await self._without_log()
        if page.continuity is Continuity.FORK:
            self.end = End.FORKED
        elif page.finished and not page.events:
            self.end = End.FINISHED
        if not page.events and page.missed is None:
            return None
        if page.finished and self.on_last is not None:
            self.on_last()
        self.is_writing = True
        return Batch(
            [event.data for event in page.events],
            page.finished,
            [event.position for event in page.events],
            page.missed,
            self.stream,
        )

    async def _without_log(self) -> Batch | None:
        """End, because there is no log.

        If the store has lost the whole session, the request ends with an error (law 3).

        A log that was lost alone may be restored by the replica that writes it: then its client resumes it.
        """
        self.end = self.end or End.CLOSED
        if self.request_id is None:
            return None
        try:
            is_lost = await self._store.look(self.session.record.key) is None
        except StoreError:
            is_lost = False
        return Batch([refusal(self.request_id, OutcomeUnknown())], finished=True) if is_lost else None

    def written(self, batch: Batch) -> None:
        """Move the cursor behind a batch."""
        self.is_writing = False
        if batch.positions:
            self.cursor = batch.positions[-1]
            self.read_bytes += sum(map(len, batch.messages))
        self.delivered_at = self._clock.now()
        if self.on_progress is not None:
            self.on_progress()
        if batch.finished:
            self.end = self.end or End.FINISHED

    async def wait(self, seconds: float | None) -> bool:
        """Wait for something to read. False: the time has passed, or a keep-alive was requested (`nudge`)."""
        if self.end is not None:
            return True
        return self.woke(is_woken=await self.wake.wait(self.patience(seconds)))

    def woke(self, *, is_woken: bool) -> bool:
        """Return False after a wait in which the time has passed, or a keep-alive was requested."""
        is_nudged, self._is_nudged = self._is_nudged, False
        if is_woken and not is_nudged:
            return True
        if not self.active and self.on_idle is not None and not self.check_end():
            self.on_idle()
        return False

    def patience(self, seconds: float | None) -> float:
        """Return how long to wait for the wake-up, at most so many seconds."""
        patience = self.keep_alive if seconds is None else min(seconds, self.keep_alive)
        if self._expires is None:
            return patience
        return max(0.0, min(patience, self._expires - self._clock.now()))
