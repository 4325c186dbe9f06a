"""The answer of an exchange whose client waits on the POST that claimed it: a source (`delivery.py`).

The exchange has no stream at first. It can end without one: then the terminal message is in memory only, and the POST
is its single reader. It gets a stream when its handler sends a message, or when the response becomes a stream because
the answer takes long. From then on everything is read from the log, from its start:

    no stream  ──── ended ────────────────────────────▶  one batch from memory: the terminal message
        │
        ├───── its handler has sent a message ────────▶  a reader of the log: batches with positions
        └───── the response wants a stream: `open` ───▶

Three things can prevent the step to a reader:

- The store is unavailable. The call continues, and the next wake-up or silence tries again. The client is not refused,
  because it would send the call again, and the call would run twice.
- The exchange has just ended without a stream. Then the terminal message is in memory.
- Other replicas have declared this one dead and have ended the exchange (`is_fenced`). The end that they wrote is the
  only one. The front reads it from the log, as it does for a repeat of the request.
"""

import asyncio

from limpet.core.fate import FateInput
from limpet.engine.delivery import Batch
from limpet.engine.exchange import SessionExchange
from limpet.engine.reader import End, Reader
from limpet.engine.readers import Readers
from limpet.engine.session import Session
from limpet.engine.wake import Wake
from limpet.errors import Fenced, StoreUnavailable, StreamClosed
from limpet.wire.jsonrpc import RequestId


class PostedExchange:
    """The messages of an exchange, for the POST that claimed it. Call `close` in any case."""

    __slots__ = ("_is_answered", "_is_begun", "_is_left", "_readers", "_writer", "exchange", "reader", "wake")

    def __init__(self, readers: Readers, exchange: SessionExchange) -> None:
        self._readers = readers
        self.exchange: SessionExchange = exchange
        self._writer = exchange.writer
        self._is_answered = self._is_begun = self._is_left = False
        self.reader: Reader | None = None
        """The POST as a reader of the exchange's stream, once there is one."""
        self.wake: Wake = self._writer.wake
        """Set when the exchange has ended, when its stream has begun, and when there is more in it."""

    @property
    def id(self) -> RequestId:
        """The id of the request."""
        return self.exchange.request.id

    @property
    def is_fenced(self) -> bool:
        """True if other replicas have ended the exchange before it had a reader here."""
        return self.reader is None and not self._is_answered and self.exchange.is_fenced

    def check_end(self) -> bool:
        """True if the terminal message was written, the client is gone, or other replicas have ended the exchange."""
        if self.reader is not None:
            return self.reader.check_end()
        return self._is_answered or self.exchange.is_fenced or (self._is_left and not self.exchange.is_due)

    def leave(self) -> None:
        """Record that the client has disconnected.

        The end of the exchange is kept for a repeat, even if it is stored already.
        """
        self._is_left = True
        self._writer.report(FateInput.LEFT, self.reader)
        self._writer.wake.set()
        self.stop(End.BROKE)

    def stop(self, end: End) -> None:
        """End the reader, if there is one."""
        if self.reader is not None:
            self.reader.stop(end)

    async def close(self) -> None:
        """Give back the place of the POST, or of its reader, with the fate of the answer."""
        if self.reader is not None:
            await self._readers.detach(self.reader)
        elif not self.is_fenced:
            self._writer.report(FateInput.LEFT)
            await self._readers.follow_up(self.exchange)

    async def take(self) -> Batch | None:
        """Return the terminal message of an exchange without a stream, or the next batch of its stream.

        Raises:
            SessionGone: the session was closed, and the exchange has no end that can be read.
        """
        writer = self._writer
        if self.reader is None and writer.terminal is not None and writer.position is None:
            writer.report(FateInput.WROTE)
            return Batch((writer.terminal,), finished=True)
        if self.reader is None and writer.position is not None:
            await self.open()
        if self.reader is None:
            return None
        if not self._is_begun:
            # The response begins with it, even if the stream is silent.
            self._is_begun = True
            return Batch((), begins=self.reader)
        return await self.reader.take()

    def written(self, batch: Batch) -> None:
        if self.reader is None:
            self._is_answered = True
            self._writer.report(FateInput.TAKEN)
        else:
            self.reader.written(batch)

    async def wait(self, seconds: float | None) -> bool:
        """Wait for the end, the stream, or more in it. False: the time has passed without any of them."""
        if self.reader is not None:
            return await self.reader.wait(seconds)
        return await self._writer.wake.wait(seconds)

    def follow(self) -> "RepeatedExchange":
        """Return the source of an exchange that other replicas have ended: its log, as for a repeat of the request."""
        exchange = self.exchange
        return RepeatedExchange(self._readers, exchange.session, exchange.claim.stream, exchange.request.id)

    async def open(self) -> Reader | None:
        """Begin to read the stream; if it does not exist, begin it. None: not possible now.

        A call that still waits for its slot gets no stream: it may still be refused with its own status.

        Raises:
            SessionGone: as `take`.
        """
        if self.reader is None and (self.exchange.task is not None or self.exchange.is_due):
            try:
                self.reader = await self._readers.first(self.exchange)
            except (Fenced, StoreUnavailable, StreamClosed):
                return None
            self.wake = self.reader.wake
        return self.reader


class RepeatedExchange:
    """The messages of an exchange, for a repeat of its request. Call `close` in any case."""

    __slots__ = ("_attaching", "_readers", "id", "reader", "wake")

    def __init__(self, readers: Readers, session: Session, stream: str, request_id: RequestId) -> None:
        self._readers = readers
        self.id: RequestId = request_id
        self.reader: Reader | None = None
        self.wake: Wake = Wake()
        # It waits until the stream begins and the store can be reached.
        self._attaching = asyncio.ensure_future(readers.repeat(session, stream, request_id))
        self._attaching.add_done_callback(lambda _: self.wake.set())

    def check_end(self) -> bool:
        """True if the terminal message was written, the client has disconnected, or another reader has the stream."""
        return self._attaching.cancelled() if self.reader is None else self.reader.check_end()

    def leave(self) -> None:
        """Record that the client has disconnected."""
        self.stop(End.BROKE)

    def stop(self, end: End) -> None:
        """End the reader, or the wait for it."""
        if self.reader is None:
            self._attaching.cancel()
        else:
            self.reader.stop(end)

    async def close(self) -> None:
        """Give the place of the reader back."""
        self._attaching.cancel()
        await asyncio.wait([self._attaching])
        if not self._attaching.cancelled() and self._attaching.exception() is None:
            await self._readers.detach(self._attaching.result())

    async def open(self) -> Reader | None:
        """Return the reader, if the stream has begun."""
        if self.reader is None and self._attaching.done() and not self._attaching.cancelled():
            self.reader = self._attaching.result()
            self.wake = self.reader.wake
        return self.reader

    async def take(self) -> Batch | None:
        """Return the next batch of the stream.

        Raises:
            McpError, SessionGone: there is no stream to read.
        """
        reader = await self.open()
        return None if reader is None else await reader.take()

    def written(self, batch: Batch) -> None:
        if self.reader is not None:
            self.reader.written(batch)
