"""`serve` over real sockets: deadlines, bounds, refusals, and an end that lets calls finish."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from limpet import Context, Limits, Server, Settings, Times
from limpet.auth import Principal
from limpet.config import HttpSettings
from limpet.engine.engine import Engine
from limpet.errors import ConfigError
from limpet.fronts.http.front import HttpFront
from limpet.fronts.http.http1.deadlines import Deadlines
from limpet.fronts.http.http1.sockets import bind, url_of
from limpet.fronts.http.http1.start_and_stop import Service
from limpet.fronts.http.serve import check_exposure, is_loopback
from limpet.testing.back import ScriptedBack
from tests.http.client import Connection
from tests.support import BOUND, async_test, until

SMALL: Final = Path(__file__).parents[1] / "fixtures" / "small.py"
QUICK: Final = Limits(header_seconds=0.3, body_seconds=0.3, headers=4_096)
JSON_HEADERS: Final = (
    b"Host: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
)
INITIALIZE: Final = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw"}},
    }
).encode()


@contextlib.asynccontextmanager
async def serving(server: Server, service: Service | None = None) -> AsyncIterator[int]:
    """Serve in this loop; yield the port."""
    with bind("127.0.0.1", 0) as listener:
        service = service or Service(server.front(HttpSettings()))
        running = asyncio.ensure_future(service.serve([listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            service.stop()
            await running


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    connection = await Connection.open(port)
    try:
        yield connection
    finally:
        connection.cut()


async def answer(connection: Connection) -> tuple[int, dict[str, str], bytes]:
    """Return the next whole answer: its status, headers and body."""
    response = await connection.response()
    return response.status, response.headers, await response.body()


async def status(connection: Connection) -> int:
    """Return the status of the next answer once its head is there."""
    return (await connection.response()).status


def post(body: bytes, *extra: bytes) -> bytes:
    length = b"Content-Length: %d\r\n" % len(body)
    return (
        b"POST /mcp HTTP/1.1\r\n"
        + JSON_HEADERS
        + length
        + b"".join(e + b"\r\n" for e in extra)
        + b"\r\n"
        + body
    )


def small(**settings: Any) -> Server:
    server = Server("served", settings=Settings(limits=QUICK, **settings))

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


@async_test
async def test_a_request_is_answered_and_the_connection_serves_the_next() -> None:
    async with serving(small()) as port, connected(port) as raw:
        for _ in range(3):
            await raw.send(post(INITIALIZE))
            status, headers, body = await answer(raw)
            assert status == 200
            assert "mcp-session-id" in headers
            assert json.loads(body)["id"] == 1


@async_test
async def test_a_head_that_never_ends_is_cut_at_its_deadline() -> None:
    async with serving(small()) as port, connected(port) as raw:
        await raw.send(b"POST /mcp HTTP/1.1\r\nHost: local")
        assert await status(raw) == 408
        assert (await raw.rest()).endswith(b"the head took longer than 0.3 s")


@async_test
async def test_a_head_that_drips_is_cut() -> None:
    async with serving(small()) as port, connected(port) as raw:

        async def drip() -> None:
            await raw.send(b"POST /mcp HTTP/1.1\r\n")
            while True:
                await raw.send(b"X: y\r\n")
                await asyncio.sleep(0.05)  # real time is the subject: a byte now and then

        dripping = asyncio.ensure_future(drip())
        assert await status(raw) == 408
        dripping.cancel()
        await asyncio.wait({dripping})


@async_test
async def test_a_silent_connection_is_closed() -> None:
    async with serving(small()) as port, connected(port) as raw:
        assert b"408" in await raw.rest()


@async_test
async def test_a_body_that_stalls_is_answered_408_and_an_unread_body_is_dropped() -> None:
    async with serving(small()) as port:
        async with connected(port) as raw:
            await raw.send(b"POST /mcp HTTP/1.1\r\n" + JSON_HEADERS + b"Content-Length: 100\r\n\r\n{")
            assert await status(raw) == 408
        async with connected(port) as raw:
            await raw.send(b"POST /mcp HTTP/1.1\r\n" + JSON_HEADERS + b"Content-Length: 100\r\n\r\n")
            assert await status(raw) == 408
        async with connected(port) as raw:
            await raw.send(b"POST /elsewhere HTTP/1.1\r\n" + JSON_HEADERS + b"Content-Length: 100\r\n\r\n{")
            assert await status(raw) == 404
            await raw.rest()
            assert raw.is_ended


def freeze() -> None:
    """Stop this process's loop, the server's and the client's alike, past every deadline."""
    time.sleep(4 * QUICK.header_seconds)


