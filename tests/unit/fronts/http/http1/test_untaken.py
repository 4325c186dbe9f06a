"""Answers that their clients do not take: each is kept until one connection has taken it, in every form of a response."""

import asyncio
import sys
from contextlib import aclosing
from typing import Any, Final

import pytest
from typing_extensions import override

from limpet.config import Limits, Settings
from limpet.engine.exchange import Exchange
from limpet.fronts.http.http1.accept import Acceptor
from limpet.fronts.http.http1.connection import HttpConnection
from limpet.fronts.http.http1.connection_charge import CONNECTION_BYTES
from limpet.fronts.http.read.request import AT_ONCE
from limpet.testing import NotingObserver
from limpet.testing.back import ScriptedBack
from limpet.testing.store.limits import tight
from tests.http.paper import Paper
from tests.messages import LATEST, request
from tests.support import LoopClock, virtual_test
from tests.unit.fronts.http.http1.test_cut_moments import (
    SCRIPTS,
    STORES,
    _check_nothing_is_left,
    _modes,
    _store,
)
from tests.unit.fronts.http.http1.test_plain_calls import Line, connected_beside, post
from tests.unit.fronts.http.http1.test_protocol import Encrypted

_LONG: Final = "x" * (2 * AT_ONCE)
OLDEST: Final = "2025-03-26"


class Narrow(Paper):
    """A transport whose client takes no byte of a long part."""

    protocol: HttpConnection

    def write(self, data: Any) -> None:
        super().write(data)
        if len(data) > AT_ONCE:
            self.protocol.pause_writing()


class Calls:
    """A server whose calls have long results, and the connections that ask for them."""

    def __init__(self, how: str, store: str, mode: Any = "adaptive", settings: Settings = Settings()) -> None:
        self._script, self._seconds = SCRIPTS[how]
        self._end = asyncio.Event()
        self.back = ScriptedBack({"tools/call": self._call})
        self.line = Line(self.back, mode=mode, store=_store(store), settings=settings)

    async def _call(self, exchange: Exchange) -> object:
        await self._script(exchange, self._end)
        return {"content": [], "long": _LONG}

    async def open(self, version: str = LATEST) -> "Calls":
        await self.line.open(sessionless=False, version=version)
        return self

    def narrow(self) -> tuple[HttpConnection, Narrow]:
        """Return a connection whose client does not take a long part."""
        protocol, paper = HttpConnection(self.line.members), Narrow()
        paper.protocol = protocol
        protocol.connection_made(paper)
        return protocol, paper

    async def ends(self) -> None:
        """Let the handlers end, and wait until nothing moves."""
        await asyncio.sleep(self._seconds)
        self._end.set()
        await asyncio.sleep(0.05)

    async def breaks(self, protocol: HttpConnection, paper: Paper) -> None:
        """End a connection, and wait until nothing moves."""
        paper.close()
        protocol.connection_lost(None)
        await asyncio.sleep(0.05)


def _sent(line: Line, batch: int) -> bytes:
    params = {"name": "plain", "arguments": {}}
    calls = [request(number, "tools/call", params) for number in range(1, max(1, batch) + 1)]
    return post(calls if batch else calls[0], line.headers)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(
    "how", ["at once", "after a wait", "after a long wait", "after a message and a wait"]
)
@pytest.mark.parametrize("batch", [0, 2])
@virtual_test
async def test_an_answer_is_given_to_each_repeat_until_one_has_taken_it(
    batch: int, how: str, store: str
) -> None:
    for mode in _modes(how, store):
        calls = await Calls(how, store, mode).open(OLDEST if batch else LATEST)
        async with aclosing(calls.line.engine):
            sent = _sent(calls.line, batch)
            for _ in range(3):
                protocol, paper = calls.narrow()
                protocol.data_received(sent)
                await calls.ends()
                assert paper.statuses == [200], mode
                assert b'"long":' in paper.written, mode
                await calls.breaks(protocol, paper)
            last, whole = connected_beside(calls.line)
            last.data_received(sent)
            await calls.ends()
            assert (whole.statuses, whole.written.count(b'"long":')) == ([200], max(1, batch)), mode
            assert len(calls.back.handled) == max(1, batch), mode
            _check_nothing_is_left(calls.line.engine.store, mode)
            last.data_received(sent)
            await calls.ends()
            assert len(calls.back.handled) == 2 * max(1, batch), "the answer was taken: this is a new request"


