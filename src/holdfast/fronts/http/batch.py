"""Batches (2025-03-26): several requests in one POST, each its own exchange, answered together.

If all are quick, the answer is one JSON array. Otherwise it is one response with the streams of all of them.
Once a handler has started, the batch is never refused as a whole: a client would send it again, and the handlers
would run twice. The batch waits for an unavailable store instead, as a single request does.
"""

import asyncio
import contextlib
from collections.abc import Callable
from hashlib import sha256

from msgspec.structs import replace

from holdfast.config import ResponseMode
from holdfast.core.fate import FateInput
from holdfast.engine.caller import Caller
from holdfast.engine.claims import Repeat
from holdfast.engine.delivery import Batch
from holdfast.engine.engine import Engine
from holdfast.engine.exchange import SessionExchange
from holdfast.engine.reader import Reader
from holdfast.errors import (
    INVALID_REQUEST,
    Cancelled,
    Fenced,
    HoldfastError,
    McpError,
    SessionGone,
    StoreUnavailable,
    StreamClosed,
)
from holdfast.fronts.http.answer import json_answer, refusal_for
from holdfast.fronts.http.connection import Connection
from holdfast.fronts.http.request import Gone
from holdfast.fronts.http.streams import Streamer
from holdfast.wire import sse
from holdfast.wire.jsonrpc import Request, encode, error_message, refusal


