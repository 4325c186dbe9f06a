"""Connections of `serve` over real sockets: clients that close their side, too many connections, bad framing, stalls."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, Final

import pytest

from limpet import Context, Limits, Server, Settings
from limpet.config import KIB, MIB, HttpSettings
from limpet.core.ledger import Ledger
from limpet.errors import ConfigError
from limpet.fronts.http.http1 import half_closed
from limpet.fronts.http.http1.connection_charge import ConnectionCharge
from limpet.fronts.http.http1.sockets import bind
from limpet.fronts.http.http1.start_and_stop import Service
from limpet.fronts.http.read.addresses import Addresses
from tests.support import async_test, until

JSON: Final = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
PREFIX: Final = "io.modelcontextprotocol/"
META: Final = {
    f"{PREFIX}protocolVersion": "2026-07-28",
    f"{PREFIX}clientInfo": {"name": "raw", "version": "1"},
    f"{PREFIX}clientCapabilities": {},
}


class House:
    """A server whose tool waits, and its events."""

    def __init__(self) -> None:
        self.server = Server("house", settings=Settings(limits=Limits(connections=4)))
        self.release = asyncio.Event()
        self.runs = 0
        self.cancelled = 0

        @self.server.tool
        async def held(ctx: Context, *, talk: bool = False) -> str:
            self.runs += 1
            if talk:
                await ctx.progress(1, 2)
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            return "released"

        @self.server.tool
        async def quick() -> str:
            self.runs += 1
            return "at once"

    def call(self, tool: str, **arguments: Any) -> bytes:
        """Return a call of 2026-07-28."""
        params = {"name": tool, "arguments": arguments, "_meta": {**META, "progressToken": 1}}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\n{JSON}MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n"
        return f"{head}Mcp-Name: {tool}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@contextlib.asynccontextmanager
async def serving(house: House, **http: Any) -> AsyncIterator[tuple[Service, int]]:
    front = house.server.front(HttpSettings(**http))
    # A loaded machine looks like a pause of the process, and after a pause a client that has closed its side is not served.
    front._is_waking = lambda: False
    service = Service(front)
    with bind("127.0.0.1", 0) as listener:
        async with service.running([listener]):
            yield service, listener.getsockname()[1]


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


# A client that closes its side


@pytest.mark.parametrize("tool", ["quick", "held"])
@async_test
async def test_a_client_that_closes_its_side_gets_its_answer(tool: str) -> None:
    house = House()
    async with serving(house) as (service, port), connected(port) as (reader, writer):
        writer.write(house.call(tool))
        writer.write_eof()
        await until(lambda: house.runs == 1)
        # Real time is the subject: longer than the first looks at the connection.
        await asyncio.sleep(0.2)
        house.release.set()
        answer = await reader.read()
        assert answer.count(b"HTTP/1.1 200") == 1
        assert (b"at once" if tool == "quick" else b"released") in answer
        await until(lambda: not service.members.connections)
    assert house.cancelled == 0


@async_test
async def test_a_client_that_has_closed_its_side_is_not_served_by_a_process_that_was_asleep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = House()
    front = house.server.front(HttpSettings())
    monkeypatch.setattr(front, "_is_waking", lambda: True)
    with bind("127.0.0.1", 0) as listener:
        async with (
            Service(front).running([listener]),
            connected(listener.getsockname()[1]) as (reader, writer),
        ):
            writer.write(house.call("quick"))
            writer.write_eof()
            answer = await reader.read()
            assert b"503 Service Unavailable" in answer
            assert b"limpet-refused: not-executed" in answer.lower()
    assert house.runs == 0


@async_test
async def test_a_client_that_closes_its_side_before_it_has_read_everything_gets_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(_descriptor: int, _data: bytes) -> int:
        raise BlockingIOError

    monkeypatch.setattr(half_closed, "os", SimpleNamespace(write=full))
    house = House()
    async with serving(house) as (_, port), connected(port) as (reader, writer):
        writer.write(house.call("held"))
        writer.write_eof()
        await until(lambda: house.runs == 1)
        house.release.set()
        assert b"released" in await reader.read()


@async_test
async def test_a_client_that_closes_its_side_gets_the_rest_of_its_stream() -> None:
    house = House()
    async with serving(house) as (_, port), connected(port) as (reader, writer):
        writer.write(house.call("held", talk=True))
        assert b"200 OK" in await reader.readuntil(b"notifications/progress")
        writer.write_eof()
        await asyncio.sleep(0.2)  # real time is the subject: longer than the first checks of the connection
        house.release.set()
        rest = await reader.read()
        assert b"released" in rest
        assert rest.endswith(b"0\r\n\r\n")
    assert house.cancelled == 0


@pytest.mark.parametrize("talk", [True, False])
@pytest.mark.parametrize("reset", [True, False])
@async_test
async def test_the_call_of_a_client_that_goes_is_cancelled(*, reset: bool, talk: bool) -> None:
    house = House()
    async with serving(house) as (service, port), connected(port) as (reader, writer):
        writer.write(house.call("held", talk=talk))
        await until(lambda: house.runs == 1)
        if talk:
            await reader.readuntil(b"notifications/progress")
        if reset:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        await until(lambda: house.cancelled == 1)
        await until(lambda: not service.members.connections)


@async_test
async def test_a_client_that_closes_its_side_within_a_request_is_not_served() -> None:
    house = House()
    async with serving(house) as (_, port):
        for part in (house.call("quick")[:30], house.call("quick")[:-2]):
            async with connected(port) as (reader, writer):
                writer.write(part)
                writer.write_eof()
                assert await reader.read() == b""
    assert house.runs == 0


# Too many connections


@async_test
async def test_a_connection_over_the_limit_gets_503_if_none_is_idle_and_leaves_the_others_alone() -> None:
    house = House()
    async with serving(house) as (service, port), contextlib.AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(connected(port)) for _ in range(4)]
        for _, writer in opened:
            writer.write(house.call("held"))
        await until(lambda: house.runs == 4)
        async with connected(port) as (reader, _):
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"too many connections" in answer
            assert b"\r\ndate: " in answer
        house.release.set()
        for reader, _ in opened:
            assert b"200 OK" in await reader.readuntil(b"released")
        opened[0][1].close()
        await until(lambda: len(service.members.connections) == 3)
        async with connected(port) as (reader, writer):
            writer.write(house.call("quick"))
            assert b"200 OK" in await reader.readuntil(b"at once")


def test_a_proxy_that_is_no_address_is_named() -> None:
    with pytest.raises(ConfigError, match=r"proxy\.example"):
        Addresses(["proxy.example"])


# Framing


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (b"Transfer-Encoding: gzip\r\n", 400),
        (b"Transfer-Encoding: gzip, chunked\r\n", 501),
        (b"Transfer-Encoding: chunked, gzip\r\n", 400),
        (b"Transfer-Encoding: chunked\r\n", 400),
    ],
)
@async_test
async def test_bad_framing_is_refused_before_anything_runs(more: bytes, status: int) -> None:
    """The body of the last case is no chunk."""
    house = House()
    async with serving(house) as (_, port):
        lines = house.call("quick").split(b"\r\n")
        kept = [line for line in lines if not line.startswith(b"Content-Length")]
        sent = b"\r\n".join(kept).replace(b"\r\n\r\n", b"\r\n" + more + b"\r\n")
        async with connected(port) as (reader, writer):
            writer.write(sent)
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert answer.count(b"HTTP/1.1") == 1
    assert house.runs == 0


@async_test
async def test_a_client_that_is_refused_before_its_body_gets_no_second_request_served_from_it() -> None:
    house = House()
    async with serving(house) as (_, port), connected(port) as (reader, writer):
        hidden = house.call("quick")
        writer.write(
            b"POST /elsewhere HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
            % len(hidden)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 404 ")
        assert b"connection: close" in head
        writer.write(hidden)
        assert b"HTTP/1.1" not in await reader.read()
    assert house.runs == 0


@async_test
async def test_a_request_of_http_1_0_gets_a_stream_that_ends_with_the_connection() -> None:
    house = House()
    async with serving(house) as (_, port), connected(port) as (reader, writer):
        writer.write(house.call("held", talk=True).replace(b"HTTP/1.1", b"HTTP/1.0"))
        await reader.readuntil(b"notifications/progress")
        house.release.set()
        rest = await reader.read()
        assert b"released" in rest
        assert b"0\r\n\r\n" not in rest


@pytest.mark.parametrize(("size", "measured"), [(300_000, 418 * KIB), (1_000_000, 1_525 * KIB)])
def test_a_connection_with_tls_is_charged_for_the_buffers_of_its_longest_read(
    size: int, measured: int
) -> None:
    """Measured: the memory that a connection keeps after a body that came in one read."""
    ledger = Ledger(100 * MIB)
    charge = ConnectionCharge(ledger.account("10.0.0.1"), tls=True)
    assert charge.begin()
    charge.read(size)
    assert charge.count(0, 0)
    assert 0.98 * measured < ledger.used < 1.3 * measured
    charge.read(2 * size)
    charge.end()
    assert ledger.used == 0


@async_test
async def test_an_unfinished_head_needs_room() -> None:
    house = House()
    async with serving(house) as (service, port), connected(port) as (reader, writer):
        writer.write(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n")
        await until(lambda: bool(service.members.connections))
        ledger = house.server.engine.load.ledger
        others = ledger.account("others").open()
        others.set(ledger.total - ledger.used - 100_000)
        writer.write(b"a: b\r\n" * 200)
        assert (await reader.read()).startswith(b"HTTP/1.1 503")