@async_test
async def test_time_in_which_the_server_was_stopped_does_not_count_against_its_clients() -> None:
    request = post(INITIALIZE)
    for sent in (20, len(request) - 5):
        async with serving(small()) as port, connected(port) as raw:
            await raw.send(request[:sent])
            await asyncio.sleep(0.1)  # the server reads the part before it is stopped
            freeze()
            # Until the server has checked its deadlines once: the time before must not count.
            await asyncio.sleep(0.05)
            await raw.send(request[sent:])
            assert (await answer(raw))[0] == 200


def test_a_late_look_at_deadlines_closes_no_connection_unless_the_one_before_was_late_too() -> None:
    watch = Deadlines(Limits(header_seconds=10), 30.0)
    assert [watch.tick(moment) for moment in (50.0, 51.0, 52.0)] == [True, True, True]
    assert watch.now == 2.0
    assert [watch.tick(moment) for moment in (80.0, 81.0)] == [False, True]
    assert watch.now == 4.0, "the time it was stopped counts as one look"
    assert [watch.tick(moment) for moment in (90.0, 100.0, 110.0, 120.0)] == [False, True, False, True]


@async_test
async def test_an_idle_connection_outlives_the_deadlines_of_heads_and_bodies() -> None:
    async with serving(small()) as port, connected(port) as raw:
        await raw.send(post(INITIALIZE))
        assert (await answer(raw))[0] == 200
        await asyncio.sleep(3 * QUICK.header_seconds)  # real time is the subject: the deadlines pass
        await raw.send(post(INITIALIZE))
        assert (await answer(raw))[0] == 200


@pytest.mark.parametrize("pieces", [1, 40])
@async_test
async def test_a_head_over_the_limit_gets_431_whole_or_in_pieces(pieces: int) -> None:
    async with serving(small()) as port, connected(port) as raw:
        head = post(INITIALIZE, *(b"X-%d: %s" % (n, b"y" * 400) for n in range(12)))
        size = -(-len(head) // pieces)
        with contextlib.suppress(ConnectionError):
            for start in range(0, len(head), size):
                await raw.send(head[start : start + size])
                await asyncio.sleep(0)
        assert await status(raw) == 431


@async_test
async def test_a_large_body_is_no_large_head() -> None:
    async with serving(small()) as port, connected(port) as raw:
        padded = INITIALIZE[:-1] + b" " * 20_000 + b"}"
        await raw.send(post(padded) + post(padded))
        assert [(await answer(raw))[0], (await answer(raw))[0]] == [200, 200]


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(INITIALIZE, b"Transfer-Encoding: chunked"),
        post(INITIALIZE).replace(b"POST /mcp", b"POST http://localhost/mcp"),
        post(INITIALIZE).replace(b"POST /mcp", b"CONNECT localhost:80"),
        post(INITIALIZE).replace(b"Content-Length: ", b"Content-Length: 1\r\nContent-Length: "),
        post(INITIALIZE).replace(b"HTTP/1.1", b"HTTP/x"),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["length and encoding", "absolute form", "authority form", "two lengths", "no version", "tls"],
)
@async_test
async def test_a_request_that_two_servers_could_read_differently_gets_400(request_bytes: bytes) -> None:
    async with serving(small()) as port, connected(port) as raw:
        await raw.send(request_bytes)
        assert await status(raw) == 400
        await raw.rest()


@async_test
async def test_a_client_that_does_not_read_a_plain_answer_is_dropped() -> None:
    server = Server("loud", settings=Settings(times=Times(write_stall=0.3)))

    @server.tool
    async def flood() -> str:
        return "x" * 16_000_000

    service = Service(server.front(HttpSettings()))
    async with serving(server, service) as port, connected(port) as raw:
        await raw.send(post(INITIALIZE))
        session = (await answer(raw))[1]["mcp-session-id"].encode()
        await raw.send(post(tool_call("flood"), b"Mcp-Session-Id: " + session))
        raw.stop_reading()
        await until(lambda: not service.members.connections)
        raw.go_on_reading()
        assert 0 < len(await raw.rest()) < 16_000_000


