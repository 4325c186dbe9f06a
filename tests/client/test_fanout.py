"""A server's concurrent questions are answered concurrently, by every way a server can be reached."""

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from limpet import Client
from limpet.client.targets import Target
from limpet.protocol.params import CreateMessageParams
from tests.client.servers import PATIENT, SERVE, peer_command, peer_listening, small_listening
from tests.client.small import server
from tests.support import BOUND, async_test

N: Final = 5


class Model:
    """Answers when so many questions have met, and knows how many there were at once."""

    def __init__(self, seconds: float = 0.0, together: int = 1) -> None:
        self.seconds = seconds
        self._together = together
        self._met = asyncio.Event()
        self.now = self.peak = self.asked = 0

    async def __call__(self, params: CreateMessageParams) -> str:
        self.now += 1
        self.asked += 1
        self.peak = max(self.peak, self.now)
        if self.now >= self._together:
            self._met.set()
        await self._met.wait()
        await asyncio.sleep(self.seconds)
        self.now -= 1
        return "yes"


@contextmanager
def at(place: str) -> Iterator[Target]:
    match place.split():
        case ["limpet", "inside"]:
            yield server
        case ["limpet", "stdio"]:
            yield [*SERVE, "--stdio"]
        case ["limpet", "http"]:
            with small_listening() as url:
                yield url
        case [peer, "stdio"]:
            yield peer_command(peer)
        case [peer, *_]:
            with peer_listening(peer) as url:
                yield url
        case _:
            pytest.fail(f"no such place: {place}")


PLACES: Final = [
    *(("limpet inside", era) for era in ("sessions", "sessionless")),
    *(("limpet stdio", era) for era in ("sessions", "sessionless")),
    *(("limpet http", era) for era in ("sessions", "sessionless")),
    *((f"{peer} {way}", "sessions") for peer in ("mcp1", "mcp2") for way in ("stdio", "http")),
]


@pytest.mark.parametrize(("place", "era"), PLACES)
@async_test
async def test_five_questions_are_asked_at_once(place: str, era: str) -> None:
    with at(place) as target:
        model = Model(together=N)
        async with Client(target, sampling=model, protocol_version=era, times=PATIENT) as client:
            result = await client.call_tool("fanout", {"n": N})
    assert result.text == ",".join(["yes"] * N)
    assert model.peak == N


@async_test
async def test_asked_in_order_it_answers_one_by_one() -> None:
    model = Model(0.01)
    async with Client(server, sampling=model, in_order=True) as client:
        await client.call_tool("fanout", {"n": N})
    assert (model.peak, model.asked) == (1, N)


TWO_THOUSAND: Final = 2_000
HUNDREDS: Final = 500


@async_test
async def test_two_thousand_asks_stay_within_the_limit_are_all_answered_and_leave_memory_flat() -> None:
    model = Model(0.001)
    async with Client(server, sampling=model, protocol_version="sessions") as client:
        await client.call_tool("interrogate", {"n": TWO_THOUSAND, "at_once": 250})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await client.call_tool("interrogate", {"n": TWO_THOUSAND, "at_once": 250})
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert result.data == TWO_THOUSAND
    assert model.asked == 2 * TWO_THOUSAND
    assert model.peak == 32
    assert grown < 8 * 1024


@pytest.mark.parametrize("peer", ["mcp1", "mcp2"])
@async_test
async def test_hundreds_of_questions_at_once_from_an_official_server_are_all_answered(peer: str) -> None:
    model = Model(0.02)
    async with Client(
        peer_command(peer), sampling=model, protocol_version="sessions", timeout=BOUND, times=PATIENT
    ) as client:
        result = await client.call_tool("fanout", {"n": HUNDREDS})
    assert result.text == ",".join(["yes"] * HUNDREDS)
    # How many meet depends on how fast that server asks; more than the bound never do.
    assert 1 < model.peak <= 32


@async_test
async def test_a_handler_that_calls_the_server_back_gets_its_answer_though_every_place_is_taken() -> None:
    async def ask_back(params: CreateMessageParams) -> str:
        return (await client.call_tool("echo", {"text": "back"})).text

    async with Client(
        server, sampling=ask_back, max_incoming=2, protocol_version="sessions", timeout=BOUND
    ) as client:
        result = await client.call_tool("fanout", {"n": 8})
    assert result.text == ",".join(["back"] * 8)
