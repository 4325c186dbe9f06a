"""Batches (2025-03-26): several requests in one POST, each its own exchange, answered together."""

import asyncio
from hashlib import sha256

from holdfast.config import ResponseMode
from holdfast.engine.engine import Engine
from holdfast.engine.exchange import Caller, SessionExchange
from holdfast.engine.reader import End, Reader
from holdfast.errors import INVALID_REQUEST, HoldfastError, McpError
from holdfast.fronts.http.answer import json_answer, refusal_for
from holdfast.fronts.http.connection import Connection
from holdfast.fronts.http.streams import Streamer
from holdfast.wire import sse
from holdfast.wire.jsonrpc import Request, encode, error_message


class Batch:
    """The requests of one POST. All quick: one JSON array; otherwise one connection that carries all their streams."""

    def __init__(
        self, engine: Engine, streamer: Streamer, mode: ResponseMode, connection: Connection
    ) -> None:
        self._engine = engine
        self._streamer = streamer
        self._times = engine.settings.times
        self._streams = mode != "json"
        self._connection = connection
        self._refused: list[bytes] = []
        self._exchanges: list[SessionExchange] = []
        self._readers: list[Reader] = []
        """Those of requests that repeat a POST that was cut, or that others have ended."""

    async def answer(self, key: str, caller: Caller, requests: list[Request]) -> None:
        """Run the requests side by side and answer them all here."""
        for request in requests:
            try:
                await self._submit(key, caller, request)
            except HoldfastError as error:
                self._refused.append(_refusal(error, request))
        await self._wait()
        await self._follow_fenced()
        if self._streams and (self._readers or any(map(_is_unanswered, self._exchanges))):
            await self._stream(caller)
        else:
            await self._array()

    async def _submit(self, key: str, caller: Caller, request: Request) -> None:
        if request.method == "initialize":
            raise McpError(INVALID_REQUEST, "Invalid request: initialize may not be part of a batch")
        digest = sha256(encode([request.id, request.method, request.params])).digest()
        submitted = await self._engine.exchanges.submit(key, caller, request, digest, streams=self._streams)
        if isinstance(submitted, SessionExchange):
            self._exchanges.append(submitted)
        else:
            self._readers.append(await self._engine.readers.repeat(submitted.session, submitted.stream))

    async def _wait(self) -> None:
        """Wait until all are answered; where streams are allowed, no longer than until it must be one."""
        outlets = [exchange.stream for exchange in self._exchanges]

        def ring() -> None:
            for outlet in outlets:
                outlet.wake.ring()

        self._connection.watch(ring)
        now = asyncio.get_running_loop().time
        deadline = now() + self._times.stream_after
        for outlet in outlets:
            while not (outlet.is_due or self._connection.gone):
                outlet.wake.clear()
                patience = max(0.0, deadline - now()) if self._streams else None
                if not await outlet.wake.wait(patience):
                    return

    async def _follow_fenced(self) -> None:
        """Answer what others have ended like a repeat of it: from its log."""
        for exchange in [exchange for exchange in self._exchanges if exchange.stream.fenced]:
            self._exchanges.remove(exchange)
            self._readers.append(await self._engine.readers.repeat(exchange.session, exchange.claim.stream))

    async def _array(self) -> None:
        repeated = [await self._streamer.last(reader, self._connection) for reader in self._readers]
        ready = [exchange.stream.terminal or b"" for exchange in self._exchanges]
        body = b"[" + b",".join([*ready, *repeated, *self._refused]) + b"]"
        if self._connection.gone or not await self._connection.answer(json_answer(body)):
            for exchange in self._exchanges:
                await self._lost(exchange)

    async def _lost(self, exchange: SessionExchange) -> None:
        terminal = exchange.stream.terminal
        if terminal is None:
            await self._engine.readers.broke_before_stream(exchange)
        else:
            await self._engine.readers.keep_answer(exchange, terminal)

    async def _stream(self, caller: Caller) -> None:
        first = {
            exchange.claim.stream: await self._engine.readers.first(exchange, exchange.stream)
            for exchange in self._exchanges
            if _is_unanswered(exchange)
        }
        readers = [*first.values(), *self._readers]

        def gone() -> None:
            for reader in readers:
                reader.stop(End.BROKE)

        self._connection.watch(gone)
        ready = [e.stream.terminal or b"" for e in self._exchanges if e.claim.stream not in first]
        stall = self._times.write_stall
        try:
            for reader in readers:
                self._streamer.bound(reader, caller.principal)
            events = b"".join(map(sse.event, [*ready, *self._refused]))
            await self._connection.start_stream(sse.comment("open") + events, stall)
            await asyncio.gather(
                *(self._streamer.write_pages(reader, self._connection) for reader in readers)
            )
            await self._connection.end_stream(stall)
        finally:
            gone()
            for reader in readers:
                await self._engine.readers.detach(reader)
            for exchange in self._exchanges:
                if exchange.claim.stream in first:
                    await self._streamer.keep_unread(exchange, first[exchange.claim.stream])


def _is_unanswered(exchange: SessionExchange) -> bool:
    """Tell whether an exchange has no answer yet, or one that is in its stream."""
    return exchange.stream.terminal is None or exchange.stream.position is not None


def _refusal(error: HoldfastError, request: Request) -> bytes:
    if isinstance(error, McpError):
        return error_message(request.id, error.code, error.message, error.data)
    return refusal_for(error, request.id).body
