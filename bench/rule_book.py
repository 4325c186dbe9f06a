"""Plain calls of one session on Redis, of two trees in turn: what they cost Redis and our process, how fast they are, how replicas share a session.

    python -m bench.rule_book OLD_TREE NEW_TREE [--rounds 3] [--seconds 1]

Each tree is run in processes of its own, against the same Redis, which this command starts. The best round of each counts, except for shares and latencies,
of which the median is printed. A round trip is a command that is sent to Redis.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

SCENES = ("1", "32", "2x1", "4x1", "4x16")
"""Calls in flight in one process; or processes × calls in flight: with 1, the calls alternate between the processes."""


async def one_store(url: str, name: str, namespace: str) -> Any:
    """Return a store with a lease."""
    from limpet.stores.redis.store import RedisStore  # noqa: PLC0415

    store = RedisStore(url, namespace=namespace, replica=name)
    await store.renew(600)
    return store


def sent(stores: list[Any]) -> int:
    """Return the commands that stores have sent; older trees have another name for the pipeline."""
    links = [store._link for store in stores]
    return sum((link.pipeline if hasattr(link, "pipeline") else link.pipe).sent for link in links)


def plain_call() -> Callable[[Any, str], Awaitable[None]]:
    """Return a function that makes a plain call."""
    from limpet.stores.base import Claim, Claimed  # noqa: PLC0415
    from limpet.testing.store.bench import PRINCIPAL  # noqa: PLC0415

    async def call(store: Any, name: str) -> None:
        claim = await store.claim("k", PRINCIPAL, Claim(name, name, b"d" * 32))
        assert isinstance(claim, Claimed), claim
        await store.settle("k", name, claim.fence, None)

    return call


async def measure(url: str, scene: str, seconds: float) -> dict[str, float]:
    """Measure one scene in this process."""
    from redis.asyncio import Redis  # noqa: PLC0415

    from limpet.testing.store.bench import record  # noqa: PLC0415

    call = plain_call()
    client: Redis = Redis.from_url(url)
    replicas, _, in_flight = scene.rpartition("x")
    namespace = f"b{time.time_ns()}"
    stores = [await one_store(url, f"r{number}", namespace) for number in range(int(replicas or 1))]
    await stores[0].open(record("k", idle=600.0), evict=False)
    for number, store in enumerate(stores):
        await call(store, f"first{number}")
    numbers, latencies, done = count(), list[float](), [0] * len(stores)
    alternates = in_flight == "1"

    async def caller(mine: int) -> None:
        while time.perf_counter() < ends:
            number = next(numbers)
            which = number % len(stores) if alternates else mine
            began = time.perf_counter()
            await call(stores[which], f"{number:024x}")
            latencies.append(time.perf_counter() - began)
            done[which] += 1

    before, cpu = (await client.info("commandstats"))["cmdstat_evalsha"]["usec"], time.process_time()
    trips = sent(stores)
    began = time.perf_counter()
    ends = began + seconds
    works = [0] if alternates else [mine for mine in range(len(stores)) for _ in range(int(in_flight))]
    await asyncio.gather(*(caller(mine) for mine in works))
    took, calls = time.perf_counter() - began, sum(done)
    spent = time.process_time() - cpu
    redis = (await client.info("commandstats"))["cmdstat_evalsha"]["usec"] - before
    trips = sent(stores) - trips
    for store in stores:
        await store.aclose()
    await client.aclose()
    return {
        "redis_us": redis / calls, "our_us": spent * 1e6 / calls, "both_us": (redis + spent * 1e6) / calls, "calls_s": calls / took,
        "trips": trips / calls, "latency_us": median(latencies) * 1e6, "worst_ms": max(latencies) * 1e3, "share": max(done) / max(1, min(done)),
    }  # fmt: skip


def main() -> None:
    """Run both trees in turn, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trees", nargs=2, type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scenes", default=",".join(SCENES))
    parser.add_argument("--seconds", type=float, default=1.0)
    given = parser.parse_args()
    sys.path.insert(0, str(Path.cwd()))
    from tests.redis_server import redis_server  # noqa: PLC0415

    with redis_server() as server:
        for scene in given.scenes.split(","):
            found: dict[Path, list[dict[str, float]]] = {tree: [] for tree in given.trees}
            for _ in range(given.rounds):
                for tree in given.trees:
                    found[tree].append(child(tree, server.url, scene, given.seconds))
            print(f"\n{scene} in flight")
            for name in found[given.trees[0]][0]:
                pick = {"calls_s": max, "worst_ms": median, "share": median, "latency_us": median}.get(
                    name, min
                )
                old, new = (pick([one[name] for one in found[tree]]) for tree in given.trees)
                print(f"  {name:10} {old:10,.1f} {new:10,.1f}   {new / old:6.2f}")


def child(tree: Path, url: str, scene: str, seconds: float) -> dict[str, float]:
    """Run one scene with the code of a tree."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{Path(__file__).parents[1]}"}
    words = [sys.executable, "-m", "bench.rule_book", "--child", url, scene, str(seconds)]
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        print(json.dumps(asyncio.run(measure(sys.argv[2], sys.argv[3], float(sys.argv[4])))))
    else:
        main()
