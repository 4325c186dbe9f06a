"""Heads that a connection has sent before are not parsed again, and mean the same as if they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config import Limits
from holdfast.fronts.http.listener.deadlines import Deadlines
from holdfast.fronts.http.listener.members import Members
from holdfast.fronts.http.listener.parser import RequestParser
from holdfast.fronts.http.listener.protocol import HttpProtocol
from holdfast.fronts.http.request import Channel, RawRequest
from tests.http.fuzz import outcome
from tests.http.paper import Paper, settled
from tests.support import virtual_test


def post(body: bytes, length: bytes | None = None, *more: bytes) -> bytes:
    number = b"%d" % len(body) if length is None else length
    lines = b"".join(line + b"\r\n" for line in more)
    return b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: %b\r\nX: y\r\n%b\r\n%b" % (number, lines, body)


GET = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
READS = [
    post(b""), post(b"a"), post(b"b"), post(b"0123456789"), GET, GET + GET, post(b"a") + GET, post(b"ab")[:-1], b"c",
    post(b"abc", b"003"), post(b"abc", b" 3"), post(b"abc", b"+3"), post(b"abc", b"4"), post(b"abc", b"2"),
    post(b"a", None, b"Connection: close"), post(b"a", None, b"Expect: 100-continue"), post(b"a", None, b"Content-Length: 1"),
    post(b"a", None, b"Transfer-Encoding: chunked"), GET[:-2], b"\r\n", b"\r\n" + GET, post(b"a").replace(b"POST", b"PUT"),
]  # fmt: skip


@given(st.lists(st.sampled_from(READS), max_size=6))
def test_a_connection_that_remembers_heads_reads_the_same_as_one_that_does_not(reads: list[bytes]) -> None:
    @virtual_test
    async def run() -> None:
        found = await outcome(reads)
        # The same bytes in single bytes: no head is ever remembered.
        plain = await outcome([bytes([byte]) for byte in b"".join(reads)])
        assert found == plain

    run()


@virtual_test
async def test_a_head_is_parsed_once_and_has_the_length_of_its_own_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[str, bytes | None, RawRequest]] = []

    async def serve(request: RawRequest, channel: Channel) -> None:
        seen.append((request.head["content-length"], channel.take_body(), request))
        scope, _, _ = channel.asgi()
        assert (b"content-length", request.head["content-length"].encode()) in scope["headers"]
        channel.answer(200, [(b"content-length", b"0")], b"")

    connection, paper = HttpProtocol(Members(serve, Deadlines(Limits(), 30.0))), Paper()
    connection.connection_made(paper)
    fed: list[int] = []
    feed = RequestParser.feed

    def counted(parser: RequestParser, data: bytes | memoryview) -> None:
        fed.append(len(data))
        feed(parser, data)

    monkeypatch.setattr(RequestParser, "feed", counted)
    for body in (b"one", b"two", b"three", b"four", b""):
        connection.data_received(post(body))
        await settled()
    assert [(length, body) for length, body, _ in seen] == [
        ("3", b"one"), ("3", b"two"), ("5", b"three"), ("4", b"four"), ("0", b"")
    ]  # fmt: skip
    assert seen[0][2] is seen[1][2]
    assert len(fed) == 1
    assert paper.statuses == [200] * 5