@pytest.mark.parametrize("store", STORES)
@virtual_test
async def test_a_stream_that_was_cut_in_its_last_event_is_not_removed_before_others(store: str) -> None:
    calls = Calls("after a message", store, settings=Settings(limits=tight(finished_streams=2)))
    async with aclosing(calls.line.engine):
        await calls.open()
        protocol, paper = calls.narrow()
        protocol.data_received(_sent(calls.line, 0))
        await calls.ends()
        _, _, rest = paper.written.partition(b"id: ")
        await calls.breaks(protocol, paper)
        other, _ = connected_beside(calls.line)
        for number in range(10, 14):
            other.data_received(post(request(number, "tools/call", {"name": "plain"}), calls.line.headers))
            await calls.ends()
        resumed, whole = connected_beside(calls.line)
        head = {
            **calls.line.headers,
            "Accept": "text/event-stream",
            "Last-Event-ID": rest.split(b"\n")[0].decode(),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        resumed.data_received(f"GET /mcp HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
        await calls.ends()
        assert whole.statuses == [200]
        assert whole.written.count(b'"long":') == 1


@pytest.mark.parametrize("how", ["at once", "after a long wait"])
@virtual_test
async def test_with_tls_an_answer_is_taken_when_its_client_has_acknowledged_most_of_it(how: str) -> None:
    calls = await Calls(how, "memory").open()
    sent = _sent(calls.line, 0)
    async with aclosing(calls.line.engine):
        for taken in (0, AT_ONCE // 2):
            protocol, paper = HttpConnection(calls.line.members), Encrypted()
            protocol.connection_made(paper)
            protocol.data_received(sent)
            await calls.ends()
            assert paper.written.count(b'"long":') == 1
            assert protocol.unsent > AT_ONCE
            paper.taken = taken
            await asyncio.sleep(1)
            await calls.breaks(protocol, paper)
        protocol, paper = HttpConnection(calls.line.members), Encrypted()
        protocol.connection_made(paper)
        protocol.data_received(sent)
        await calls.ends()
        paper.taken = len(paper.written) - AT_ONCE // 2
        await asyncio.sleep(1)
        assert protocol.unsent < AT_ONCE
        await calls.breaks(protocol, paper)
        assert len(calls.back.handled) == 1
        _check_nothing_is_left(calls.line.engine.store, "taken")


@virtual_test
async def test_the_answer_of_a_stream_whose_client_has_closed_its_side_is_kept() -> None:
    calls = await Calls("after a long wait", "memory").open()
    protocol, paper = connected_beside(calls.line)
    protocol.data_received(_sent(calls.line, 0))
    async with aclosing(calls.line.engine):
        await asyncio.sleep(0.3)
        # The client may have disconnected, or have closed only its side: both look like this.
        protocol.half_closed = object()  # type: ignore[assignment]
        await calls.ends()
        assert b'"long":' in paper.written
        assert paper.written.endswith(b"0\r\n\r\n")
        protocol.half_closed = None
        await calls.breaks(protocol, paper)
        other, paper = connected_beside(calls.line)
        other.data_received(_sent(calls.line, 0))
        await calls.ends()
        assert (paper.written.count(b'"long":'), len(calls.back.handled)) == (1, 1)


class Waiting(Paper):
    """A transport whose client takes its bytes at a pace."""

    def __init__(self, waiting: int, pace: int) -> None:
        super().__init__(socket=self)
        self.waiting, self.pace, self.taken = waiting, pace, 0
        self.is_aborted = False

    def getsockopt(self, _level: int, _option: int, size: int) -> bytes:
        """Return the bytes that were taken in the form of `TCP_INFO`."""
        info = bytearray(size)
        info[120:128] = self.taken.to_bytes(8, sys.byteorder)
        return bytes(info)

    @override
    def get_write_buffer_size(self) -> int:
        return self.waiting

    @override
    def abort(self) -> None:
        self.is_aborted = True

    def takes(self) -> None:
        self.taken += self.pace


SWEEPS: Final = 6
MIB: Final = 1_048_576


def ended(clients: list[tuple[int, int]], most: int, *, sweeps: int = SWEEPS) -> list[bool]:
    """Return which clients are ended, of those with so many bytes that take so many between two sweeps."""
    waiting = [Waiting(*client) for client in clients]

    @virtual_test
    async def run() -> None:
        # New work may use seven eighths, and each connection takes some bytes itself.
        memory = (most + len(waiting) * CONNECTION_BYTES) * 8 // 7 + 64 * 1_024
        line = Line(ScriptedBack(), settings=Settings(limits=Limits(memory=memory)))
        async with aclosing(line.engine):
            connections = [HttpConnection(line.members) for _ in waiting]
            for connection, transport in zip(connections, waiting, strict=True):
                connection.connection_made(transport)
            for _ in range(sweeps):
                line.members.deadlines.now += 1
                for connection in connections:
                    # Only what waits is the subject: an unfinished head would end them too.
                    connection._stalls()
                    connection._recount()
                for transport in waiting:
                    transport.takes()
            Acceptor(line.members, LoopClock(), NotingObserver())._bound_unsent()

    run()
    return [transport.is_aborted for transport in waiting]


def test_the_client_that_takes_slowest_for_what_waits_is_ended_and_not_the_one_with_the_largest_answer() -> (
    None
):
    reader, attackers = (64 * MIB, 8 * MIB), [(6 * MIB, 1)] * 50
    found = ended([reader, *attackers], 100 * MIB)
    assert not found[0]
    # The reader and six attackers stay within the limit.
    assert found.count(True) == 44


def test_a_client_that_took_much_and_stops_is_ended_before_one_that_keeps_reading() -> None:
    assert ended([(50 * MIB, 0), (60 * MIB, 40 * MIB), (50 * MIB, 1)], 111 * MIB) == [True, False, False]


@pytest.mark.parametrize(
    ("stalled", "reading", "expected"),
    [
        ([40, 50], [60], [False, True, False]),
        ([40, 50], [60, 60], [True, True, False, False]),
        ([], [60, 62], [False, False]),
        ([], [70, 90], [False, True]),
    ],
)
def test_a_client_that_reads_is_ended_only_if_clients_that_read_use_up_the_reserve(
    stalled: list[int], reading: list[int], expected: list[bool]
) -> None:
    clients = [(size * MIB, 0) for size in stalled] + [(size * MIB, 10 * MIB) for size in reading]
    assert ended(clients, 111 * MIB) == expected


def test_a_client_whose_bytes_have_just_begun_to_wait_is_reading() -> None:
    assert ended([(60 * MIB, 0), (62 * MIB, 0)], 111 * MIB, sweeps=1) == [False, False]
    assert ended([(60 * MIB, 0), (62 * MIB, 0)], 111 * MIB, sweeps=2) == [False, True]
