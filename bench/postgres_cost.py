"""Plain calls on PostgreSQL and on Redis, in turn: our CPU, the server's CPU, round trips and calls/s. It starts the servers itself.

    python -m bench.postgres_cost [--rounds 3] [--seconds 2] [--fsync]

Each scene has so many sessions, each with one call in flight. The stores run in this process; the best round of each counts. PostgreSQL runs twice: with
`synchronous_commit=off` and with `on`. Without `--fsync` neither it nor Redis flushes to the disk; with it PostgreSQL does, and Redis has `appendfsync`
everysec beside the first and always beside the second.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final

import uvloop

from limpet.stores.base import Claim, Claimed
from limpet.stores.postgres.store import PostgresStore
from limpet.stores.redis.store import RedisStore
from limpet.testing.store.bench import PRINCIPAL, record
from tests.postgres_server import postgres_server
from tests.redis_server import redis_server

SCENES: Final = (1, 32)
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def _cpu(pid: int) -> float:
    """Return the CPU seconds of a process and all its children."""
    total = 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(path.parent.name) == pid or int(fields[1]) == pid:
            total += (int(fields[11]) + int(fields[12])) / _TICKS
    return total


async def measure(store: Any, pid: int, sessions: int, seconds: float) -> dict[str, float]:
    """Measure one scene."""
    await store.renew(600)
    keys = [f"k{time.time_ns()}-{number}" for number in range(sessions)]
    for key in keys:
        await store.open(record(key, idle=600.0), evict=False)
    numbers, latencies = count(), list[float]()

    async def call(key: str) -> None:
        name = f"{next(numbers):024x}"
        began = time.perf_counter()
        claim = await store.claim(key, PRINCIPAL, Claim(name, name, b"d" * 32))
        assert isinstance(claim, Claimed), claim
        await store.settle(key, name, claim.fence, None)
        latencies.append(time.perf_counter() - began)

    async def caller(key: str) -> None:
        while time.perf_counter() < ends:
            await call(key)

    ends = time.perf_counter() + 0.3
    await asyncio.gather(*map(caller, keys))
    latencies.clear()
    trips = _trips(store)
    ours, theirs, began = time.process_time(), _cpu(pid), time.perf_counter()
    ends = began + seconds
    await asyncio.gather(*map(caller, keys))
    calls = len(latencies)
    found = {
        "calls/s": calls / (time.perf_counter() - began),
        "our µs": (time.process_time() - ours) * 1e6 / calls,
        "server µs": (_cpu(pid) - theirs) * 1e6 / calls,
        "round trips": (_trips(store) - trips) / calls,
        "latency µs": median(latencies) * 1e6,
    }
    await store.aclose()
    return found


def _trips(store: Any) -> int:
    return int(store._lanes.round_trips if isinstance(store, PostgresStore) else store._link.pipeline.sent)


@contextmanager
def servers(*, fsync: bool) -> Iterator[dict[str, tuple[str, int]]]:
    """Run the servers; yield their URLs and process ids."""
    disk = ("fsync=on",) if fsync else ("fsync=off", "full_page_writes=off")
    with ExitStack() as stack:
        found = {}
        for mode, policy in (("off", "everysec"), ("on", "always")):
            postgres = stack.enter_context(postgres_server(*disk, f"synchronous_commit={mode}"))
            found[f"PostgreSQL, synchronous_commit={mode}"] = postgres.url, postgres.pid
            if fsync or mode == "off":
                options = ("--appendonly", "yes", "--appendfsync", policy) if fsync else ()
                redis = stack.enter_context(redis_server(*options))
                found[f"Redis, appendfsync {policy}" if fsync else "Redis"] = redis.url, redis.pid
        yield found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--fsync", action="store_true")
    given = parser.parse_args()
    with servers(fsync=given.fsync) as found:
        for sessions in SCENES:
            rounds: dict[str, list[dict[str, float]]] = {name: [] for name in found}
            for _ in range(given.rounds):
                for name, (url, pid) in found.items():
                    kind = PostgresStore if url.startswith("postgres") else RedisStore
                    rounds[name].append(uvloop.run(measure(kind(url), pid, sessions, given.seconds)))
            print(f"\n{sessions} sessions, {sessions} in flight")
            for name, some in rounds.items():
                best = {
                    what: (max if what == "calls/s" else min)(one[what] for one in some) for what in some[0]
                }
                print(f"  {name:36}", "  ".join(f"{what} {value:,.1f}" for what, value in best.items()))


if __name__ == "__main__":
    main()
