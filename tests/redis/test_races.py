"""Many workers over several replicas, and replies lost on purpose: every count is exact."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

from typing_extensions import override

from limpet.config import Limits
from limpet.core.lifecycle import SessionInput
from limpet.core.stream import Position
from limpet.stores.base import Answered, Attached, Claim, Claimed, Refusal
from limpet.stores.redis.link import Argument
from limpet.stores.redis.store import RedisStore
from limpet.stores.shared.answers import Lost
from limpet.testing import VirtualClock
from limpet.testing.store.bench import KEY, PRINCIPAL, record
from tests.redis.links import Lossy
from tests.redis_server import RedisServer
from tests.support import all_closed, async_test

ROOMY = Limits(running=1_000_000, asks=8)


@asynccontextmanager
async def fleet(url: str, count: int, *, lossy: bool = False) -> AsyncIterator[list[RedisStore]]:
    links = [Lossy(url, seed) if lossy else url for seed in range(count)]
    stores = [RedisStore(link, ROOMY, namespace="races", replica=f"r{n}") for n, link in enumerate(links)]
    async with all_closed(*stores):
        assert await stores[0].open(record(lifetime=1e6, idle=1e6, grace=1e6), evict=False) == []
        yield stores
        assert not lossy or sum(link.lost for link in links if isinstance(link, Lossy)) > 0


@async_test
async def test_of_64_workers_each_of_2000_ids_is_won_by_one(server: RedisServer) -> None:
    async with fleet(server.url, 4) as stores:
        won: Counter[int] = Counter()

        async def worker(number: int) -> None:
            # Every id is tried by a dozen of them, in another order each.
            for name in random.Random(number).sample(range(2_000), 400):
                claim = Claim(name, f"{number}-{name}", b"%d" % number)
                if isinstance(await stores[number % 4].claim(KEY, PRINCIPAL, claim), Claimed):
                    won[name] += 1

        await asyncio.gather(*(worker(number) for number in range(64)))
        assert len(won) == 2_000
        assert set(won.values()) == {1}


@async_test
async def test_counters_are_exact_although_replies_are_lost(server: RedisServer) -> None:
    async with fleet(server.url, 3, lossy=True) as stores:

        async def client(number: int) -> None:
            for turn in range(100):
                await stores[(number + turn) % 3].add_state(KEY, "n", 1, op=f"{number}.{turn}")

        await asyncio.gather(*(client(number) for number in range(20)))
        assert await stores[0].add_state(KEY, "n", 0, op="end") == 2_000


@async_test
async def test_exchanges_begin_and_end_once_although_replies_are_lost(server: RedisServer) -> None:
    async with fleet(server.url, 3, lossy=True) as stores:

        async def exchange(number: int) -> None:
            store, stream = stores[number % 3], f"s{number}"
            claimed = await store.claim(KEY, PRINCIPAL, Claim(number, stream, b""))
            assert isinstance(claimed, Claimed)
            if number % 2:
                await store.settle(KEY, stream, claimed.fence, None)
                return
            start = await store.open_stream(KEY, stream, claimed.fence, number + 1)
            for event in range(5):
                await store.append(KEY, stream, claimed.fence, [(1_000 + event, b"%d" % event)])
            await store.settle(KEY, stream, claimed.fence, b"last", tag=9)
            page = await stores[(number + 1) % 3].read(KEY, stream, start, 100, 10_000)
            assert page is not None
            assert [event.data for event in page.events] == [b"0", b"1", b"2", b"3", b"4", b"last"]

        await asyncio.gather(*(exchange(number) for number in range(300)))
        for number in range(300):
            assert isinstance(
                await stores[0].claim(KEY, PRINCIPAL, Claim(number, f"t{number}", b"")), Claimed
            )


@async_test
async def test_pushes_of_many_writers_are_there_once_although_replies_are_lost(server: RedisServer) -> None:
    async with fleet(server.url, 3, lossy=True) as stores:
        pushes = [stores[n % 3].append(KEY, "", -1, [(n + 1, b"%d" % n)]) for n in range(300)]
        positions = await asyncio.gather(*pushes)
        assert sorted(position.seq for position in positions) == list(range(1, 301))
        page = await stores[0].read(KEY, record().standalone, Position(0, 0), 1_000, 1 << 20)
        assert page is not None
        assert sorted(int(event.data) for event in page.events) == list(range(300))


@async_test
async def test_places_for_asks_are_never_exceeded_nor_lost(server: RedisServer) -> None:
    async with fleet(server.url, 3, lossy=True) as stores:
        outstanding = highest = 0

        async def one(number: int) -> None:
            nonlocal outstanding, highest
            name = f"ask.{number}"
            while not await stores[number % 3].ask(KEY, name, record().standalone):
                await asyncio.sleep(0.002)  # Others come first, in an order of chance.
            outstanding += 1
            highest = max(highest, outstanding)
            outstanding -= 1
            answered = await stores[(number + 1) % 3].answer(KEY, PRINCIPAL, name, b"d", b"{}")
            assert answered in {Answered.FIRST, Answered.AGAIN}

        await asyncio.gather(*(one(number) for number in range(100)))
        assert highest <= 8
        for number in range(8):
            assert await stores[0].ask(KEY, f"end.{number}", "x")
        assert not await stores[0].ask(KEY, "end.8", "x")


@async_test
async def test_a_session_is_closed_or_reattached_and_never_both(server: RedisServer) -> None:
    clock = VirtualClock()
    links = [Lossy(server.url, seed) for seed in range(4)]
    stores = [
        RedisStore(link, ROOMY, clock, namespace="grace", replica=f"r{n}") for n, link in enumerate(links)
    ]
    async with all_closed(*stores):
        keys = [f"k{number}" for number in range(100)]
        for key in keys:
            assert await stores[0].open(record(key), evict=False) == []
            reader = await stores[0].attach(key, PRINCIPAL, None, None)
            assert isinstance(reader, Attached)
            assert await stores[0].detach(key, f"{key}-standalone", reader.generation, None, broke=True)
        clock.advance(50)
        closed: Counter[str] = Counter()
        attached: set[str] = set()

        async def sweeper(store: RedisStore) -> None:
            for _ in range(3):
                closed.update(one.record.key for one in await store.sweep())

        async def client(number: int) -> None:
            """Come back: the first ones in time, the last ones never, the others in the middle of it."""
            await asyncio.sleep(number / 5_000)  # Real time is the subject: a race.
            found = await stores[number % 4].attach(keys[number], PRINCIPAL, None, None)
            if found is not Refusal.NO_SESSION:
                attached.add(keys[number])

        await asyncio.gather(*map(client, range(10)))
        await asyncio.gather(*map(sweeper, stores), *map(client, range(10, 90)))
        for store in stores:
            clock.advance(3)
            closed.update(one.record.key for one in await store.sweep())
        assert set(closed.values()) <= {1}
        assert attached.isdisjoint(closed)
        assert attached | set(closed) == set(keys)
        assert attached
        assert closed


class Slow(Lossy):
    """Loses the first reply to an attach; before that is sent again, something else happens."""

    def __init__(self, url: str, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__(url, 0, replies=0.0, commands=0.0)
        self._meanwhile = meanwhile
        self._attach: tuple[Argument, ...] = ()

    @override
    async def run(self, script: str, key: str, arguments: tuple[Argument, ...]) -> list[Any]:
        is_again = arguments is self._attach
        if is_again:
            await self._meanwhile()
        reply = await super().run(script, key, arguments)
        if script == "commit" and not is_again:
            self._attach = arguments
            raise Lost("on purpose")
        return reply


@async_test
async def test_an_attach_sent_again_late_does_not_supersede_a_newer_reader(server: RedisServer) -> None:
    newest: list[Attached] = []

    async def others_come() -> None:
        for _ in range(3):
            attached = await other.attach(KEY, PRINCIPAL, None, None)
            assert isinstance(attached, Attached)
            newest.append(attached)

    slow = RedisStore(Slow(server.url, others_come), ROOMY, namespace="late", replica="slow")
    async with aclosing(slow):
        other = RedisStore(server.url, ROOMY, namespace="late", replica="other")
        async with aclosing(other):
            assert await slow.open(record(), evict=False) == []
            old = await slow.attach(KEY, PRINCIPAL, None, None)
            assert isinstance(old, Attached)
            assert old.generation < newest[0].generation
            assert not await slow.detach(KEY, record().standalone, old.generation, None, broke=True)
            assert await other.detach(KEY, record().standalone, newest[-1].generation, None, broke=True)


@async_test
async def test_a_closing_whose_reply_was_lost_is_still_the_closers(server: RedisServer) -> None:
    store = RedisStore(Lossy(server.url, 1, replies=1.0), namespace="closing")
    async with aclosing(store):
        for number in range(20):
            await store.open(record(f"k{number}"), evict=False)
            closed = await store.close(f"k{number}", SessionInput.DELETED)
            assert closed is not None
            assert closed.reason is SessionInput.DELETED
