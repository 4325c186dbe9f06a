"""The corpus of requests that two servers could read differently, and random variants of it."""

import asyncio

import pytest

from limpet.config import Limits
from limpet.fronts.http.http1.connection import HttpConnection
from limpet.fronts.http.http1.deadlines import Deadlines
from limpet.fronts.http.http1.members import Members
from limpet.fronts.http.read.request import Channel, RawRequest
from tests.http.fuzz import fuzz, outcome
from tests.http.paper import Paper, quiet
from tests.http.serving import Process
from tests.http.smuggling import CORPUS, SECOND, Case, chunked, post
from tests.support import async_test


@pytest.mark.parametrize("case", CORPUS.values(), ids=list(CORPUS))
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_request_that_two_servers_could_read_differently_gets_its_answer(case: Case, size: int) -> None:
    parts = [case.sent[at : at + size] for at in range(0, len(case.sent), size)]
    found = asyncio.run(outcome(parts))
    assert (found.statuses, tuple(body for _, _, body in found.served)) == (case.statuses, case.bodies)


async def statuses(port: int, sent: bytes) -> list[int]:
    """Send bytes, close our side, and return the statuses of all answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        writer.write_eof()
        answers = (await reader.read()).split(b"HTTP/1.1 ")[1:]
    finally:
        writer.close()
    return [int(answer[:3]) for answer in answers]


@async_test
async def test_the_corpus_over_sockets_reaches_no_application_that_it_should_not(trial: Process) -> None:
    found = {name: await statuses(trial.port, case.sent) for name, case in CORPUS.items()}
    # The paths of the corpus do not exist here: accepted requests get 404.
    expected = {
        name: [404 if status == 200 else status for status in case.statuses] for name, case in CORPUS.items()
    }
    expected["no host in HTTP/1.0"] = [421]
    assert {name: [status for status in seen if status >= 200] for name, seen in found.items()} == expected


def test_random_variants_of_the_corpus_are_read_in_one_way_only() -> None:
    fuzz(seed=1, rounds=150)


# Bounds


def trailers(size: int) -> bytes:
    return b"0\r\n" + b"".join(b"X-%04d: %b\r\n" % (at, b"y" * 90) for at in range(size // 100)) + b"\r\n"


@pytest.mark.parametrize("size", [1, 500, 100_000])
def test_trailers_are_bounded_as_heads_are(size: int) -> None:
    for length, expected in ((1_000, [200]), (60_000, [431])):
        sent = chunked(trailers(length))
        parts = [sent[at : at + size] for at in range(0, len(sent), size)]
        found = asyncio.run(outcome(parts))
        assert found.statuses == expected or (size < 500 and found.statuses == [400])


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"1;" + b"x" * 400_000 + b"\r\na\r\n0\r\n\r\n", id="a long extension"),
        pytest.param(b"1;xxxxxxxxxxxx\r\na\r\n" * 4_000 + b"0\r\n\r\n", id="many extensions"),
        pytest.param(b"0\r\nX: " + b"y" * 400_000, id="a trailer without an end"),
    ],
)
def test_what_chunks_cost_beside_their_data_is_bounded(body: bytes) -> None:
    sent = chunked(body)
    parts = [sent[at : at + 1_000] for at in range(0, len(sent), 1_000)]
    assert asyncio.run(outcome(parts)).statuses == [400]


def test_a_body_in_single_bytes_is_accepted() -> None:
    sent = chunked(b"1\r\na\r\n" * 20_000 + b"0\r\n\r\n")
    parts = [sent[at : at + 1_000] for at in range(0, len(sent), 1_000)]
    found = asyncio.run(outcome(parts))
    assert (found.statuses, found.served) == ([200], [("POST", "/first", b"a" * 20_000)])


def test_a_read_full_of_single_bytes_is_refused_before_all_of_it_is_parsed() -> None:
    found = asyncio.run(outcome([chunked(b"1\r\na\r\n" * 40_000)]))
    assert (found.statuses, found.served) == ([400], [])


@async_test
async def test_a_read_full_of_requests_is_answered_in_order_with_few_of_them_in_memory() -> None:
    waiting: list[int] = []

    async def serve(_request: RawRequest, channel: Channel) -> None:
        waiting.append(len(connection._waiting))
        channel.answer(200, [(b"content-length", b"0")], b"")

    connection, paper = HttpConnection(Members(serve, Deadlines(Limits(), 30.0))), Paper()
    connection.connection_made(paper)
    connection.data_received(SECOND * 5_000)
    paused = [paper.paused]
    await quiet(paper)
    assert paper.statuses == [200] * 5_000
    assert [*paused, paper.paused] == [True, False]
    assert max(waiting) < 8 + 4_096 // len(SECOND) + 1


def test_a_head_is_bounded_wherever_in_a_read_it_begins() -> None:
    head = post(*(b"X-%d: %b" % (at, b"y" * 200) for at in range(30)))
    for before in (b"", SECOND, post(b"Content-Length: 100", body=b"z" * 100), SECOND * 20):
        for size in (300, 5_000, 100_000):
            sent = before + head
            found = asyncio.run(outcome([sent[at : at + size] for at in range(0, len(sent), size)]))
            assert found.statuses[-1] == 431


@pytest.mark.parametrize("before", [b"", SECOND])
@pytest.mark.parametrize("size", [300, 100_000])
def test_the_number_of_headers_is_bounded(size: int, before: bytes) -> None:
    # The limit of the tests is 2,048 bytes, so 32 headers.
    for more, expected in ((31, 200), (32, 431)):
        sent = before + post(*(b"X-%d: y" % at for at in range(more)))
        found = asyncio.run(outcome([sent[at : at + size] for at in range(0, len(sent), size)]))
        assert found.statuses[-1] == expected
