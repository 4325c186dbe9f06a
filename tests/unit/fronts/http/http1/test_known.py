"""Heads that are like one that the connection has sent before are not parsed again, and mean the same as if they were."""

import re
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet import Context, Server
from limpet.auth import Principal
from limpet.config import HttpSettings, Limits
from limpet.fronts.http.http1.connection import HttpConnection
from limpet.fronts.http.http1.deadlines import Deadlines
from limpet.fronts.http.http1.known_heads import SHAPES
from limpet.fronts.http.http1.members import Members, Serve
from limpet.fronts.http.http1.parser import RequestParser
from limpet.fronts.http.read.request import Channel, RawRequest
from limpet.wire.jsonrpc import encode
from tests.http.fuzz import check_alike
from tests.http.paper import Paper, settled
from tests.messages import metadata, modern_headers, request
from tests.support import virtual_test


def post(body: bytes, length: bytes | None = None, *more: bytes) -> bytes:
    number = b"%d" % len(body) if length is None else length
    lines = b"".join(line + b"\r\n" for line in more)
    return b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: %b\r\nX: y\r\n%b\r\n%b" % (number, lines, body)


def named(value: bytes, *more: bytes) -> bytes:
    return post(b"abc", None, b"Mcp-Session-Id: " + value, b"Accept: b", *more)


GET = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
READS = [
    post(b""), post(b"a"), post(b"b"), post(b"0123456789"), GET, GET + GET, post(b"a") + GET, post(b"ab")[:-1], b"c",
    post(b"abc", b"003"), post(b"abc", b" 3"), post(b"abc", b"+3"), post(b"abc", b"4"), post(b"abc", b"2"),
    post(b"a", None, b"Connection: close"), post(b"a", None, b"Expect: 100-continue"), post(b"a", None, b"Content-Length: 1"),
    post(b"a", None, b"Transfer-Encoding: chunked"), GET[:-2], b"\r\n", b"\r\n" + GET, post(b"a").replace(b"POST", b"PUT"),
    post(b"abc") + b"\r\n", GET + b"\r\n", post(b"\r\n\r\nabc") + b"\r\n\r\n", b"\r\n\r\n" + post(b"abc"),
]  # fmt: skip
NAMED = [
    named(b"one"), named(b"two"), named(b"a longer one"), named(b""), named(b" "), named(b" one"), named(b"one "), named(b"\tone"),
    named(b"o\0ne"), named(b"o\ne"), named(b"o\rne"), named(b"o\r\n ne"), named(b"\xe9"), named(b"o\x7fe"), named(b"1" * 2_000),
    named(b"one\r\nContent-Length: 3"), named(b"one\r\nTransfer-Encoding: chunked"), named(b"one\r\n\r\n"), named(b"one") + GET,
    named(b"one")[:-1], named(b"one", b"Mcp-Session-Id: two"), named(b"two", b"Mcp-Session-Id: one"),
    named(b"two").replace(b"Mcp-S", b"mcp-s"), named(b"two").replace(b"Id: ", b"Id:"), named(b"two").replace(b"X: y", b"X: z"),
    named(b"two").replace(b"Id: ", b"Id : "), named(b"two").replace(b"b\r\n\r\n", b"close\r\n\r\n"),
    named(b"two").replace(b"/x", b"/z"), named(b"two").replace(b"HTTP/1.1", b"HTTP/1.0"), post(b"abc"), GET,
]  # fmt: skip


@given(st.lists(st.sampled_from(READS), max_size=6))
@virtual_test
async def test_a_connection_that_remembers_heads_reads_the_same_as_one_that_does_not(
    reads: list[bytes],
) -> None:
    await check_alike(reads)


@pytest.mark.parametrize("more", [b"\r\n", b"\r\n\r\n"])
@virtual_test
async def test_empty_lines_around_a_request_are_no_part_of_it(more: bytes) -> None:
    for body in (b"", b"abc", b"\r\n\r\nabc"):
        for read in (post(body) + more, more + post(body)):
            await check_alike([read, read, post(body)])


HEAD_ONLY = post(b"", b"55")


@pytest.mark.parametrize(
    "reads",
    [
        pytest.param([GET[:10], GET[10:], GET[10:]], id="the rest of a head"),
        pytest.param([post(b"abc")[:-1], b"c" + GET, b"c" + GET], id="the rest of a body before a request"),
        pytest.param([GET, b"\r\n\r\n", b"\r\n\r\n"], id="empty lines"),
        pytest.param(
            [b"\r\n\r\n" + HEAD_ONLY, b"x" * 55, b"\r\n\r\n" + b"x" * 55],
            id="empty lines before a head without its body",
        ),
    ],
)
@virtual_test
async def test_only_a_whole_request_is_remembered(reads: list[bytes]) -> None:
    assert len(HEAD_ONLY) == 55, (
        "as long as its body, so that the empty lines before it could be taken as a head"
    )
    await check_alike(reads)


@pytest.mark.parametrize("read", NAMED)
@virtual_test
async def test_a_head_with_another_value_is_read_as_if_no_head_were_remembered(read: bytes) -> None:
    for before in (named(b"one"), named(b"one", b"Mcp-Session-Id: two"), read):
        await check_alike([before, read, named(b"three")])
        # The second and third read differ from the first one: the next one is compared between the values that differed.
        await check_alike([before, named(b"zero"), named(b"none"), read, named(b"three")])


