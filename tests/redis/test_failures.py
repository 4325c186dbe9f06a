"""Redis is unavailable, hangs, is full or read-only: the store says so at once and recovers by itself."""

import asyncio
import os
import signal
from contextlib import aclosing

import pytest

from limpet.core.stream import Position
from limpet.errors import StoreUnavailable
from limpet.stores.base import Attached, Claim, Claimed
from limpet.stores.redis import core
from limpet.stores.redis.store import RedisStore
from limpet.testing import NotingObserver, VirtualClock
from limpet.testing.store.bench import KEY, PRINCIPAL, record
from tests.redis_server import redis_pair, redis_server
from tests.support import BOUND, async_test

ROUND = (KEY, PRINCIPAL)


async def unavailable(store: RedisStore) -> bool:
    try:
        await store.find(*ROUND)
    except StoreUnavailable as error:
        return error.retry_after > 0
    return False


@async_test
async def test_a_redis_that_was_never_there_is_unavailable_and_checked_at_start() -> None:
    store = RedisStore("redis://127.0.0.1:1")
    assert await unavailable(store)
    try:
        await store.check()
    except StoreUnavailable:
        await store.aclose()
        return
    raise AssertionError("a Redis that is not there was found in order")


@async_test
async def test_a_redis_that_returns_is_used_again() -> None:
    with redis_server("--appendonly", "yes", "--appendfsync", "always") as server:
        store = RedisStore(server.url)
        rung = asyncio.Event()
        store.bind(lambda what, key, name: rung.set())  # noqa: ARG005
        await store.heard()
        await store.open(record(), evict=False)
        claimed = await store.claim(*ROUND, Claim(1, "a", b""))
        assert isinstance(claimed, Claimed)
        server.stop()
        assert await unavailable(store)
        server.start()
        assert await store.find(*ROUND) is not None
        await store.settle(KEY, "a", claimed.fence, b"last", tag=7)
        await store.heard()
        other = RedisStore(server.url)
        rung.clear()
        await store.attach(*ROUND, None, None)
        await other.append(KEY, "", -1, [(5, b"{}")])
        async with asyncio.timeout(BOUND):
            await rung.wait()
        for one in (store, other):
            await one.aclose()


@async_test
async def test_a_redis_that_hangs_is_abandoned_and_used_again_when_it_wakes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core, "PATIENCE", 0.3)
    with redis_server() as server:
        store = RedisStore(server.url)
        async with aclosing(store):
            await store.open(record(), evict=False)
            os.kill(server.pid, signal.SIGSTOP)
            try:
                tries = [unavailable(store) for _ in range(20)]
                assert all(await asyncio.gather(*tries))
            finally:
                os.kill(server.pid, signal.SIGCONT)
            assert await store.find(*ROUND) is not None


@async_test
async def test_a_full_redis_refuses_new_work_and_lets_running_work_end() -> None:
    with redis_server() as server:
        store = RedisStore(server.url)
        async with aclosing(store):
            await store.open(record(), evict=False)
            running = await store.claim(*ROUND, Claim(1, "a", b""))
            plain = await store.claim(*ROUND, Claim(2, "b", b""))
            assert isinstance(running, Claimed)
            assert isinstance(plain, Claimed)
            await store.open_stream(KEY, "a", running.fence, 1)
            server.tell("CONFIG", "SET", "maxmemory", "1mb")
            for attempt in (
                store.claim(*ROUND, Claim(3, "c", b"")),
                store.append(KEY, "a", running.fence, [(2, b"more")]),
                store.open(record("second"), evict=False),
                store.set_state(KEY, "f", b"1", op="o"),
            ):
                try:
                    await attempt
                except StoreUnavailable:
                    continue
                raise AssertionError("a full Redis took more")
            await store.settle(KEY, "b", plain.fence, None)
            await store.settle(KEY, "a", running.fence, b"last", tag=3)
            server.tell("CONFIG", "SET", "maxmemory", "0")
            assert isinstance(await store.attach(*ROUND, "a", None), Attached)
            assert isinstance(await store.claim(*ROUND, Claim(3, "c", b"")), Claimed)


@async_test
async def test_a_refused_claim_on_a_full_redis_changes_nothing() -> None:
    with redis_server() as server:
        store = RedisStore(server.url)
        await store.open(record(), evict=False)
        key = f"lp:1:default:{{{KEY}}}"
        before = server.tell("DUMP", key)
        server.tell("CONFIG", "SET", "maxmemory", "1mb")
        try:
            await store.claim(*ROUND, Claim(3, "c", b""))
        except StoreUnavailable:
            assert server.tell("DUMP", key) == before
            await store.aclose()
            return
        raise AssertionError("a full Redis took a claim")


@async_test
async def test_a_primary_that_became_a_replica_is_unavailable_and_not_ready_until_it_is_one_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core, "PATIENCE", 0.3)
    with redis_pair() as (primary, replica):
        store = RedisStore(primary.url)
        async with aclosing(store):
            await store.open(record(), evict=False)
            primary.tell("REPLICAOF", "127.0.0.1", str(replica.port))
            assert await unavailable(store)
            with pytest.raises(StoreUnavailable, match="the store cannot be reached"):
                await store.prove()
            primary.tell("REPLICAOF", "NO", "ONE")
            await store.open(record(), evict=False)
            assert await store.find(*ROUND) is not None


@async_test
async def test_a_redis_that_throws_keys_away_is_warned_of() -> None:
    with redis_server() as server:
        observer = NotingObserver()
        for policy, warned in (("noeviction", 0), ("allkeys-lru", 1), ("volatile-ttl", 2)):
            server.tell("CONFIG", "SET", "maxmemory-policy", policy)
            store = RedisStore(server.url, observer=observer)
            await store.check()
            await store.aclose()
            assert len(observer.named("store.evicts")) == warned


@async_test
async def test_an_end_that_could_not_be_written_stays_its_owner_s_until_it_is_written() -> None:
    with redis_server("--appendonly", "yes", "--appendfsync", "always") as server:
        clock = VirtualClock()
        store = RedisStore(server.url, clock=clock)
        async with aclosing(store):
            await store.renew(600)
            await store.open(record(), evict=False)
            claimed = await store.claim(*ROUND, Claim(1, "a", b""))
            assert isinstance(claimed, Claimed)
            server.stop()
            with pytest.raises(StoreUnavailable):
                await store.settle(KEY, "a", claimed.fence, b"last", tag=1)
            server.start()
            clock.advance(60)
            assert await store.orphans() == [], "its owner lives, and writes it late"
            await store.settle(KEY, "a", claimed.fence, b"last", tag=1)
            page = await store.read(KEY, "a", Position(1, 1 ^ (2**64 - 1)), 10, 1_000)
            assert page is not None
            assert [event.data for event in page.events] == [b"last"]
