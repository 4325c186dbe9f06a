"""What calls and streamed events cost Redis itself, by its own count (`INFO commandstats`).

    python -m bench.redis_cost redis://localhost:6379/0

A plain call is a claim and its end, one at a time and 32 in flight. Events go to 32 streams at once, with one reader for
each stream that reads all of them. The time of other clients of the same Redis would be counted too.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import count

from redis.asyncio import Redis

from limpet.core.stream import Position
from limpet.stores.base import Claim, Claimed
from limpet.stores.redis.store import RedisStore
from limpet.testing.store.bench import PRINCIPAL, record

STREAMS = 32
EVENTS = 640
ROUNDS = 7
CALLS = 960
DATA = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}'
NUMBERS = count(1)


async def microseconds(client: Redis) -> int:
    """Return how long Redis has executed scripts."""
    return int((await client.info("commandstats"))["cmdstat_evalsha"]["usec"])


async def claimed(store: RedisStore, key: str) -> tuple[str, int]:
    """Claim an exchange; return its stream and fence."""
    number = next(NUMBERS)
    stream = f"{number:024x}"
    claim = await store.claim(key, PRINCIPAL, Claim(number, stream, b"d" * 32))
    assert isinstance(claim, Claimed)
    return stream, claim.fence


async def calls(store: RedisStore, key: str, in_flight: int) -> None:
    """Make plain calls."""

    async def some() -> None:
        for _ in range(CALLS // in_flight):
            await store.settle(key, *(await claimed(store, key)), None)

    await asyncio.gather(*(some() for _ in range(in_flight)))


async def stream_events(store: RedisStore, key: str, batch: int) -> None:
    """Write and read a stream, so many events in one append."""
    stream, fence = await claimed(store, key)
    written: list[Position] = []
    read = start = await store.open_stream(key, stream, fence, 1)
    for first in range(0, EVENTS, batch):
        events = [(first + index + 2, DATA) for index in range(batch)]
        written.append(await store.append(key, stream, fence, events))
        page = await store.read(key, stream, read, batch, 1 << 20)
        assert page is not None
        read = page.events[-1].position
    assert read == written[-1]
    assert read.seq == start.seq + EVENTS
    await store.settle(key, stream, fence, b"{}", tag=1 << 40)


async def measure(
    client: Redis, what: str, units: int, work: Callable[[], Awaitable[object]], rounds: int = ROUNDS
) -> None:
    """Print the smallest of several rounds."""
    found: list[tuple[float, float]] = []
    for _ in range(rounds):
        before, began = await microseconds(client), time.perf_counter()
        await work()
        seconds = time.perf_counter() - began
        found.append(((await microseconds(client) - before) / units, units / seconds))
    spent, rates = zip(*found, strict=True)
    print(f"{what:42} {min(spent):6.1f} µs of Redis   {max(rates):8,.0f}/s")


async def main(url: str) -> None:
    """Measure."""
    store, client = RedisStore(url, namespace=f"bench-{time.time_ns()}"), Redis.from_url(url)
    await store.renew(60)
    keys = [f"key-{number}" for number in range(STREAMS)]
    for key in keys:
        await store.open(record(key, idle=60.0), evict=False)
    for in_flight in (1, 32):
        await calls(store, keys[0], in_flight)
        await measure(
            client,
            f"a plain call, {in_flight} in flight",
            CALLS,
            lambda n=in_flight: calls(store, keys[0], n),
        )
    for batch in (1, 8, 64):

        async def all_streams(batch: int = batch) -> None:
            await asyncio.gather(*(stream_events(store, key, batch) for key in keys))

        await measure(client, f"an event, {batch} in one append", STREAMS * EVENTS, all_streams, 3)
    await store.aclose()
    await client.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
