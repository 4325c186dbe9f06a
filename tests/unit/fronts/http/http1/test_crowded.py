"""All connections are in use: the address with the most idle ones loses one, and requests that run are left alone."""

import asyncio

from limpet.config import MIB, Limits
from limpet.fronts.http.http1.connection import HttpConnection
from limpet.fronts.http.http1.deadlines import Deadlines
from limpet.fronts.http.http1.members import Members
from tests.http.paper import Paper, settled
from tests.support import virtual_test
from tests.unit.fronts.http.http1.test_protocol import holding, post

BODY_MISSING = post(b"/", b"{}").removesuffix(b"{}")


class Crowded:
    """A server with few places."""

    def __init__(self, places: int, *, hurried: bool = False) -> None:
        self.deadlines = Deadlines(Limits(connections=places), 30.0, hurried=hurried)
        self.refused: list[str | None] = []
        self.release = asyncio.Event()
        self.members = Members(
            holding(self.release, []), self.deadlines, lambda _, address: self.refused.append(address)
        )
        self.protocols: list[HttpConnection] = []

    def connect(self, address: str, sent: bytes = b"") -> Paper:
        """Open a connection, and send bytes on it."""
        paper = Paper((address, 5))
        self.protocols.append(HttpConnection(self.members))
        self.protocols[-1].connection_made(paper)
        if sent:
            self.protocols[-1].data_received(sent)
        return paper

    def wait(self) -> None:
        """Let some sweeps pass."""
        self.deadlines.now += 3 * self.deadlines.interval


@virtual_test
async def test_the_address_with_the_most_idle_connections_loses_the_one_that_is_idle_for_the_longest_time() -> (
    None
):
    crowded = Crowded(5)
    honest = crowded.connect("10.0.0.1")
    crowded.wait()
    many = [crowded.connect("10.0.0.2") for _ in range(2)]
    crowded.wait()
    many += [crowded.connect("10.0.0.2") for _ in range(2)]
    crowded.wait()
    new = [crowded.connect(address) for address in ("10.0.0.3", "10.0.0.2", "10.0.0.4")]
    assert [paper.is_closing() for paper in many] == [True, True, True, False]
    assert not honest.is_closing()
    assert [paper.statuses for paper in new] == [[], [], []]
    assert crowded.refused == ["10.0.0.2"] * 3
    assert len(crowded.members.connections) == 5


@virtual_test
async def test_addresses_of_one_network_of_ipv6_count_together() -> None:
    crowded = Crowded(5)
    honest = [crowded.connect("10.0.0.1") for _ in range(2)]
    network = [crowded.connect(f"2001:db8::{number}") for number in range(1, 4)]
    crowded.wait()
    assert crowded.connect("10.0.0.3").statuses == []
    assert [paper.is_closing() for paper in honest] == [False, False]
    assert [paper.is_closing() for paper in network] == [True, False, False]


@virtual_test
async def test_unfinished_requests_make_room_and_running_ones_do_not() -> None:
    crowded = Crowded(3)
    running = crowded.connect("10.0.0.2", post(b"/", b"{}"))
    head, body = crowded.connect("10.0.0.2", b"GET /"), crowded.connect("10.0.0.2", BODY_MISSING)
    crowded.wait()
    assert crowded.connect("10.0.0.1", post(b"/", b"{}")).statuses == []
    assert crowded.connect("10.0.0.1", post(b"/", b"{}")).statuses == []
    assert head.is_closing()
    assert body.is_closing()
    assert crowded.connect("10.0.0.3").statuses == [503]
    assert not running.is_closing()


@virtual_test
async def test_a_connection_that_has_just_come_does_not_make_room() -> None:
    """Otherwise each connection of a flood would end the one before it, whose request is on its way."""
    crowded = Crowded(2)
    first = [crowded.connect("10.0.0.1"), crowded.connect("10.0.0.1")]
    crowded.deadlines.now += crowded.deadlines.interval
    assert crowded.connect("10.0.0.2").statuses == [503]
    assert not any(paper.is_closing() for paper in first)


@virtual_test
async def test_idle_and_unfinished_connections_of_the_address_that_uses_most_make_room_in_the_memory() -> (
    None
):
    crowded = Crowded(5_000)
    ledger = crowded.members.account("10.0.0.2").ledger
    honest = crowded.connect("10.0.0.1")
    heavy = [crowded.connect("10.0.0.2", BODY_MISSING) for _ in range(2)]
    busy = crowded.connect("10.0.0.3", post(b"/", b"{}"))
    most = crowded.members.account("10.0.0.3").take(2 * MIB)
    crowded.wait()
    fill = crowded.members.account("10.0.0.2").open()
    crowded.members.relieve()
    assert not any(paper.is_closing() for paper in heavy), "there is enough room"
    fill.set(ledger.total - ledger.used - MIB)
    crowded.members.relieve()
    assert [paper.is_closing() for paper in heavy] == [True, True]
    assert not honest.is_closing()
    assert not busy.is_closing(), "its request runs"
    assert most is not None
    crowded.release.set()


@virtual_test
async def test_a_flood_between_two_sweeps_does_not_fill_a_server_whose_connections_are_hurried() -> None:
    """64 new connections in a second locked an operator out of the admin surface."""
    crowded = Crowded(4, hurried=True)
    flood = [crowded.connect("10.0.0.2") for _ in range(100)]
    operator = crowded.connect("10.0.0.1", post(b"/", b"{}"))
    flood += [crowded.connect("10.0.0.2", BODY_MISSING) for _ in range(100)]
    assert not operator.is_closing(), "its request is served"
    assert operator.statuses == []
    assert sum(not paper.is_closing() for paper in flood) == 3
    crowded.release.set()
    await settled()
    assert operator.statuses == [200]


@virtual_test
async def test_requests_whose_answers_are_not_read_do_not_fill_a_server_whose_connections_are_hurried() -> (
    None
):
    crowded, page = Crowded(4, hurried=True), post(b"/", b"{}")
    flood = [crowded.connect("10.0.0.2", page + page) for _ in range(4)]
    operator = crowded.connect("10.0.0.1", page)
    assert (operator.statuses, operator.is_closing()) == ([], False), "its request is served"
    assert sum(not paper.is_closing() for paper in flood) == 3
    crowded.release.set()
    await settled()
    assert operator.statuses == [200]
