"""Plain calls per second that each store carries: a claim and a settle, 32 in flight, every answer checked.

    python -m bench.stores [redis://…]

Memory and SQLite are measured in one run, on a file in the system's temporary directory, with and without
a flush to disk for every commit; with a URL, that store is measured beside them.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.core.lifecycle import Input
from holdfast.stores.base import Claim, Claimed, Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.urls import open_store
from holdfast.testing.store.bench import PRINCIPAL, record

CALLS = 20_000
IN_FLIGHT = 32


async def plain_calls(store: Store) -> tuple[float, list[float]]:
    """Return the seconds that all calls took, and each one's."""
    key = f"bench-{time.time_ns()}"
    await store.open(record(key), evict=False)
    numbers = iter(range(CALLS))
    took: list[float] = []

    async def call() -> None:
        for number in numbers:
            began = time.perf_counter()
            stream = f"{number:024x}"
            claimed = await store.claim(key, PRINCIPAL, Claim(number, stream, b"d" * 32))
            assert isinstance(claimed, Claimed)
            await store.settle(key, stream, claimed.fence, None)
            took.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(IN_FLIGHT)))
    seconds = time.perf_counter() - began
    assert len(took) == CALLS
    assert await store.close(key, Input.DELETED) is not None
    await store.aclose()
    return seconds, took


def measure(name: str, make: Callable[[], Store]) -> None:
    async def run() -> tuple[float, list[float]]:
        return await plain_calls(make())

    seconds, took = asyncio.run(run())
    cuts = statistics.quantiles(took, n=100)
    print(
        f"{name:<16}{CALLS / seconds:>10,.0f} calls/s   p50 {cuts[49] * 1e3:7.2f} ms   p99 {cuts[98] * 1e3:7.2f} ms"
    )


def main() -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory)
        measure("memory", MemoryStore)
        measure("sqlite", lambda: SqliteStore(path / "normal.db"))
        measure("sqlite, full", lambda: SqliteStore(path / "full.db", synchronous="full"))
    for url in sys.argv[1:]:
        measure(url.partition(":")[0], lambda url=url: open_store(url))  # type: ignore[misc]


if __name__ == "__main__":
    main()
