"""The indexes of the shared slot are hints. One that is lost, late or overtaken is corrected, and no session or call is forgotten."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from math import inf
from typing import Any

import pytest
from redis.asyncio import Redis

from limpet.config import Limits
from limpet.core.lifecycle import SessionInput
from limpet.core.rules import streams
from limpet.errors import StoreUnavailable
from limpet.stores.base import UNREPORTED_SECONDS, Attached, Claim, Claimed
from limpet.stores.redis.link import Argument, connect
from limpet.stores.redis.store import RedisStore
from limpet.testing import VirtualClock
from limpet.testing.store.bench import GRACE, IDLE, KEY, LIFETIME, PRINCIPAL, record
from limpet.testing.store.limits import tight
from tests.redis_server import RedisServer
from tests.support import async_test

LEASE = 10.0


class Failing:
    """Refuses some scripts, or never returns their replies."""

    def __init__(self, url: str) -> None:
        self._link = connect(url)
        self.refused: set[str] = set()
        self.unanswered: set[str] = set()
        self.lost = asyncio.Event()

    async def run(self, script: str, key: str, arguments: tuple[Argument, ...]) -> list[Any]:
        if script in self.refused:
            raise StoreUnavailable("refused on purpose")
        reply = await self._link.run(script, key, arguments)
        if script in self.unanswered:
            self.lost.set()
            await asyncio.Event().wait()
        return reply

    async def subscriber(self) -> Redis:
        return await self._link.subscriber()

    async def policy(self) -> str:
        return await self._link.policy()

    async def aclose(self) -> None:
        await self._link.aclose()


class Pair:
    """Two replicas of one store, with one clock. Replica `a` compares only the sessions that it doubts."""

    def __init__(self, server: RedisServer, limits: Limits) -> None:
        self.clock = VirtualClock()
        self.begun = self.clock.now()
        self.server = server
        self.link = Failing(server.url)
        self.a = RedisStore(self.link, limits, self.clock, namespace="hints", replica="a")
        self.a._compared_at = inf
        self.b = RedisStore(server.url, limits, self.clock, namespace="hints", replica="b")

    async def claim(self, store: RedisStore, stream: str, number: int = 1) -> int:
        claimed = await store.claim(KEY, PRINCIPAL, Claim(number, stream, b"digest"))
        assert isinstance(claimed, Claimed), claimed
        return claimed.fence

    async def read(self, store: RedisStore) -> int:
        """Attach a reader of the standalone stream; return its generation."""
        attached = await store.attach(KEY, PRINCIPAL, None, None)
        assert isinstance(attached, Attached)
        return attached.generation

    async def leave(self, store: RedisStore, generation: int) -> None:
        """Lose this reader."""
        await store.detach(KEY, f"{KEY}-standalone", generation, None, broke=True)

    async def read_for_long(self, store: RedisStore) -> int:
        """Attach a reader, and let the other replica find that the session is not due before the end of its lifetime."""
        generation = await self.read(store)
        self.clock.advance(IDLE)
        assert await self.b.sweep() == []
        assert self.due() == LIFETIME
        assert await self.a.find(KEY, PRINCIPAL) is not None
        return generation

    def due(self) -> float:
        """Return after how many seconds the index says that the session is due."""
        return float(self.tell("ZSCORE", "due", KEY)) / 1000 - self.begun

    def tell(self, *words: str) -> str:
        """Send a command with the name of a key of the shared slot as its second word."""
        return self.server.tell(words[0], f"{self.a.key('*')}:{words[1]}", *words[2:])

    async def closed_by(self, store: RedisStore, reason: SessionInput) -> bool:
        """Sweep; return True if the session ends, for this reason."""
        closed = await store.sweep()
        return [one.reason for one in closed] == [reason]

    async def b_declares_a_dead(self) -> None:
        await self.b.renew(LEASE)
        for _ in range(6):
            self.clock.advance(LEASE / 3)
            await self.b.renew(LEASE)
        await self.b.orphans()


@asynccontextmanager
async def pair(server: RedisServer, limits: Limits = Limits()) -> AsyncIterator[Pair]:
    both = Pair(server, limits)
    async with aclosing(both.a), aclosing(both.b):
        assert await both.a.open(record(), evict=False) == []
        yield both


# When a session is due


@async_test
async def test_a_hint_that_a_sweep_of_another_replica_has_raised_is_lowered_again(
    server: RedisServer,
) -> None:
    async with pair(server) as both:
        fence = await both.claim(both.a, "x")
        both.clock.advance(IDLE)
        assert await both.b.sweep() == []
        assert both.due() == LIFETIME, "it has a reader, the POST"
        both.clock.advance(10.0)
        await both.a.settle(KEY, "x", fence, None)
        assert both.due() == 2 * IDLE + 10.0
        both.clock.advance(IDLE)
        assert [one.reason for one in await both.b.sweep()] == [SessionInput.IDLE]


@async_test
async def test_a_hint_whose_report_failed_is_reported_by_the_next_sweep(server: RedisServer) -> None:
    async with pair(server) as both:
        generation = await both.read_for_long(both.a)
        both.link.refused = {"hint"}
        await both.leave(both.a, generation)
        both.link.refused = set()
        assert both.due() == LIFETIME
        assert await both.a.sweep() == []
        assert both.due() == IDLE + GRACE


@async_test
async def test_the_hint_of_a_commit_whose_command_was_cancelled_is_reported(server: RedisServer) -> None:
    async with pair(server) as both:
        generation = await both.read_for_long(both.a)
        both.link.unanswered = {"commit", "commit_end"}
        leaving = asyncio.ensure_future(both.leave(both.a, generation))
        await both.link.lost.wait()
        leaving.cancel()
        await asyncio.wait([leaving])
        both.link.unanswered = set()
        assert await both.a.sweep() == []
        assert both.due() == IDLE + GRACE


@async_test
async def test_the_hint_of_a_replica_that_died_before_its_report_is_found_by_another_one(
    server: RedisServer,
) -> None:
    async with pair(server) as both:
        generation = await both.read_for_long(both.a)
        both.link.refused = {"hint"}
        await both.leave(both.a, generation)
        both.clock.advance(GRACE)
        assert await both.closed_by(both.b, SessionInput.GRACE_OVER)


@async_test
async def test_sessions_are_compared_some_at_a_time_and_each_of_them_in_turn(server: RedisServer) -> None:
    async with pair(server) as both:
        for number in range(100):
            await both.a.open(record(f"k{number}"), evict=False)
        late = str((both.begun + LIFETIME) * 1000)
        for key in (KEY, *(f"k{number}" for number in range(100))):
            both.tell("ZADD", "due", "XX", late, key)
        found = []
        for _ in range(6):
            both.clock.advance(1.0)
            await both.b.sweep()
            found.append(int(both.tell("ZCOUNT", "due", "-inf", f"({late}")))
        assert found == [50, 100, 101, 101, 101, 101]


@async_test
async def test_a_place_whose_session_was_never_made_is_free_again_but_not_at_once(
    server: RedisServer,
) -> None:
    async with pair(server) as both:
        both.link.refused = {"create"}
        with pytest.raises(StoreUnavailable):
            await both.a.open(record("never"), evict=False)
        await both.b.sweep()
        assert (await both.b.totals()).sessions == 2, "it may be about to be made"
        both.clock.advance(40.0)
        await both.b.sweep()
        assert (await both.b.totals()).sessions == 1


@async_test
async def test_a_session_that_has_lost_writes_is_compared(server: RedisServer) -> None:
    async with pair(server) as both:
        generation = await both.read_for_long(both.a)
        await both.leave(both.a, generation)
        both.tell("ZADD", "due", "XX", str((both.begun + LIFETIME) * 1000), KEY)
        both.server.tell("HDEL", both.a.key(KEY), f"o:{both.a._writer()}")
        await both.b.change(KEY, level="debug")
        await both.a.change(KEY, level="info")
        assert both.due() == LIFETIME
        await both.a.sweep()
        assert both.due() == IDLE + GRACE


# What else the shared slot knows


@async_test
async def test_a_subscription_that_the_shared_slot_has_missed_is_repaired(server: RedisServer) -> None:
    async with pair(server) as both:
        both.link.refused = {"subscribed"}
        with pytest.raises(StoreUnavailable):
            await both.a.subscribe(KEY, "one://")
        assert await both.b.subscribers("one://") == []
        await both.b.sweep()
        assert await both.b.subscribers("one://") == [KEY]


@async_test
async def test_a_request_to_subscribe_that_is_repeated_completes_the_first_one(server: RedisServer) -> None:
    async with pair(server) as both:
        both.link.refused = {"subscribed"}
        with pytest.raises(StoreUnavailable):
            await both.a.subscribe(KEY, "one://")
        both.link.refused = {"take_out"}
        assert await both.a.subscribe(KEY, "one://")
        assert await both.b.subscribers("one://") == [KEY]
        with pytest.raises(StoreUnavailable):
            await both.a.unsubscribe(KEY, "one://")
        both.link.refused = set()
        await both.a.unsubscribe(KEY, "one://")
        assert await both.b.subscribers("one://") == []


@async_test
async def test_a_session_that_is_detached_again_counts_as_detached(server: RedisServer) -> None:
    async with pair(server) as both:
        await both.leave(both.a, await both.read(both.a))
        assert (await both.a.totals()).detached == 1
        generation = await both.read(both.b)
        assert (await both.a.totals()).detached == 0
        await both.leave(both.a, generation)
        assert (await both.a.totals()).detached == 1


@async_test
async def test_log_bytes_that_another_replica_has_reported_are_corrected(server: RedisServer) -> None:
    limits = tight(streams_bytes=64 * 1024, session_bytes=32 * 1024, sessions=64)
    async with pair(server, limits) as both:
        small, large = await both.claim(both.a, "x"), await both.claim(both.b, "y", 2)
        await both.a.open_stream(KEY, "x", small, 1)
        await both.b.open_stream(KEY, "y", large, 1)
        await both.a.append(KEY, "x", small, [(2, b"x" * 2_000)])
        await both.b.append(KEY, "y", large, [(2, b"y" * 20_000)])
        assert (await both.a.totals()).log_bytes > 21_000
        await both.b.settle(KEY, "y", large, b"end", tag=3)
        claimed = await both.a.attach(KEY, PRINCIPAL, "y", None)
        assert isinstance(claimed, Attached)
        await both.a.detach(KEY, "y", claimed.generation, None, broke=False)
        # The stream of the other replica is forgotten here: now the session has what this replica reported first.
        assert await both.a.apply(KEY, False, streams.forget_finished, "y")
        await both.a.append(KEY, "x", small, [(4, b"x")])
        assert (await both.a.totals()).log_bytes < 5_000


@async_test
async def test_the_closing_of_a_session_is_reported_although_the_shared_slot_could_not_be_reached(
    server: RedisServer,
) -> None:
    async with pair(server) as both:
        both.link.refused = {"forget"}
        with pytest.raises(StoreUnavailable):
            await both.a.close(KEY, SessionInput.DELETED)
        for _ in range(3):
            both.clock.advance(UNREPORTED_SECONDS)
            await both.b.sweep()
        assert (await both.b.totals()).sessions == 0
        assert both.server.tell("KEYS", f"{both.a.key('*')}:p:*") == ""
        both.clock.advance(UNREPORTED_SECONDS)
        assert [one.reason for one in await both.b.unreported_closings()] == [SessionInput.DELETED]


# The work of each replica


@async_test
async def test_work_that_is_missing_in_the_list_of_its_owner_is_found(server: RedisServer) -> None:
    async with pair(server) as both:
        await both.a.renew(LEASE)
        await both.claim(both.a, "x")
        both.tell("DEL", f"own:{both.a.me}")
        await both.b.sweep()
        await both.b_declares_a_dead()
        assert [one.stream for one in await both.b.orphans()] == ["x"]


@async_test
async def test_work_is_found_at_once_among_many_sessions_in_which_its_owner_has_none_any_more(
    server: RedisServer,
) -> None:
    async with pair(server) as both:
        await both.a.renew(LEASE)
        await both.claim(both.a, "x")
        both.tell("SADD", f"own:{both.a.me}", *(f"idle-{number}" for number in range(3_000)))
        await both.b.renew(LEASE)
        for _ in range(6):
            both.clock.advance(LEASE / 3)
            await both.b.renew(LEASE)
        assert [one.stream for one in await both.b.orphans()] == ["x"]


@async_test
async def test_work_of_an_owner_that_is_forgotten_already_is_found(server: RedisServer) -> None:
    async with pair(server) as both:
        await both.a.renew(LEASE)
        await both.claim(both.a, "x")
        both.tell("DEL", f"own:{both.a.me}")
        await both.b_declares_a_dead()
        assert both.tell("ZSCORE", "rep", both.a.me) == ""
        await both.b.sweep()
        assert [one.stream for one in await both.b.orphans()] == ["x"]


@async_test
async def test_a_replica_that_opened_a_session_and_was_declared_dead_claims_nothing_there(
    server: RedisServer,
) -> None:
    async with pair(server) as both:
        await both.a.renew(LEASE)
        await both.a.open(record("mine"), evict=False)
        await both.b_declares_a_dead()
        with pytest.raises(StoreUnavailable, match="lease"):
            await both.a.claim("mine", PRINCIPAL, Claim(1, "x", b""))


@async_test
async def test_a_registration_whose_first_commit_failed_is_made_again(server: RedisServer) -> None:
    async with pair(server) as both:
        assert await both.b.open(record("other"), evict=False) == []
        await both.a.renew(LEASE)
        both.link.refused = {"commit"}
        with pytest.raises(StoreUnavailable):
            await both.a.claim("other", PRINCIPAL, Claim(1, "x", b""))
        both.link.refused = set()
        await both.b_declares_a_dead()
        with pytest.raises(StoreUnavailable, match="lease"):
            await both.a.claim("other", PRINCIPAL, Claim(1, "x", b""))


@async_test
async def test_state_and_bytes_that_the_shared_slot_has_missed_are_repaired(server: RedisServer) -> None:
    async with pair(server, tight(streams_bytes=64 * 1024, sessions=64)) as both:
        fence = await both.claim(both.a, "x")
        await both.a.open_stream(KEY, "x", fence, 1)
        await both.a.append(KEY, "x", fence, [(2, b"x" * 5_000)])
        await both.a.settle(KEY, "x", fence, None)
        await both.leave(both.a, await both.read(both.a))
        right = await both.b.totals()
        assert right.detached == 1
        both.tell("DEL", "away")
        both.tell("ZADD", "size", "9000", KEY)
        both.tell("ZADD", "size", "9000", "")
        assert await both.b.totals() != right
        await both.b.sweep()
        assert await both.b.totals() == right


@async_test
async def test_a_replica_without_a_lease_is_not_declared_dead(server: RedisServer) -> None:
    async with pair(server) as both:
        await both.claim(both.a, "x")
        await both.b.sweep()
        await both.b_declares_a_dead()
        assert await both.b.orphans() == []
        assert both.tell("ZSCORE", "rep", both.a.me) == ""
