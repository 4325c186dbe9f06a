"""The server's requests: bounded, queued, refused, cancelled; nothing of it makes the receiver wait."""

import asyncio
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from limpet.errors import Busy, MethodNotFound
from limpet.ports import SilentObserver
from limpet.upstream.incoming import IncomingRequests
from limpet.upstream.settings import ClientLimits
from limpet.wire.jsonrpc import Request
from tests.support import virtual_test


class IncomingHarness:
    """Requests put to an Incoming, and the answers it sent."""

    def __init__(self, places: int, queue: int, most_bytes: int = 1_000_000) -> None:
        limits = ClientLimits(incoming=places, incoming_queued=queue, incoming_bytes=most_bytes)
        self.incoming = IncomingRequests(self.handle, limits, SilentObserver(), self.charge)
        self.charged = 0
        self.sent: list[dict[str, Any]] = []
        self.now = self.peak = 0
        self.order: list[int] = []

    def charge(self, size: int) -> "Charge | None":
        return Charge(self, size) if size != 300 or self.charged < 900 else None

    async def handle(self, method: str, params: dict[str, Any], _origin: object) -> object:
        if method != "work":
            raise MethodNotFound(method)
        self.now += 1
        self.order.append(params["n"])
        self.peak = max(self.peak, self.now)
        try:
            await asyncio.sleep(1)
        finally:
            self.now -= 1
        if params.get("fails"):
            raise RuntimeError("secret detail")
        return {"n": params["n"]}

    async def answer(self, answer: bytes) -> None:
        await asyncio.sleep(0)
        self.sent.append(msgspec.json.decode(answer))

    def put(self, number: int, method: str = "work", size: int = 0, **params: Any) -> None:
        self.incoming.take(self, Request(number, method, {"n": number, **params}), size=size)

    def by_id(self) -> dict[int, dict[str, Any]]:
        return {answer["id"]: answer for answer in self.sent}


@virtual_test
async def test_requests_run_at_once_up_to_the_bound_then_queue_then_are_refused_as_busy() -> None:
    harness = IncomingHarness(places=2, queue=3)
    for number in range(7):
        harness.put(number)
    await asyncio.sleep(10)
    answers = harness.by_id()
    assert harness.peak == 2
    assert [number for number in range(7) if "result" in answers[number]] == [0, 1, 2, 3, 4]
    assert {answers[number]["error"]["code"] for number in (5, 6)} == {-31001}


@virtual_test
async def test_large_requests_are_bounded_by_their_bytes_while_they_wait_and_while_they_are_answered() -> (
    None
):
    harness = IncomingHarness(places=1, queue=100, most_bytes=100_000)
    for number, size in enumerate((40_000, 40_000, 40_000, 100, 16_000)):
        harness.put(number, size=size)
    await asyncio.sleep(10)
    answers = harness.by_id()
    assert [number for number in range(5) if "error" in answers[number]] == [2]
    assert answers[2]["error"]["code"] == -31001
    harness.put(5, size=1_000_000)  # alone, a request may have any size
    harness.put(6, size=40_000)
    await asyncio.sleep(10)
    assert "result" in harness.by_id()[5]
    assert "error" in harness.by_id()[6]
    harness.put(7, size=40_000)
    harness.incoming.cancel(harness, 7)
    await asyncio.sleep(1)
    harness.put(8, size=90_000)
    await asyncio.sleep(10)
    assert "result" in harness.by_id()[8]


class Charge:
    """Bytes of a ledger, until it is deleted."""

    def __init__(self, harness: "IncomingHarness", size: int) -> None:
        self._harness, self._size = harness, size
        harness.charged += size

    def __del__(self) -> None:
        self._harness.charged -= self._size


@virtual_test
async def test_requests_are_charged_until_they_are_answered_and_refused_without_memory() -> None:
    harness = IncomingHarness(places=1, queue=100)
    for number in range(5):
        harness.put(number, size=300)
    assert harness.charged == 900
    harness.incoming.cancel(harness, 1)
    assert harness.charged == 600
    await asyncio.sleep(10)
    answers = harness.by_id()
    assert [number for number in range(5) if "error" in answers.get(number, {})] == [3, 4]
    assert answers[3]["error"]["code"] == -31001
    assert harness.charged == 0


