"""Plain calls per second with each store: `echo` on one session over HTTP, and the store's own two steps alone.

    python -m bench.stores [redis://…]

All stores are measured in one run, in slices that alternate, every answer verified. Without a URL a redis-server
of our own is started, on a free port, with everything in memory; SQLite has a file in the system's temporary
directory. Servers have one core, the load generator the other; Redis runs where the kernel puts it.
"""

import argparse
import asyncio
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.contest import HOLDFAST, Contestant, contest, free_port, ratio
from holdfast.core.lifecycle import Input
from holdfast.stores.base import Claim, Claimed, Store
from holdfast.stores.urls import open_store
from holdfast.testing.store.bench import PRINCIPAL, record

CALLS = 20_000
IN_FLIGHT = 32


async def plain_calls(store: Store) -> float:
    """Return how many claims and settles a second a store carries, 32 in flight, every one checked."""
    key = f"bench-{time.time_ns()}"
    await store.open(record(key), evict=False)
    numbers = iter(range(CALLS))

    async def call() -> None:
        for number in numbers:
            stream = f"{number:024x}"
            claimed = await store.claim(key, PRINCIPAL, Claim(number, stream, b"d" * 32))
            assert isinstance(claimed, Claimed)
            await store.settle(key, stream, claimed.fence, None)

    began = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(IN_FLIGHT)))
    seconds = time.perf_counter() - began
    assert await store.close(key, Input.DELETED) is not None
    await store.aclose()
    return CALLS / seconds


@contextmanager
def redis_server(directory: Path) -> Iterator[str]:
    """Start a redis-server that keeps nothing; yield its URL."""
    program = shutil.which("redis-server")
    if program is None:
        raise RuntimeError("redis-server is missing: tools/install-system.sh installs it")
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()


def with_store(name: str, url: str) -> Contestant:
    """Return our server with a store."""
    return HOLDFAST._replace(name=name, command=[*HOLDFAST.command, "--store", url])


def measure(urls: dict[str, str], rounds: int, seconds: float) -> None:
    """Measure whole calls and bare steps of all stores, and print them."""
    contestants = [with_store(name, url) for name, url in urls.items()]
    slices = contest(contestants, connections=IN_FLIGHT, rounds=rounds, seconds=seconds)
    print(f"echo on one session, {IN_FLIGHT} connections, one process, every answer verified")
    for name, url in urls.items():
        rate = statistics.median(slice_.per_second for slice_ in slices[name])
        p99 = statistics.median(slice_.p99_us for slice_ in slices[name]) / 1e3
        alone = asyncio.run(plain_calls(open_store(url)))
        print(
            f"  {name:8s}{rate:9,.0f} calls/s  p99 {p99:6.1f} ms  {ratio(slices, name, 'memory'):5.2f} of memory"
            f"   claim and settle alone {alone:9,.0f}/s"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.stores", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("redis", nargs="?", help="URL of a Redis to measure instead of one of our own")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="length of one slice")
    options = parser.parse_args()
    with TemporaryDirectory() as directory:
        urls = {"memory": "memory:", "sqlite": f"sqlite:///{directory}/bench.db"}
        if options.redis:
            measure({**urls, "redis": options.redis}, options.rounds, options.seconds)
            return
        with redis_server(Path(directory)) as redis:
            measure({**urls, "redis": redis}, options.rounds, options.seconds)


if __name__ == "__main__":
    main()
