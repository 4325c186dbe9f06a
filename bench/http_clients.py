"""Our HTTP client, aiohttp and httpx in one run: calls per second with 32 in flight, and events per second from one stream.

    python -m bench.http_clients

The server is a bare asyncio protocol in a process of its own, so that the client is what is measured.
"""

import asyncio
import multiprocessing
import socket
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final, cast

import aiohttp
import httpx
import uvloop

from limpet.transports.http import HttpTransport

IN_FLIGHT: Final = 32
CALLS: Final = 6_000
EVENTS: Final = 60_000
ROUNDS: Final = 3
BODY: Final = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}'
)
ANSWER: Final = (
    b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hello"}],"isError":false}}'
)
JSON_REPLY: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWER) + ANSWER
)
SSE_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT: Final = b"event: message\ndata: " + ANSWER + b"\n\n"
CHUNK: Final = b"%x\r\n" % len(EVENT) + EVENT + b"\r\n"
HEADERS: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}

Post = Callable[[], Awaitable[int]]
"""One call; returns the bytes of its answer."""


class Reply(asyncio.Protocol):
    """POST: one JSON answer. GET: one long stream of events."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.held = b""

    def data_received(self, data: bytes) -> None:
        self.held += data
        if self.held.startswith(b"GET"):
            self.transport.write(SSE_HEAD + CHUNK * EVENTS + b"0\r\n\r\n")
            self.held = b""
        elif self.held.endswith(BODY):
            self.held = b""
            self.transport.write(JSON_REPLY)


def serve(listening: socket.socket) -> None:
    """Run the server forever."""

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Reply, sock=listening)
        await server.serve_forever()

    uvloop.run(main())


async def calls_per_second(post: Post) -> float:
    """Measure calls with so many in flight."""

    async def worker() -> None:
        for _ in range(CALLS // IN_FLIGHT):
            assert await post() == len(ANSWER)

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    return CALLS / (time.perf_counter() - started)


async def with_ours(url: str) -> tuple[float, float]:
    """Return calls and events per second."""
    transport = HttpTransport()

    async def post() -> int:
        return len(await (await transport.open("POST", url, HEADERS, BODY)).body(1_000_000))

    try:
        rate = await calls_per_second(post)
        started, size = time.perf_counter(), 0
        answer = await transport.open("GET", url, HEADERS)
        while chunk := await answer.chunk():
            size += len(chunk)
        assert size == len(EVENT) * EVENTS
        return rate, EVENTS / (time.perf_counter() - started)
    finally:
        await transport.aclose()


async def with_aiohttp(url: str) -> tuple[float, float]:
    """Return calls and events per second."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), auto_decompress=False
    ) as session:

        async def post() -> int:
            async with session.post(url, data=BODY, headers=HEADERS) as response:
                return len(await response.read())

        rate = await calls_per_second(post)
        started, size = time.perf_counter(), 0
        async with session.get(url, headers=HEADERS) as response:
            async for chunk in response.content.iter_any():
                size += len(chunk)
        assert size == len(EVENT) * EVENTS
        return rate, EVENTS / (time.perf_counter() - started)


async def with_httpx(url: str) -> tuple[float, float]:
    """Return calls and events per second."""
    async with AsyncExitStack() as stack:
        limits = httpx.Limits(max_connections=2 * IN_FLIGHT, max_keepalive_connections=2 * IN_FLIGHT)
        client = await stack.enter_async_context(httpx.AsyncClient(limits=limits, trust_env=False))

        async def post() -> int:
            return len((await client.post(url, content=BODY, headers=HEADERS)).content)

        rate = await calls_per_second(post)
        started, size = time.perf_counter(), 0
        async with client.stream("GET", url, headers=HEADERS) as response:
            async for chunk in response.aiter_raw():
                size += len(chunk)
        assert size == len(EVENT) * EVENTS
        return rate, EVENTS / (time.perf_counter() - started)


async def main(url: str) -> None:
    """Take turns, so that all see the same machine."""
    found: dict[str, list[tuple[float, float]]] = {"ours": [], "aiohttp": [], "httpx": []}
    for _ in range(ROUNDS):
        found["ours"].append(await with_ours(url))
        found["aiohttp"].append(await with_aiohttp(url))
        found["httpx"].append(await with_httpx(url))
    print(f"{'':10}{'calls/s':>12}{'events/s':>12}   median of {ROUNDS}, {IN_FLIGHT} in flight")
    for name, rounds in found.items():
        calls, events = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"{name:10}{calls:12.0f}{events:12.0f}")


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    server = multiprocessing.get_context("fork").Process(target=serve, args=(listening,), daemon=True)
    server.start()
    try:
        uvloop.run(main(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"))
    finally:
        server.terminate()