@virtual_test
async def test_a_head_with_a_longer_value_keeps_the_limit_of_a_head() -> None:
    async def last_status(*values: bytes) -> int:
        paper = Paper()

        async def serve(_request: RawRequest, channel: Channel) -> None:
            channel.answer(200, [(b"content-length", b"0")], b"")

        connection = HttpConnection(Members(serve, Deadlines(Limits(headers=400), 30.0)))
        connection.connection_made(paper)
        for value in values:
            connection.data_received(named(value, b"Y: " + b"z" * 99))
            await settled()
        return paper.statuses[-1]

    found = {size: await last_status(b"one", b"two", b"x" * size) for size in range(200, 401, 2)}
    assert found == {size: await last_status(b"x" * size) for size in found}
    assert set(found.values()) == {200, 431}


class Watched:
    """A connection in memory, the requests that it serves, and how often its parser has run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, serve: Serve | None = None) -> None:
        self.seen: list[tuple[RawRequest, bytes | None]] = []
        self.parsed = 0
        self.paper = Paper()
        self.connection = HttpConnection(Members(serve or self.serve, Deadlines(Limits(), 30.0)))
        self.connection.connection_made(self.paper)
        feed = RequestParser.feed

        def counted(parser: RequestParser, data: bytes | memoryview) -> None:
            self.parsed += 1
            feed(parser, data)

        monkeypatch.setattr(RequestParser, "feed", counted)

    async def serve(self, request: RawRequest, channel: Channel) -> None:
        self.seen.append((request, channel.take_body()))
        lines = channel.asgi()[0]["headers"]
        assert {name.decode(): value.decode() for name, value in lines} == dict(request.head)
        channel.answer(200, [(b"content-length", b"0")], b"")

    async def read(self, *reads: bytes) -> None:
        for read in reads:
            self.connection.data_received(read)
            await settled()
        assert self.paper.statuses == [200] * len(self.seen)


@virtual_test
async def test_a_head_is_parsed_once_and_has_the_length_of_its_own_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch)
    await watched.read(*map(post, (b"one", b"two", b"three", b"four", b"")))
    assert [(request.head["content-length"], body) for request, body in watched.seen] == [
        ("3", b"one"), ("3", b"two"), ("5", b"three"), ("4", b"four"), ("0", b"")
    ]  # fmt: skip
    assert watched.seen[0][0] is watched.seen[1][0]
    assert watched.parsed == 1


@virtual_test
async def test_the_requests_of_several_sessions_on_one_connection_are_parsed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch)
    await watched.read(named(b"one"), named(b"two"), named(b"one", b"X2: y"), named(b"three"), named(b"one"))
    assert [request.session_id for request, _ in watched.seen] == ["one", "two", "one", "three", "one"]
    assert [request.head["mcp-session-id"] for request, _ in watched.seen[1:3]] == ["two", "one"]
    assert watched.parsed == 2


@virtual_test
async def test_a_connection_remembers_a_few_heads_only(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    heads = [post(b"a", None, b"Other: %d" % number) for number in range(SHAPES + 1)]
    await watched.read(*heads, *heads[1:], heads[0])
    assert watched.parsed == len(heads) + 1


class Remembering:
    """A verifier that remembers the tokens that it has accepted."""

    def __init__(self) -> None:
        self.accepted: set[str] = set()

    def known(self, token: str) -> tuple[Principal, float] | None:
        return (Principal(subject=token), 1e12) if token in self.accepted else None

    async def __call__(self, token: str) -> Principal | None:
        if token == "mallory":
            return None
        self.accepted.add(token)
        return Principal(subject=token)


def call_with(header: str, value: str) -> bytes:
    """Return a call of the tool `who`, with this header."""
    params = {"name": "who", "arguments": {}, "_meta": metadata()}
    body = encode(request(1, "tools/call", params))
    headers = {**modern_headers("tools/call", params), header: value}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    start = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\n"
    length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return (start + head + length).encode() + body


@virtual_test
async def test_each_address_behind_a_proxy_is_checked_on_a_shared_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server("house")

    @server.tool
    async def who() -> str:
        return "someone"

    front = server.front(HttpSettings(trusted_proxies=["127.0.0.1"]))
    async with aclosing(front.engine):
        await front.engine.ensure_started()
        watched = Watched(monkeypatch, front.serve)
        # Without a verifier only clients of this machine are served. The proxy is on this machine, too.
        for address in ("127.0.0.1", "203.0.113.5", "127.0.0.1", "203.0.113.5"):
            watched.connection.data_received(call_with("X-Forwarded-For", address))
            await settled()
        assert watched.paper.statuses == [200, 403, 200, 403]
        assert watched.parsed == 1


@virtual_test
async def test_each_token_on_a_connection_has_its_own_principal(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("house", verifier=Remembering())

    @server.tool
    async def who(ctx: Context) -> str:
        return f"<{ctx.principal.subject}>" if ctx.principal is not None else "<>"

    front = server.front(HttpSettings())
    await front.engine.ensure_started()
    watched = Watched(monkeypatch, front.serve)
    tokens = ["ann", "ann", "bob", "ann", "mallory", "mallory", "bob", "mallory", "ann"]
    for token in tokens:
        watched.connection.data_received(call_with("Authorization", f"Bearer {token}"))
        await settled()
    assert watched.parsed == 1
    answers = watched.paper.written.split(b"HTTP/1.1 ")[1:]
    found = [answer[:3] + b"".join(re.findall(rb"<.*?>", answer)[:1]) for answer in answers]
    assert found == [b"401" if token == "mallory" else b"200<%b>" % token.encode() for token in tokens]
