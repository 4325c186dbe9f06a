"""What a call costs that arrives at another replica than the home of its session: `python -m bench.homes redis://…`.

Two replicas with one store each serve a session. Calls are made one after another, in turn at the home and at the other replica;
both are engines of this process, so the figure has no HTTP in it. It prints the median of each in milliseconds, and the difference.
"""

import asyncio
import statistics
import sys
import time
from typing import Final

from limpet.config import Settings
from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange, SessionExchange
from limpet.stores.base import Store
from limpet.stores.redis.store import RedisStore
from limpet.testing import ScriptedBack
from limpet.wire.jsonrpc import Request

CALLS: Final = 300
_CALLER: Final = Caller("one client")
_PARAMS: Final = {
    "protocolVersion": "2025-11-25",
    "clientInfo": {"name": "bench", "version": "0"},
    "capabilities": {},
}


async def _echo(exchange: Exchange) -> object:
    return {"id": exchange.request.id}


async def _call(engine: Engine, key: str, number: int) -> float:
    begun = time.perf_counter()
    exchange = await engine.exchanges.submit(key, _CALLER, Request(number, "tools/call", {}))
    if not isinstance(exchange, SessionExchange):
        raise TypeError("a quick call is answered in one piece")
    writer = exchange.writer
    while writer.terminal is None:
        writer.wake.clear()
        await writer.wake.wait()
    return (time.perf_counter() - begun) * 1000


async def measure(stores: list[Store], calls: int = CALLS) -> tuple[float, float]:
    """Return the median of a call at the home, and of one that is forwarded, in milliseconds."""
    engines = [
        Engine(ScriptedBack({"tools/call": _echo}, has_home=True), Settings(), store=store)
        for store in stores
    ]
    try:
        for engine in engines:
            await engine.ensure_started()
        opened = await engines[0].sessions.open(_CALLER, _PARAMS)
        key = opened.session.record.key
        times: list[list[float]] = [[], []]
        for number in range(2 * (calls + 10)):
            times[number % 2].append(await _call(engines[number % 2], key, number))
        at_home, forwarded = (statistics.median(some[10:]) for some in times)
        return at_home, forwarded
    finally:
        for engine in engines:
            await engine.aclose()


async def _main(url: str) -> None:
    stores = [RedisStore(url, namespace="bench-homes") for _ in range(2)]
    at_home, forwarded = await measure([*stores])
    print(f"at the home {at_home:.2f} ms, forwarded {forwarded:.2f} ms, added {forwarded - at_home:.2f} ms")


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
