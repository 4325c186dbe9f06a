"""HTTP as the client's transport: bytes moved, sizes bounded, and certainty about what never left."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.errors import Broken, ConfigError, NotSent, WireError
from holdfast.transports.http import HttpOptions, HttpTransport
from tests.support import async_test


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[tuple[HttpTransport, str, list[bytes]]]:
    """Send the same answer to every connection and close it."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    transport = HttpTransport(HttpOptions(connect_seconds=1.0))
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
        assert (answer.status, answer.header("X-a"), answer.headers()["x-a"]) == (200, "1", ("1", "2"))
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
async def test_a_body_that_is_cut_is_broken() -> None:
    async with answering(reply(b"x" * 100)[:-50]) as (transport, url, _):
        answer = await transport.open("GET", url, {})
        with pytest.raises(Broken):
            await answer.body(1_000)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200", b"SSH-2.0-OpenSSH\r\n", b"\0" * 100])
def test_no_answer_or_garbage_is_broken(answer: bytes) -> None:
    @async_test
    async def run() -> None:
        async with answering(answer) as (transport, url, _):
            with pytest.raises(Broken):
                await transport.open("POST", url, {}, b"question")

    run()


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
    transport = HttpTransport(HttpOptions(connect_seconds=1.0))
    with pytest.raises(NotSent, match="cannot connect"):
        await transport.open("POST", "http://127.0.0.1:1/", {}, b"question")
    with pytest.raises(ConfigError):
        await transport.open("POST", "http://", {}, b"question")
    await transport.aclose()


@async_test
async def test_cookies_are_not_kept() -> None:
    async with answering(reply(b"", "set-cookie: a=b")) as (transport, url, asked):
        for _ in range(2):
            await (await transport.open("GET", url, {})).body(10)
        assert b"cookie" not in asked[1].lower()
