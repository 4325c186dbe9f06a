"""Delivery: one loop takes messages from a source and writes them to a sink.

A client waits for the messages of one request, or of one stream. They come from a *source* and go to a *sink*:

    source                                     loop                       sink
    ───────────────────────────────────────    ──────────────────────     ───────────────────────────────────────────
    Reader          the log in the store       clear the wake-up          HTTP         a response, JSON or events
    ResponseWaiter     a sessionless call,        take the messages          duplex       one connection for everything
                    in memory              ─▶  write it               ─▶  log          the stream of a forwarded request
    Listener        changes, in memory         report them as written
    PostedExchange  a call of a session:       wait for more, or silence
                    memory, then the log
    Merged          the calls of a batch

Both eras and all fronts use this loop. A source does not know the form in which its messages are written, and a sink
does not know their source. A plain call does not get here: its front answers it after one pass of the loop.

Why no message is lost
    The loop clears the wake-up *before* it takes (law 5). A message that arrives before the take is part of the
    batch; one that arrives after it sets the wake-up, and the next wait returns at once. There is no moment in
    between. For the same reason replay and live delivery need no switch: a reader takes from its cursor, and
    whether the event is old or new makes no difference.

Why no message is written twice
    A source moves on only when the sink has taken the batch (`written`). If the sink fails, the exception leaves
    the loop and the source stays where it was: the cursor of a log is then still before the batch, and the next
    reader begins there.

Who has the answer
    A sink returns from the write of a terminal message when its client has taken it, and raises if it has not. So
    `take`, `written` and the exception are the reports about an answer (`core/fate.py`), in every form of a response.

Why the terminal message is the last one
    A batch that is `finished` ends with the terminal message, and the loop ends with it. A source in memory reads its
    outcome first and its messages afterwards, so every message that was sent before the end is in the same batch,
    before the terminal message.

Why the loop ends
    It ends with the terminal message, or when its source is over because something stopped it. The connection's
    watcher stops it when the client disconnects; a newer reader, a closed session or an expired token stop a
    log's reader. A wait is never longer than the sink's patience, so a source that ends by its own clock is
    checked in time.

Silence. Each sink says how long it waits for the next message. When that time has passed, the loop calls `silence`, and
the sink decides: an HTTP response that has not begun becomes a stream, one that has begun gets a keep-alive,
and the stream of a forwarded request checks that its client is still there. A response that becomes a stream which can
be resumed lets its source begin the log; the next batch then says that the stream begins, and opens the response.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from limpet.core.stream import Position
from limpet.engine.wake import Wake
from limpet.errors import McpError

if TYPE_CHECKING:
    from limpet.engine.reader import Reader


class Batch(Struct, frozen=True):
    """The messages to write now, in order."""

    messages: Sequence[bytes]
    finished: bool = False
    """The last message is the terminal message, or that of the last request of several."""
    positions: Sequence[Position] = ()
    """The positions of the messages in their log, one for each; empty for messages that cannot be resumed."""
    missed: tuple[int, int] | None = None
    """The first and last sequence number that the log has trimmed before these messages."""
    stream: str = ""
    """The name of their log."""
    ends: int = 1
    """How many of the messages are terminal ones, if it is finished."""
    begins: "Reader | None" = None
    """The reader of a stream that begins with this batch."""
    error: McpError | None = None
    """The error in the terminal message, where the source knows it: HTTP takes a status from it."""


class Source(Protocol):
    """A source of messages."""

    @property
    def wake(self) -> Wake:
        """Set when there may be messages to take, and when the source is over."""

    def check_end(self) -> bool:
        """True if nothing more is to be written: the source was stopped, or has ended by its own clock."""

    async def take(self) -> Batch | None:
        """Return the messages that are there; None if there are none."""

    def written(self, batch: Batch) -> None:
        """Move on: the sink has taken this batch."""

    async def wait(self, seconds: float | None) -> bool:
        """Wait until there may be messages to take. False: the time has passed without any.

        None: wait without a limit.
        """


class Sink(Protocol):
    """Writes messages. Its exceptions leave the loop."""

    @property
    def patience(self) -> float | None:
        """Seconds without a message after which `silence` is called; None: never."""

    async def write(self, batch: Batch) -> None:
        """Write a batch."""

    async def silence(self) -> None:
        """React to `patience` seconds without a message."""


async def deliver(source: Source, sink: Sink) -> None:
    """Write the messages of a source to a sink until the terminal message is written or the source is over."""
    while not source.check_end():
        source.wake.clear()
        batch = await source.take()
        if batch is not None:
            await sink.write(batch)
            source.written(batch)
            if batch.finished:
                return
        elif not await source.wait(sink.patience) and not source.check_end():
            await sink.silence()
