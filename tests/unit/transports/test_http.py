"""HTTP as the client's transport: bytes moved, sizes bounded, and certainty about requests that were never sent."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from limpet.errors import Broken, ConfigError, NotSent, WireError
from limpet.transports import http, http_wire
from limpet.transports.http import HttpClientOptions, HttpTransport
from tests.redis.test_tls import Authority
from tests.support import BOUND, async_test, until


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[tuple[HttpTransport, str, list[bytes]]]:
    """Send the same answer to every connection and close it."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    transport = HttpTransport(HttpClientOptions(connect_seconds=1.0))
    try:
        yield transport, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", asked
    finally:
        await transport.aclose()
        server.close()
        await server.wait_closed()


def reply(body: bytes, *headers: str) -> bytes:
    head = ["HTTP/1.1 200 OK", f"content-length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@async_test
async def test_status_headers_and_body_come_as_they_are() -> None:
    async with answering(reply(b"hello", "X-A: 1", "x-a: 2")) as (transport, url, asked):
        answer = await transport.open("POST", url, {"x-mine": "yes"}, b"question")
        assert (answer.status, answer.header("x-a"), answer.headers()["x-a"]) == (200, "1", ("1", "2"))
        assert await answer.body(5) == b"hello"
        assert b"x-mine: yes" in asked[0].lower()
        assert b"accept-encoding: identity" in asked[0].lower()


@async_test
async def test_a_body_over_the_limit_is_not_read_to_its_end() -> None:
    async with answering(reply(b"x" * 100_000)) as (transport, url, _):
        answer = await transport.open("GET", url, {})
        with pytest.raises(WireError, match="over 1000 bytes"):
            await answer.body(1_000)


@async_test
async def test_a_body_that_is_not_read_to_its_end_leaves_no_connection() -> None:
    silence = asyncio.Event()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(b"x" * 100)[:-50])
        await silence.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    transport = HttpTransport()
    answer = await transport.open("GET", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", {})
    reading = asyncio.ensure_future(answer.body(1_000))
    await asyncio.sleep(0)
    reading.cancel()
    await until(lambda: not transport._wires)
    silence.set()
    server.close()
    await server.wait_closed()


@async_test
async def test_a_body_that_is_cut_is_broken() -> None:
    async with answering(reply(b"x" * 100)[:-50]) as (transport, url, _):
        answer = await transport.open("GET", url, {})
        with pytest.raises(Broken):
            await answer.body(1_000)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200", b"SSH-2.0-OpenSSH\r\n", b"\0" * 100])
@async_test
async def test_no_answer_or_garbage_is_broken(answer: bytes) -> None:
    async with answering(answer) as (transport, url, _):
        with pytest.raises(Broken):
            await transport.open("POST", url, {}, b"question")


@async_test
async def test_compressed_content_is_refused_unread() -> None:
    async with answering(reply(b"\x1f\x8b", "content-encoding: gzip")) as (transport, url, _):
        with pytest.raises(Broken, match="compressed"):
            await transport.open("GET", url, {})


@async_test
async def test_a_redirect_is_only_reported() -> None:
    moved = b"HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
    async with answering(moved) as (transport, url, asked):
        answer = await transport.open("POST", url, {}, b"question")
        assert (answer.status, answer.header("location")) == (307, "http://127.0.0.1:1/")
        answer.close()
        assert len(asked) == 1


@async_test
async def test_a_request_that_cannot_connect_raises_not_sent() -> None:
    transport = HttpTransport(HttpClientOptions(connect_seconds=1.0))
    async with aclosing(transport):
        with pytest.raises(NotSent, match="cannot connect"):
            await transport.open("POST", "http://127.0.0.1:1/", {}, b"question")
        with pytest.raises(ConfigError):
            await transport.open("POST", "http://", {}, b"question")


@async_test
async def test_cookies_are_not_kept() -> None:
    async with answering(reply(b"", "set-cookie: a=b")) as (transport, url, asked):
        for _ in range(2):
            await (await transport.open("GET", url, {})).body(10)
        assert b"cookie" not in asked[1].lower()


# Connections that are used again


class Connections:
    """A server. Each request on each of its connections is answered by `replies`, in turn; the last one stays."""

    def __init__(self, *replies: bytes) -> None:
        self.replies = list(replies)
        self.requests: list[tuple[int, bytes]] = []
        """The number of the connection, and the head of the request."""
        self.writers: list[asyncio.StreamWriter] = []
        self.ended = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        number = len(self.writers)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append((number, head))
                writer.write(self.replies.pop(0) if len(self.replies) > 1 else self.replies[0])
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ended += 1
        finally:
            writer.close()

    @property
    def used(self) -> list[int]:
        """The connection of each request."""
        return [number for number, _ in self.requests]


@asynccontextmanager
async def keeping(server: Connections, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
    finally:
        listening.close()
        await listening.wait_closed()


@asynccontextmanager
async def served(*replies: bytes) -> AsyncIterator[tuple[HttpTransport, str, Connections]]:
    """Answer the requests of each connection with these replies, one after another."""
    server = Connections(*replies)
    async with (
        keeping(server) as url,
        aclosing(HttpTransport(HttpClientOptions(connect_seconds=5.0))) as transport,
    ):
        yield transport, url, server


def with_server(*replies: bytes) -> Callable[[Callable[..., Awaitable[None]]], Callable[[], None]]:
    """Run a test with a transport, a URL and the server behind it."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[[], None]:
        @async_test
        async def run() -> None:
            async with served(*replies) as (transport, url, server):
                await test(transport, url, server)

        return run

    return decorate


async def get(transport: HttpTransport, url: str) -> bytes:
    return await (await transport.open("GET", url, {})).body(1_000_000)


CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\ntrailer: 1\r\n\r\n"
)


@with_server(reply(b"one"), CHUNKED, reply(b""), reply(b"four"))
async def test_a_connection_is_used_again(transport: HttpTransport, url: str, server: Connections) -> None:
    assert [await get(transport, url) for _ in range(4)] == [b"one", b"abcde", b"", b"four"]
    assert server.used == [1, 1, 1, 1]


@with_server(
    reply(b"one", "connection: close"),
    reply(b"two"),
    b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\n3",
    reply(b""),
)
async def test_a_connection_that_the_server_wants_to_close_is_not_used_again(
    transport: HttpTransport, url: str, server: Connections
) -> None:
    assert [await get(transport, url) for _ in range(4)] == [b"one", b"two", b"3", b""]
    assert server.used == [1, 2, 2, 3]


@with_server(reply(b"one") + reply(b"two"), reply(b"three"))
async def test_a_connection_with_more_than_was_asked_for_is_not_used_again(
    transport: HttpTransport, url: str, server: Connections
) -> None:
    assert [await get(transport, url), await get(transport, url)] == [b"one", b"three"]
    assert server.used == [1, 2]


@with_server(reply(b"one"), reply(b"two"))
async def test_bytes_on_an_unused_connection_close_it(
    transport: HttpTransport, url: str, server: Connections
) -> None:
    assert await get(transport, url) == b"one"
    server.writers[0].write(reply(b"not asked for"))
    await until(lambda: server.ended == 1)
    assert await get(transport, url) == b"two"
    assert server.used == [1, 2]


@with_server(reply(b"one"))
async def test_two_requests_at_once_have_two_connections(
    transport: HttpTransport, url: str, server: Connections
) -> None:
    assert set(await asyncio.gather(get(transport, url), get(transport, url))) == {b"one"}
    assert sorted(server.used) == [1, 2]


@async_test
async def test_an_unused_connection_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "IDLE_SECONDS", 0.05)
    async with served(reply(b"one")) as (transport, url, server):
        await asyncio.gather(get(transport, url), get(transport, url))
        await until(lambda: server.ended == 2)
        assert repr(transport) == "<HttpTransport unused>"


@with_server(reply(b"one"))
async def test_a_connection_that_the_server_closed_meanwhile_costs_a_get_nothing(
    transport: HttpTransport, url: str, server: Connections
) -> None:
    await get(transport, url)
    server.writers[0].transport.abort()
    assert await get(transport, url) == b"one"
    assert server.used == [1, 2]


@with_server(reply(b"one"))
async def test_a_connection_that_the_server_closed_while_the_loop_was_busy_is_not_used_again(
    transport: HttpTransport, url: str, server: Connections
) -> None:
    await get(transport, url)
    (wire,) = transport._wires
    server.writers[0].get_extra_info("socket").shutdown(socket.SHUT_WR)
    # The loop does not run before the next request.
    assert wire._poll.poll(BOUND * 1_000)
    answer = await transport.open("POST", url, {}, b"not twice")
    assert await answer.body(10) == b"one"
    assert server.used == [1, 2]


# Responses


@pytest.mark.parametrize(
    "interim", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 3]
)
@async_test
async def test_interim_responses_are_passed_over(interim: bytes) -> None:
    async with served(interim + reply(b"yes", "x-a: 1")) as (transport, url, server):
        for _ in range(2):
            answer = await transport.open("POST", url, {}, b"")
            assert (answer.status, answer.header("link"), await answer.body(10)) == (200, "", b"yes")
        assert server.used == [1, 1]


@async_test
async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\n\r\nall of it") as (transport, url, _):
        assert await get(transport, url) == b"all of it"


@pytest.mark.parametrize("cut", range(len(CHUNKED) - 60, len(CHUNKED)))
@async_test
async def test_a_chunked_body_that_is_cut_is_broken(cut: int) -> None:
    async with answering(CHUNKED[:cut]) as (transport, url, _):
        with pytest.raises(Broken):
            await get(transport, url)


@with_server(b"HTTP/1.1 200 OK\r\n" + b"x-a: " + b"x" * http_wire.HEAD_BYTES + b"\r\n")
async def test_the_head_of_a_response_is_bounded(
    transport: HttpTransport, url: str, server: Connections
) -> None:
    with pytest.raises(Broken, match="head"):
        await get(transport, url)
    await until(lambda: server.ended == 1)


@with_server(reply(b"x" * 40_000_000), reply(b"next"))
async def test_a_response_that_is_not_read_is_not_buffered(
    transport: HttpTransport, url: str, server: Connections
) -> None:
    answer = await transport.open("GET", url, {})
    await until(lambda: bool(server.writers[0].transport.get_write_buffer_size()))
    await asyncio.sleep(0.1)  # real time: late bytes arrive within it
    first = len(await answer.chunk())
    assert 0 < first <= http_wire.PAUSE_BYTES + 512 * 1024
    assert first + len(await answer.body(40_000_000)) == 40_000_000
    assert await get(transport, url) == b"next"
    assert server.used == [1, 1]


@with_server(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n")
async def test_a_task_that_reads_learns_that_another_one_closed_the_response(
    transport: HttpTransport, url: str, server: Connections
) -> None:
    answer = await transport.open("GET", url, {})
    assert await answer.chunk() == b"data: 1\n\n"
    reading = asyncio.ensure_future(answer.chunk())
    await asyncio.sleep(0)
    answer.close()
    with pytest.raises(Broken, match="closed by us"):
        await reading
    await until(lambda: server.ended == 1)


@with_server(b"")
async def test_a_cancelled_request_closes_its_connection(
    transport: HttpTransport, url: str, server: Connections
) -> None:
    asking = asyncio.ensure_future(transport.open("POST", url, {}, b"x"))
    await until(lambda: bool(server.requests))
    asking.cancel()
    await until(lambda: server.ended == 1)
    assert asking.cancelled()


class Plug(asyncio.Transport):
    """A transport that notes how its connection is used."""

    def __init__(self) -> None:
        super().__init__({"socket": 0})
        self.is_aborted = False

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    @override
    def is_closing(self) -> bool:
        return self.is_aborted

    @override
    def abort(self) -> None:
        self.is_aborted = True


@pytest.mark.parametrize("last", [b"0\r\nx: ", b"0;x="])
@async_test
async def test_what_follows_the_last_part_of_a_body_is_bounded(last: bytes) -> None:
    plug = Plug()
    wire = http_wire.HttpWire(lambda _: None, lambda _: None)
    wire.connection_made(plug)
    asking = asyncio.ensure_future(wire.send(b"x", None))
    await asyncio.sleep(0)
    wire.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    size = 2 * http_wire.HEAD_BYTES
    for _ in range(2):
        wire.data_received(b"%x\r\n%b\r\n" % (size, b"b" * size))
    answer = await asking
    assert len(await answer.chunk()) == 2 * size
    wire.data_received(last)
    for _ in range(http_wire.HEAD_BYTES // 1_024):
        assert not plug.is_aborted
        wire.data_received(b"a" * 1_024)
    assert plug.is_aborted
    with pytest.raises(Broken, match="trailer"):
        await answer.chunk()


@async_test
async def test_a_cancelled_request_does_not_close_the_connection_of_the_next_one() -> None:
    plug, free = Plug(), list[http_wire.HttpWire]()
    wire = http_wire.HttpWire(free.append, lambda _: None)
    wire.connection_made(plug)
    first = asyncio.ensure_future(wire.send(b"first", None))
    await asyncio.sleep(0)
    # In one turn: the response arrives, the next request takes the free connection, the first request is cancelled.
    second = asyncio.ensure_future(wire.send(b"second", None))
    wire.data_received(reply(b"one"))
    assert free == [wire]
    first.cancel()
    await asyncio.wait({first})
    assert not plug.is_aborted
    wire.data_received(reply(b"two"))
    assert await (await second).body(10) == b"two"


@given(st.data(), st.sampled_from([CHUNKED, b"HTTP/1.1 100 Continue\r\n\r\n" + reply(b"abcde", "x-a: b")]))
@async_test
async def test_a_response_is_the_same_for_every_cut_of_its_bytes(
    data: st.DataObject, response: bytes
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(response) - 1))))
    parts = [response[a:b] for a, b in pairwise([0, *cuts, len(response)])]
    freed: list[http_wire.HttpWire] = []
    wire = http_wire.HttpWire(freed.append, freed.append)
    plug = Plug()
    wire.connection_made(plug)
    asking = asyncio.ensure_future(wire.send(b"", None))
    await asyncio.sleep(0)
    for part in parts:
        assert not freed
        wire.data_received(part)
    assert await (await asking).body(5) == b"abcde"
    assert freed == [wire]
    assert not plug.is_aborted


# Requests


@pytest.mark.parametrize("value", ["a\r\nx-b: 1", "a\nx-b: 1", "a\rb", "a\0b"])
@async_test
async def test_a_header_cannot_begin_another_one(value: str) -> None:
    async with served(reply(b"")) as (transport, url, server):
        with pytest.raises(ConfigError, match="line break"):
            await transport.open("GET", url, {"x-a": value})
        assert not server.requests


@with_server(reply(b""))
async def test_a_body_has_its_length_and_a_path_its_query(
    transport: HttpTransport, url: str, server: Connections
) -> None:
    body = b"x" * 200_000
    secret = url.replace("//", "//ada:l%40ve@") + "a b/ü?q=%20&r=[1]"
    answer = await transport.open("POST", secret, {"user-agent": "mine", "x-ü": "ä"}, body)
    assert await answer.body(0) == b""
    head = server.requests[0][1].decode()
    assert head.startswith("POST /a%20b/%C3%BC?q=%20&r=%5B1%5D HTTP/1.1\r\n")
    assert "content-length: 200000\r\n" in head
    assert "user-agent: mine\r\n" in head
    assert "limpet" not in head
    assert "x-ü: ä\r\n" in head
    assert "authorization: Basic YWRhOmxAdmU=\r\n" in head
    assert f"host: {url[7:-1]}\r\n" in head


@pytest.mark.parametrize(
    "url", ["http://", "ftp://a/", "http://a:b/", "http://[::1/", "/a", "http://" + 64 * "ü"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="not a URL"):
        http.place_of(url)


def test_hosts_are_named_as_http_demands() -> None:
    assert http.place_of("http://[::1]:80/").headers["host"] == "[::1]"
    assert http.place_of("https://Bücher.example").headers["host"] == "xn--bcher-kva.example"
    assert http.place_of("https://a.example:80").origin == ("https", "a.example", 80)


def test_the_same_headers_make_the_same_head_at_each_place_and_are_checked() -> None:
    plain = {"x-a": "1", "user-agent": "mine"}
    same = http.SameHeaders(plain)
    for url in ("http://a.example/x", "http://b.example/", "http://a.example/x"):
        for body in (b"", b"12", None):
            heads = {http.head_of("POST", http.place_of(url), some, body) for some in (same, plain)}
            assert len(heads) == 1
    with pytest.raises(ConfigError, match="line break"):
        http.head_of("POST", http.place_of("http://a/"), http.SameHeaders({"x-a": "1\nx-b: 2"}), b"")


# TLS


@async_test
async def test_the_certificate_of_the_server_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path, "authority")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.certify("server"))
    server = Connections(reply(b"one"), reply(b"x" * 3_000_000))
    async with keeping(server, tls) as url:
        stranger, careless = HttpTransport(), HttpTransport(HttpClientOptions(verify=False))
        with pytest.raises(NotSent, match="certificate"):
            await get(stranger, url)
        assert await get(careless, url) == b"one"
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        believer = HttpTransport()
        assert len(await (await believer.open("GET", url, {})).body(3_000_000)) == 3_000_000
        for transport in (stranger, careless, believer):
            await transport.aclose()
        assert not [head for _, head in server.requests if not head.startswith(b"GET")]