class BatchedRequests:
    """The requests of one POST."""

    def __init__(
        self, engine: Engine, streamer: Streamer, mode: ResponseMode, connection: Connection
    ) -> None:
        self._engine = engine
        self._streamer = streamer
        self._times = engine.settings.times
        self._streams = mode != "json"
        self._connection = connection
        self._on_gone: Callable[[], object] = lambda: None
        self._refused: list[bytes] = []
        self._exchanges: list[SessionExchange] = []
        self._repeats: list[Repeat] = []
        """Requests that repeat a POST that was cut: they are answered from the log of the first execution."""
        self._readers: dict[str, Reader] = {}
        """By stream: the readers that write to this connection."""
        self._last_batches: list[tuple[Reader, Batch]] = []
        """The ends of repeated requests that are about to be written."""

    async def answer(self, key: str, caller: Caller, requests: list[Request]) -> None:
        """Run the requests side by side and answer them all here."""
        delivered = False
        self._connection.watch(self._left)
        try:
            for request in requests:
                try:
                    await self._submit(key, caller, request)
                except HoldfastError as error:
                    self._refused.append(_refusal(error, request))
            await self._wait()
            if self._streams and (self._repeats or any(map(_is_unanswered, self._exchanges))):
                delivered = await self._stream(caller)
            else:
                delivered = await self._array()
        finally:
            for reader in self._readers.values():
                await self._engine.readers.detach(reader)
            try:
                for exchange in self._exchanges if delivered else ():
                    exchange.writer.report(FateInput.TAKEN)
            finally:
                for exchange in self._exchanges:
                    await self._engine.readers.close(exchange)

    async def _submit(self, key: str, caller: Caller, request: Request) -> None:
        if request.method == "initialize":
            raise McpError(INVALID_REQUEST, "Invalid request: initialize may not be part of a batch")
        digest = sha256(encode([request.id, request.method, request.params])).digest()
        member = replace(caller, waiter=self)
        submitted = await self._engine.exchanges.submit(key, member, request, digest, streams=self._streams)
        if isinstance(submitted, SessionExchange):
            self._exchanges.append(submitted)
            self._engine.readers.hold(submitted)
            if self._connection.gone:
                self._left()
        else:
            self._repeats.append(submitted)

    async def _wait(self) -> None:
        """Wait until all are answered, or, where streams are allowed, until the response must become a stream."""
        now = asyncio.get_running_loop().time
        deadline = now() + self._times.stream_after
        for exchange in self._exchanges:
            while not (exchange.is_due or self._connection.gone):
                exchange.writer.wake.clear()
                patience = max(0.0, deadline - now()) if self._streams else None
                if not await exchange.writer.wake.wait(patience):
                    return

    # The connection, for the member that is being submitted

    @property
    def gone(self) -> bool:
        """True if the client is known to have disconnected."""
        return self._connection.gone

    def watch(self, on_gone: Callable[[], object]) -> None:
        """Call `on_gone` when the client disconnects, and no function that was given before."""
        self._on_gone = on_gone
        if self.gone:
            on_gone()

    async def has_left(self) -> bool:
        """Let the loop read everything that has arrived; return `gone`."""
        return await self._connection.has_left()

    def _left(self) -> None:
        """The connection broke: keep the answers for a repeat, which may arrive before the next turn of the loop."""
        self._on_gone()
        for exchange in self._exchanges:
            exchange.writer.report(FateInput.LEFT, self._readers.get(exchange.claim.stream))
            exchange.writer.wake.set()

    # One JSON array

    async def _array(self) -> bool:
        """Answer with one array. False: the client did not take it."""
        if self._connection.gone:
            return False
        own = [await self._terminal(exchange) for exchange in self._exchanges]
        repeated = [await self._last(repeat) for repeat in self._repeats]
        body = b"[" + b",".join([*own, *repeated, *self._refused]) + b"]"
        for exchange in self._exchanges:
            exchange.writer.report(FateInput.WROTE)
        is_taken = await self._connection.answer(json_answer(body))
        if is_taken:
            for reader, batch in self._last_batches:
                reader.written(batch)
        return is_taken

    async def _terminal(self, exchange: SessionExchange) -> bytes:
        return exchange.writer.terminal or await self._last(_repeat_of(exchange))

    async def _last(self, repeat: Repeat) -> bytes:
        try:
            reader = await self._streamer.follow(repeat, self._connection)
            self._readers[reader.stream] = reader
            batch = await self._streamer.last(reader, self._connection)
            self._last_batches.append((reader, batch))
            return batch.messages[-1]
        except (McpError, SessionGone) as error:
            return _end_of(repeat, error)

    # One stream

    async def _stream(self, caller: Caller) -> bool:
        """Write all streams to this connection. False: it broke before they ended."""
        answered = [exchange for exchange in self._exchanges if not _is_unanswered(exchange)]
        ready = [exchange.writer.terminal or b"" for exchange in answered]
        stall = self._times.write_stall
        events = b"".join(map(sse.event, [*ready, *self._refused]))
        parts: list[asyncio.Task[None]] = []

        def stop() -> None:
            for part in parts:
                part.cancel()

        def gone() -> None:
            self._left()
            stop()

        try:
            await self._connection.start_stream(sse.comment("open") + events, stall)
            for exchange in answered:
                exchange.writer.report(FateInput.WROTE)
            pumps = [self._own(exchange, caller) for exchange in self._exchanges if exchange not in answered]
            pumps += [self._follow(repeat, caller) for repeat in self._repeats]
            parts += map(asyncio.ensure_future, pumps)
            self._connection.watch(gone)
            await asyncio.gather(*parts)
            await self._connection.end_stream(stall)
        except (Gone, asyncio.CancelledError) as error:
            if isinstance(error, Gone) or self._connection.gone:
                return False
            raise
        finally:
            stop()
            await asyncio.gather(*parts, return_exceptions=True)
            parts.clear()
        return True

    async def _own(self, exchange: SessionExchange, caller: Caller) -> None:
        """Write the stream of a call that runs here, or only its answer if it ends without a stream."""
        writer = exchange.writer
        while not exchange.is_fenced:
            writer.wake.clear()
            if writer.terminal is not None and writer.position is None:
                await self._connection.write(sse.event(writer.terminal), self._times.write_stall)
                writer.report(FateInput.WROTE)
                return
            # A call that waits for its slot gets no stream: without one it does not start after its client has left.
            if exchange.task is not None or exchange.is_due:
                with contextlib.suppress(Fenced, StoreUnavailable, StreamClosed):
                    await self._pump(await self._engine.readers.first(exchange), caller)
                    return
            # The call runs: wait for the store, or for its end.
            await writer.wake.wait(self._times.stream_after)
        await self._follow(_repeat_of(exchange), caller)

    async def _follow(self, repeat: Repeat, caller: Caller) -> None:
        try:
            reader = await self._engine.readers.repeat(repeat.session, repeat.stream, repeat.id)
        except (McpError, SessionGone) as error:
            await self._connection.write(sse.event(_end_of(repeat, error)), self._times.write_stall)
        else:
            await self._pump(reader, caller)

    async def _pump(self, reader: Reader, caller: Caller) -> None:
        self._readers[reader.stream] = reader
        await self._streamer.write(reader, self._connection, caller.principal)


def _repeat_of(exchange: SessionExchange) -> Repeat:
    """Another replica ended the exchange: read the end that it wrote, as a repeat of the request does."""
    return Repeat(exchange.session, exchange.claim.stream, exchange.request.id)


def _end_of(repeat: Repeat, error: McpError | SessionGone) -> bytes:
    """Return the answer to one request whose log cannot be read; the other requests of the batch are not affected."""
    return refusal(repeat.id, error if isinstance(error, McpError) else Cancelled("the session was closed"))


def _is_unanswered(exchange: SessionExchange) -> bool:
    """True if an exchange has no answer in memory: it has not ended, or its answer is in its stream."""
    return exchange.writer.terminal is None or exchange.writer.position is not None


def _refusal(error: HoldfastError, request: Request) -> bytes:
    if isinstance(error, McpError):
        return error_message(request.id, error.code, error.message, error.data)
    return refusal_for(error, request.id).body
