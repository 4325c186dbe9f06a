"""The queue of messages for a slow client: bounded by number and bytes; nothing is dropped in silence."""

import asyncio
from typing import Any

import msgspec

from limpet.backs.proxy.outbox import Outbox, Space
from limpet.core.ledger import Ledger
from limpet.testing import NotingObserver
from tests.support import virtual_test

LOG = "notifications/message"
PROGRESS = "notifications/progress"


class SlowClient:
    """Receives nothing before it `reads`."""

    def __init__(self, messages: int = 3, own_bytes: int = 1_000, all_bytes: int = 10_000) -> None:
        self.space = Space(messages, own_bytes, all_bytes)
        self.reads = asyncio.Event()
        self.received: list[tuple[str, Any]] = []
        self.notes = NotingObserver()
        self.outbox = self.another()

    def another(self) -> Outbox:
        """Return another queue of the same process."""
        return Outbox(self._send, self.space, self.notes)

    async def _send(self, method: str, params: msgspec.Raw) -> None:
        await self.reads.wait()
        self.received.append((method, msgspec.json.decode(params)))

    async def has_read(self) -> list[tuple[str, Any]]:
        self.reads.set()
        await self.outbox.flush()
        return self.received

    @property
    def dropped(self) -> int:
        return len(self.notes.named("upstream.dropped"))


def log(outbox: Outbox, *numbers: object, level: str = "error", size: int = 0) -> None:
    for number in numbers:
        outbox.put(LOG, {"level": level, "data": number, "pad": "x" * size})


@virtual_test
async def test_a_flood_is_bounded_and_progress_keeps_its_newest_value() -> None:
    client = SlowClient()
    log(client.outbox, *range(5))
    await asyncio.sleep(0)  # the first one is on its way to the client
    for number in range(1_000):
        client.outbox.put(PROGRESS, {"n": number})
    log(client.outbox, "dropped")
    received = await client.has_read()
    assert [params.get("data", params.get("n")) for _, params in received[:4]] == [0, 1, 2, 999]
    assert client.dropped == 3


@virtual_test
async def test_the_client_reads_once_how_many_log_messages_are_missing_after_those_that_waited() -> None:
    client = SlowClient()
    log(client.outbox, *range(50))
    await asyncio.sleep(0)
    log(client.outbox, "there is room for one, but the gap comes first")
    *kept, (method, gap) = await client.has_read()
    assert [params["data"] for _, params in kept] == [0, 1, 2]
    assert method == LOG
    assert (gap["level"], gap["logger"]) == ("error", "limpet")
    assert gap["data"].startswith("48 messages")
    log(client.outbox, "later")
    assert (await client.has_read())[-1][1]["data"] == "later"


@virtual_test
async def test_the_client_reads_that_other_messages_than_log_messages_are_missing_too() -> None:
    client = SlowClient()
    log(client.outbox, *range(3))
    for number in range(5):
        client.outbox.put("notifications/elicitation/complete", {"elicitationId": str(number)})
    client.outbox.put(PROGRESS, {"n": 1})
    assert client.dropped == 6
    _, gap = (await client.has_read())[-1]
    assert gap["level"] == "warning"
    assert gap["data"].startswith("5 messages")


@virtual_test
async def test_the_bytes_that_wait_are_bounded_and_one_long_message_waits_alone() -> None:
    client = SlowClient(messages=100, own_bytes=1_000)
    log(client.outbox, "a", "b", "c", size=270)
    log(client.outbox, "d", size=270)
    assert client.dropped == 1
    await client.has_read()
    client.reads.clear()
    log(client.outbox, "long", size=5_000)
    await asyncio.sleep(0)
    log(client.outbox, "next", "dropped", size=900)
    assert client.dropped == 2
    assert [params["data"] for _, params in await client.has_read()][-3:-1] == ["long", "next"]


@virtual_test
async def test_the_bytes_of_all_queues_of_a_process_are_bounded_and_become_free() -> None:
    client = SlowClient(messages=100, own_bytes=1_000, all_bytes=1_500)
    other = client.another()
    log(client.outbox, 1, 2, size=400)
    log(other, 3, 4, size=400)
    assert client.dropped == 1
    client.reads.set()
    await client.outbox.flush()
    await other.flush()
    assert client.space.used == 0
    client.reads.clear()
    log(other, 5, 6, size=400)
    other.close()
    assert client.dropped == 1
    await asyncio.sleep(0)
    assert client.space.used == 0


@virtual_test
async def test_a_queue_that_is_closed_ends_the_waiting_of_a_flush_without_an_exception_and_takes_no_more() -> (
    None
):
    client = SlowClient()
    log(client.outbox, 1, 2)
    flushing = asyncio.create_task(client.outbox.flush())
    await asyncio.sleep(0)
    client.outbox.close()
    await flushing
    log(client.outbox, 3)
    assert await client.has_read() == []
    assert client.space.used == 0


@virtual_test
async def test_messages_of_all_calls_are_in_the_ledger_and_are_dropped_where_it_has_no_room() -> None:
    ledger = Ledger(100_000)
    client = SlowClient(messages=100, own_bytes=10**6, all_bytes=10**6)
    client.space.charge = ledger.account("behind").open()
    log(client.outbox, *range(10), size=1_000)
    assert ledger.used == client.space.used > 10_000
    others = ledger.account("others").open()
    others.set(97_000 - ledger.used)
    assert client.dropped == 0
    log(client.outbox, "without room", size=1_000)
    log(client.another(), "without room", size=1_000)
    assert client.dropped == 2
    await client.has_read()
    assert ledger.used == others.size
