"""`python -m tests.attacks.costs`: the memory of one session, call, kept answer and task, as Python's allocator counts it.

The charges of the ledger are above these numbers: the allocator of the system adds some, and so do the connection of a call and the
tasks of a busy loop.
"""

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.config import Limits, Settings
from holdfast.core.records import Claim, Claimed
from holdfast.engine.caller import Caller
from holdfast.engine.engine import Engine
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ScriptedBack
from holdfast.wire.jsonrpc import Request
from tests.messages import initialize

_NUMBER: Final = 1_000
_VALUE: Final = 100
_TURNS: Final = 1_000


async def _cost(one: Callable[[int], Awaitable[object]]) -> int:
    """Return the bytes that stay after something was done, for one time of many."""
    before = await _used()
    for number in range(_NUMBER):
        await one(number)
    return (await _used() - before) // _NUMBER


async def _used() -> int:
    """Return the allocated bytes, after the tasks that were started have done what they can."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def costs() -> dict[str, int]:
    """Return the bytes of each thing."""
    store, back, never = MemoryStore(), ScriptedBack(), asyncio.Event()
    engine = Engine(back, Settings(limits=Limits(running=2 * _NUMBER)), store=store)

    async def hold(_exchange: object) -> object:
        return await never.wait()

    back.on("tools/call")(hold)
    await engine.ensure_started()
    key = (await engine.sessions.open(Caller("ann"), initialize())).session.record.key

    async def session(number: int) -> None:
        client = {"name": f"client {number}", "version": "1"}
        await engine.sessions.open(Caller(f"{number}"), {**initialize(), "clientInfo": client})

    async def call(number: int) -> None:
        await engine.exchanges.submit(key, Caller("ann"), Request(number, "tools/call", {"name": "hold"}))

    async def kept(number: int) -> None:
        claim = Claim(f"{number}", f"stream {number}", b"d" * 32, control=False)
        claimed = await store.claim(key, "ann", claim)
        if isinstance(claimed, Claimed):
            await store.settle(key, claim.stream, claimed.fence, None)
            await store.keep(key, claim.stream, claim, b"%0100d" % number, tag=number + 1)

    async def task(number: int) -> None:
        await store.open_task(f"{number:032}", "ann", b"%0100d" % number, ttl=60)

    tracemalloc.start()
    try:
        named = {
            "a session": session,
            f"a kept answer of {_VALUE} bytes": kept,
            f"a task of {_VALUE} bytes": task,
            "a call that runs": call,
        }
        return {name: await _cost(one) for name, one in named.items()}
    finally:
        tracemalloc.stop()
        never.set()
        await engine.aclose()


if __name__ == "__main__":
    for name, size in asyncio.run(costs()).items():
        print(f"{name:28} {size:6} bytes")
