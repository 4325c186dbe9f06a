"""Messages that arrive in the same pass of the loop are decoded in turn, some bytes in each pass."""

import asyncio
from collections import Counter
from contextlib import aclosing
from typing import Any, Final

import pytest

from limpet.config import KIB, HttpSettings
from limpet.engine.decoding import Decoding
from limpet.engine.engine import Engine
from limpet.fronts.http import front
from limpet.fronts.http.http1.connection import HttpConnection
from limpet.fronts.http.http1.deadlines import Deadlines
from limpet.fronts.http.http1.members import Members
from limpet.testing.back import ScriptedBack
from limpet.wire import jsonrpc
from tests.http.paper import Paper
from tests.messages import request
from tests.support import virtual_test
from tests.unit.fronts.http.http1.test_plain_calls import post

A_PASS: Final = 512 * KIB
MANY, ONE = "192.0.2.1", "192.0.2.2"


class House:
    """A server whose decoding is counted."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.engine = Engine(ScriptedBack())
        served = front.HttpFront(self.engine, HttpSettings(allow_anonymous=True))
        self._members = Members(served.serve, Deadlines(self.engine.settings.limits, 30.0))
        self._decode: Any = jsonrpc.decode
        self._pass = 0
        self.decoded: list[tuple[int, int]] = []
        """The pass, and the length."""
        patch.setattr(front, "decode", self._counted)

    def _counted(self, data: bytes, **bounds: Any) -> Any:
        self.decoded.append((self._pass, len(data)))
        return self._decode(data, **bounds)

    def send(self, size: int, address: str = MANY) -> Paper:
        """Send a message of about this length on a new connection."""
        connection, paper = HttpConnection(self._members), Paper((address, 50_000))
        connection.connection_made(paper)
        data = post(request(1, "ping", {"text": "x" * size}))
        for at in range(0, len(data), 65_536):
            connection.data_received(data[at : at + 65_536])
        return paper

    async def answered(self, *papers: Paper) -> None:
        """Count passes until all are answered."""
        while not all(paper.written for paper in papers):
            self._pass += 1
            await asyncio.sleep(0)

    def most(self) -> int:
        """Return the most bytes that were decoded in one pass."""
        passes: Counter[int] = Counter()
        for number, size in self.decoded:
            passes[number] += size
        return max(passes.values())


@pytest.mark.parametrize(("size", "number"), [(2_000_000, 4), (100_000, 30), (20_000, 100), (10_000, 200)])
@virtual_test
async def test_a_pass_decodes_only_so_many_bytes(
    size: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(monkeypatch)
    async with aclosing(house.engine):
        await house.engine.ensure_started()
        await house.answered(*(house.send(size) for _ in range(number)))
    assert len(house.decoded) == number
    assert A_PASS - size <= house.most() <= A_PASS + size + 1_000


@virtual_test
async def test_an_address_with_one_large_message_has_its_turn_before_most_of_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = House(monkeypatch)
    async with aclosing(house.engine):
        await house.engine.ensure_started()
        flood = [house.send(A_PASS, MANY) for _ in range(10)]
        await house.answered(house.send(A_PASS, ONE))
        assert len(house.decoded) <= 4
        await house.answered(*flood)


@virtual_test
async def test_a_message_whose_task_was_cancelled_takes_no_turn() -> None:
    engine, decoding = Engine(ScriptedBack()), Decoding()
    account = engine.load.account("ann")
    turns = [asyncio.create_task(decoding.turn(account, A_PASS)) for _ in range(4)]
    await asyncio.sleep(0)
    turns[1].cancel()
    turns[2].cancel()
    await asyncio.gather(*turns, return_exceptions=True)
    assert turns[3].done()
    assert not turns[3].cancelled()
    assert repr(decoding) == "<Decoding, 0 messages wait>"