@virtual_test
async def test_with_one_place_the_order_is_strict() -> None:
    harness = IncomingHarness(places=1, queue=100)
    for number in range(20):
        harness.put(number)
    await asyncio.sleep(30)
    assert harness.order == list(range(20))
    assert [answer["id"] for answer in harness.sent] == list(range(20))


@virtual_test
async def test_a_ping_is_answered_though_every_place_is_taken() -> None:
    harness = IncomingHarness(places=1, queue=0)
    async with aclosing(harness.incoming):
        harness.put(1)
        harness.put(2, "ping")
        await asyncio.sleep(0.5)
        assert harness.sent == [{"jsonrpc": "2.0", "id": 2, "result": {}}]


@virtual_test
async def test_a_cancelled_request_gives_its_place_to_the_next_whether_it_ran_or_waited() -> None:
    harness = IncomingHarness(places=1, queue=5)
    for number in (1, 2, 3):
        harness.put(number)
    await asyncio.sleep(0.1)
    harness.incoming.cancel(harness, 2)
    harness.incoming.cancel(harness, 1)
    harness.incoming.cancel(harness, 99)
    harness.incoming.cancel(harness, None)
    await asyncio.sleep(5)
    assert harness.order == [1, 3]
    assert [answer["id"] for answer in harness.sent] == [3]


@virtual_test
async def test_the_same_request_again_while_it_is_under_way_is_passed_over() -> None:
    harness = IncomingHarness(places=1, queue=5)
    for number in (1, 1, 2, 2):
        harness.put(number)
    await asyncio.sleep(10)
    assert harness.order == [1, 2]


@virtual_test
async def test_a_handlers_failure_is_an_error_answer_without_its_details() -> None:
    harness = IncomingHarness(places=5, queue=5)
    harness.put(1, fails=True)
    harness.put(2, "unknown")
    await asyncio.sleep(5)
    answers = harness.by_id()
    assert answers[1]["error"]["code"] == -32603
    assert "secret" not in answers[1]["error"]["message"]
    assert answers[2]["error"]["code"] == -32601


@virtual_test
async def test_rounds_of_our_own_calls_share_the_places() -> None:
    harness = IncomingHarness(places=2, queue=3)
    rounds = [asyncio.create_task(harness.incoming.run("work", {"n": number})) for number in range(6)]
    await asyncio.sleep(0.5)
    rounds[3].cancel()
    ends = await asyncio.gather(*rounds, return_exceptions=True)
    assert [type(end) for end in ends] == [dict, dict, dict, asyncio.CancelledError, dict, Busy]
    assert harness.peak == 2
    harness.put(7)
    harness.put(8)
    await asyncio.sleep(2)
    assert len(harness.sent) == 2


@virtual_test
async def test_asks_of_a_closed_connection_are_dropped() -> None:
    harness = IncomingHarness(places=1, queue=5)
    for number in (1, 2, 3):
        harness.put(number)
    await asyncio.sleep(0.1)
    harness.incoming.forget(harness)
    await asyncio.sleep(10)
    assert harness.order == [1]
    assert harness.sent == []


@virtual_test
async def test_closing_drops_a_long_queue() -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context))
    harness = IncomingHarness(places=1, queue=4_096)
    for number in range(4_000):
        harness.put(number)
    await asyncio.sleep(0.1)
    await harness.incoming.aclose()
    await asyncio.sleep(1)
    assert harness.order == [0]
    assert failures == []


@pytest.mark.parametrize(("way", "member"), [("raises", "error"), ("waits", "error"), ("returns", "result")])
@virtual_test
async def test_a_handler_that_cancels_itself_is_answered(way: str, member: str) -> None:
    async def cancel_itself(*_asked: object) -> object:
        task = asyncio.current_task()
        assert task is not None
        if way == "raises":
            raise asyncio.CancelledError
        task.cancel()
        if way == "waits":
            await asyncio.sleep(1)
        return {}

    harness = IncomingHarness(places=1, queue=5)
    harness.incoming = IncomingRequests(cancel_itself, ClientLimits(incoming=1), SilentObserver())
    harness.put(1)
    harness.put(2)
    await asyncio.sleep(5)
    assert [(answer["id"], member in answer) for answer in harness.sent] == [(1, True), (2, True)]
