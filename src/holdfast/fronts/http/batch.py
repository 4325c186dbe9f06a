"""Batches (2025-03-26): several requests in one POST, each its own exchange, answered together."""

import asyncio

from holdfast.engine.engine import Engine
from holdfast.engine.exchange import Caller, Exchange
from holdfast.engine.outlet import StreamOutlet
from holdfast.engine.reader import End
from holdfast.errors import INVALID_REQUEST, HoldfastError, McpError
from holdfast.fronts.http.answer import Answer, json_answer, refusal_for
from holdfast.fronts.http.connection import Connection
from holdfast.fronts.http.streams import Streamer
from holdfast.wire import sse
from holdfast.wire.jsonrpc import Request, error_message


async def answer_batch(
    engine: Engine,
    streamer: Streamer,
    key: str,
    caller: Caller,
    requests: list[Request],
    connection: Connection,
) -> Answer | None:
    """Run the requests side by side. All quick: one JSON array; otherwise one connection that carries all their streams."""
    refused: list[bytes] = []
    exchanges: list[Exchange] = []
    for request in requests:
        try:
            if request.method == "initialize":
                raise McpError(INVALID_REQUEST, "Invalid request: initialize may not be part of a batch")
            exchange = await engine.exchanges.submit(key, caller, request)
        except HoldfastError as error:
            refused.append(_refusal(error, request))
        else:
            if isinstance(exchange, Exchange):
                exchanges.append(exchange)
    tasks = [exchange.task for exchange in exchanges if exchange.task is not None]
    if tasks:
        await asyncio.wait(tasks, timeout=engine.settings.times.stream_after)
    outlets = [exchange.outlet for exchange in exchanges if isinstance(exchange.outlet, StreamOutlet)]
    ready = [outlet.terminal for outlet in outlets if outlet.terminal is not None and outlet.position is None]
    if len(ready) == len(exchanges):
        return json_answer(b"[" + b",".join([*ready, *refused]) + b"]")
    await _stream(engine, streamer, exchanges, [*ready, *refused], connection)
    return None


def _refusal(error: HoldfastError, request: Request) -> bytes:
    if isinstance(error, McpError):
        return error_message(request.id, error.code, error.message, error.data)
    return refusal_for(error, request.id).body


async def _stream(
    engine: Engine, streamer: Streamer, exchanges: list[Exchange], ready: list[bytes], connection: Connection
) -> None:
    readers = [
        await engine.readers.first(exchange, exchange.outlet)
        for exchange in exchanges
        if isinstance(exchange.outlet, StreamOutlet)
        and (exchange.outlet.terminal is None or exchange.outlet.position is not None)
    ]

    def gone() -> None:
        for reader in readers:
            reader.stop(End.BROKE)

    connection.watch(gone)
    try:
        stall = engine.settings.times.write_stall
        await connection.start_stream(sse.comment("open") + b"".join(map(sse.event, ready)), stall)
        await asyncio.gather(*(streamer.write_pages(reader, connection) for reader in readers))
        await connection.end_stream()
    finally:
        gone()
        for reader in readers:
            await engine.readers.detach(reader)
