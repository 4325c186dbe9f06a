"""A client that uses one id for all its calls, which alternate between two replicas: every call runs, and none is refused.

    python -m tests.redis.reuse --calls 10000 --delay 0 1 50

An answer leaves before its end is stored, so the next call can reach the store earlier than the end of the one before it. The delay is
the round trip to Redis in milliseconds, half of it each way; each way takes between half and one and a half times that.
"""

import argparse
import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, NamedTuple

from limpet.stores.redis.store import RedisStore
from tests.asgi import Peer
from tests.messages import request
from tests.redis_server import redis_server
from tests.unit.fronts.http.bench import Bench, bench

SESSIONS: Final = 25
"""Sessions that call at the same time."""


@asynccontextmanager
async def distant(port: int, milliseconds: float) -> AsyncIterator[str]:
    """Yield the URL of a way to Redis whose round trip takes so long."""
    delays, way = random.Random(1), milliseconds / 2_000
    ways: set[asyncio.Task[None]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop, arrives = asyncio.get_running_loop(), 0.0
        try:
            while part := await reader.read(65_536):
                # Each later than the one before it: timers with equal times run in any order.
                arrives = max(arrives + 1e-6, loop.time() + way * delays.uniform(0.5, 1.5))
                loop.call_at(arrives, writer.write, part)
        except OSError:
            pass
        finally:
            writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        ways.update(map(asyncio.ensure_future, (carry(reader, back), carry(there, writer))))

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for one in ways:
            one.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


class Reused(NamedTuple):
    """The outcome of all calls."""

    statuses: dict[int, int]
    runs: int


async def reuse(port: int, *, calls: int, milliseconds: float, sessions: int = SESSIONS) -> Reused:
    """Send so many calls, all with the id 1; return how often each status came, and how many calls ran."""
    statuses: dict[int, int] = {}
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(distant(port, milliseconds))
        replicas = [
            await stack.enter_async_context(bench(store=RedisStore(url, replica=name)))
            for name in ("one", "two")
        ]
        each = calls // sessions
        await asyncio.gather(*(_call(replicas, number, each, statuses) for number in range(sessions)))
        return Reused(statuses, sum(len(replica.runs) for replica in replicas))


async def _call(replicas: list[Bench], number: int, calls: int, statuses: dict[int, int]) -> None:
    """Call from one session. Every second session sends equal bytes each time."""
    opened = replicas[0].peer()
    await opened.initialize()
    for turn in range(calls):
        peer = Peer(replicas[turn % 2].app)
        peer.session, peer.version = opened.session, opened.version
        arguments = {"n": turn} if number % 2 else {}
        message = request(1, "tools/call", {"name": "quick", "arguments": arguments})
        call = await peer.post(message).done()
        statuses[call.status] = statuses.get(call.status, 0) + 1


def main() -> int:
    """Print the outcomes; return 1 if a call was refused or did not run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--delay", type=float, nargs="*", default=[0, 1, 50], help="milliseconds")
    options = parser.parse_args()
    failed = False
    with redis_server() as server:
        for delay in options.delay:
            server.tell("FLUSHALL")
            found = asyncio.run(reuse(server.port, calls=options.calls, milliseconds=delay))
            failed |= found != ({200: options.calls}, options.calls)
            print(f"{delay:g} ms: {found.statuses} {found.runs} runs")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
