"""`python -m tests.attacks.costs`: the memory of a session, a call and other things that are charged with a constant, as Python's allocator counts it.

The charges of the ledger are above these numbers: the allocator of the system adds some, and so do the connection of a call and the
tasks of a busy loop.
"""

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from msgspec.structs import replace

from limpet.backs.several.members import Member
from limpet.backs.several.presence import Presence
from limpet.backs.several.routes import Routes
from limpet.config import Limits, Settings
from limpet.core.ledger import Ledger
from limpet.core.records import Claim, Claimed
from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.stores.memory import MemoryStore
from limpet.testing import NotingObserver, ScriptedBack
from limpet.wire.jsonrpc import Request
from tests.messages import initialize

_NUMBER: Final = 1_000
_VALUE: Final = 100
_TURNS: Final = 1_000

One = Callable[[int], Awaitable[object]]


async def _cost(one: One) -> int:
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
    record = (await engine.sessions.open(Caller("ann"), initialize())).session.record
    # It has no room for answers: each of them leaves its end.
    crowded = MemoryStore(Limits(store_bytes=4_096))
    await crowded.open(record, evict=False)

    async def session(number: int) -> None:
        client = {"name": f"client {number}", "version": "1"}
        await engine.sessions.open(Caller(f"{number}"), {**initialize(), "clientInfo": client})

    async def call(number: int) -> None:
        request = Request(number, "tools/call", {"name": "hold"})
        await engine.exchanges.submit(record.key, Caller("ann"), request)

    async def task(number: int) -> None:
        await store.open_task(f"{number:032}", "ann", b"%0100d" % number, ttl=60)

    behind = _Behind(never)
    tracemalloc.start()
    try:
        named: dict[str, One] = {
            "a session": session,
            f"a kept answer of {_VALUE} bytes": _keeping(store, record.key),
            "the end of an answer": _keeping(crowded, record.key),
            f"a task of {_VALUE} bytes": task,
            "a call that runs": call,
            "a name with several owners": behind.route,
            "an attempt to connect": lambda number: behind.join(replace(record, key=f"{number}")),
        }
        return {name: await _cost(one) for name, one in named.items()}
    finally:
        tracemalloc.stop()
        await behind.presence.stop()
        never.set()
        await engine.aclose()


def _keeping(store: MemoryStore, key: str) -> One:
    """Return a function that lets a store keep an answer for a repeat."""

    async def keep(number: int) -> None:
        claim = Claim(f"{number}", f"stream {number}", b"d" * 32, control=False)
        claimed = await store.claim(key, "ann", claim)
        assert isinstance(claimed, Claimed)
        await store.settle(key, claim.stream, claimed.fence, None)
        await store.keep(key, claim.stream, claim, b"%0100d" % number, tag=number + 1)

    return keep


class _Behind:
    """Two servers behind, which do not answer and may have the same names."""

    def __init__(self, never: asyncio.Event) -> None:
        self._never = never
        observer = cast("Any", NotingObserver())
        self._members = [Member(name, cast("Any", self), observer) for name in ("a", "b")]
        self._routes = Routes(self._members, observer)
        self._charge = Ledger(1).account("ann").open()
        self.presence: Presence = Presence(lambda _: None)

    async def serve(self, *_: object) -> None:
        """Do not answer."""
        await self._never.wait()

    async def route(self, number: int) -> None:
        """Learn who has a name."""
        self._routes.claim("tools/list", "tools", f"{number}", self._members[0], "ann")

    async def join(self, record: Any) -> None:
        """Begin to connect a session."""
        self.presence.begin(record, Caller("ann"), {self._members[0]: None}, self._charge, is_stored=True)


if __name__ == "__main__":
    for name, size in asyncio.run(costs()).items():
        print(f"{name:28} {size:6} bytes")