@async_test
async def test_a_slow_client_that_reads_a_stream_is_not_cut() -> None:
    """The limit is for a client that takes nothing: it is much shorter than the time for one page of events."""
    server = Server("loud", settings=Settings(times=Times(write_stall=0.4)))

    @server.tool
    async def flood(ctx: Context) -> str:
        for step in range(800):
            await ctx.progress(step, message="x" * 10_000)
        return "all sent"

    loop = asyncio.get_running_loop()
    async with serving(server) as port, connected(port) as raw:
        await raw.send(post(INITIALIZE))
        session = (await answer(raw))[1]["mcp-session-id"].encode()
        body = json.loads(tool_call("flood"))
        body["params"]["_meta"] = {"progressToken": "p"}
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            slow.setblocking(False)
            await loop.sock_connect(slow, ("127.0.0.1", port))
            await loop.sock_sendall(slow, post(json.dumps(body).encode(), b"Mcp-Session-Id: " + session))
            ends = loop.time() + 1.5
            tail = b""
            while loop.time() < ends:
                tail = await loop.sock_recv(slow, 1_024)
                # Real time is the subject: about 50 KB in a second.
                await asyncio.sleep(0.02)
            while b"all sent" not in tail:
                part = await loop.sock_recv(slow, 65_536)
                assert part, "the connection was cut"
                tail = tail[-100:] + part


# The end


async def ready(process: asyncio.subprocess.Process) -> int:
    """Return the port from the banner."""
    assert process.stderr is not None
    async for line in process.stderr:
        if b"serving" in line:
            return int(line.split(b"127.0.0.1:")[1].split(b"/")[0])
    raise AssertionError("the server ended before it served")


@contextlib.asynccontextmanager
async def process() -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "limpet", "serve", str(SMALL), "--http", "127.0.0.1:0",
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    try:
        yield started, await ready(started)
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


def tool_call(tool: str, **arguments: Any) -> bytes:
    params = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}).encode()


@async_test
async def test_sigterm_ends_open_streams_and_lets_a_running_call_finish() -> None:
    async with process() as (started, port), connected(port) as raw, connected(port) as standalone:
        await raw.send(post(INITIALIZE))
        session = b"Mcp-Session-Id: " + (await answer(raw))[1]["mcp-session-id"].encode()
        await standalone.send(
            b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n" + session + b"\r\n\r\n"
        )
        assert await status(standalone) == 200
        await raw.send(post(tool_call("slow", seconds=0.8), session))
        # It has become a stream: it runs.
        assert await status(raw) == 200
        started.send_signal(signal.SIGTERM)
        streamed = await raw.rest()
        assert b'"text":"slept"' in streamed
        assert (await standalone.rest()).endswith(b"0\r\n\r\n")
        assert await asyncio.wait_for(started.wait(), BOUND) == 0
        assert started.stderr is not None
        assert b"closed: shutdown" in await started.stderr.read()


@async_test
async def test_a_call_that_outlasts_the_drain_time_is_ended_with_an_answer() -> None:
    async with process() as (started, port), connected(port) as raw:
        await raw.send(post(INITIALIZE))
        session = b"Mcp-Session-Id: " + (await answer(raw))[1]["mcp-session-id"].encode()
        await raw.send(post(tool_call("wait", gate="never"), session))
        assert await status(raw) == 200
        before = asyncio.get_running_loop().time()
        started.send_signal(signal.SIGTERM)
        assert b"-32800" in await raw.rest()
        assert await started.wait() == 0
        assert 1.9 < asyncio.get_running_loop().time() - before < 60


# Addresses


def front(settings: HttpSettings = HttpSettings(), *, guarded: bool = False) -> HttpFront:
    async def verify(token: str) -> Principal | None:
        return Principal(subject=token)

    return HttpFront(Engine(ScriptedBack()), settings, verifier=verify if guarded else None)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1", "[::1]"])
def test_loopback_needs_no_guard(host: str) -> None:
    assert is_loopback(host)
    check_exposure(front(), host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "mcp.example.com"])
def test_an_address_others_reach_needs_a_verifier_or_the_flag(host: str) -> None:
    named = HttpSettings(allowed_hosts=("mcp.example.com",))
    with pytest.raises(ConfigError, match="--allow-anonymous"):
        check_exposure(front(named), host)
    check_exposure(front(named, guarded=True), host)
    check_exposure(front(HttpSettings(allowed_hosts=("*",), allow_anonymous=True)), host)


def test_an_address_others_reach_needs_the_names_it_is_called_by() -> None:
    with pytest.raises(ConfigError, match="--allow-host"):
        check_exposure(front(guarded=True), "0.0.0.0")


def test_a_port_in_use_is_named_with_the_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"127\.0\.0\.1:{port}: Address already in use; choose another"
        ):
            bind("127.0.0.1", port)


def test_the_url_is_the_one_that_was_bound() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert url_of(listener, "/mcp") == f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
