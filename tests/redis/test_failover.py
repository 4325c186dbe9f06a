"""A failover that lost acknowledged writes: noticed, repaired by a living writer, and otherwise reported."""

import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from limpet.core.stream import Continuity, Position, StreamPage
from limpet.errors import Fenced, StoreUnavailable
from limpet.stores.base import Answered, Attached, Claim, Claimed, Orphan, Refusal, WakeUp
from limpet.stores.redis.store import RedisStore
from limpet.testing.store.bench import KEY, PRINCIPAL, data_of, record
from tests.redis.links import Switched
from tests.redis_server import RedisServer, redis_pair, replicate
from tests.support import async_test


class Failover:
    """A store whose primary will be lost with everything written after `cut`."""

    def __init__(self, primary: RedisServer, replica: RedisServer) -> None:
        self._primary, self._replica = primary, replica
        self.link = Switched(primary.url, replica.url)
        self.store = RedisStore(self.link, namespace="failover")

    def cut(self) -> None:
        """Replicate the present data, and nothing later."""
        replicate(self._primary, self._replica)
        self._replica.tell("REPLICAOF", "NO", "ONE")

    def stop(self) -> None:
        """Lose the primary, before another server takes its place."""
        self._primary.stop()

    async def happen(self) -> None:
        """Lose the primary."""
        self.stop()
        await self.link.fail_over()


@asynccontextmanager
async def failover() -> AsyncIterator[Failover]:
    with redis_pair() as (primary, replica):
        made = Failover(primary, replica)
        async with aclosing(made.store):
            await made.store.open(record(), evict=False)
            yield made


async def begin(store: RedisStore, name: int, stream: str) -> int:
    claimed = await store.claim(KEY, PRINCIPAL, Claim(name, stream, b"digest"))
    assert isinstance(claimed, Claimed)
    return claimed.fence


async def opened(store: RedisStore) -> tuple[int, Position]:
    """Begin an exchange with the stream `a`; return its fence and the start of the stream."""
    fence = await begin(store, 1, "a")
    return fence, await store.open_stream(KEY, "a", fence, 1)


async def read(store: RedisStore, start: Position) -> StreamPage:
    """Read everything after a position of the stream `a`."""
    page = await store.read(KEY, "a", start, 100, 10_000_000)
    assert page is not None
    return page


@async_test
async def test_a_living_writer_restores_events_that_the_store_lost() -> None:
    async with failover() as disaster:
        store = disaster.store
        fence, start = await opened(store)
        positions = [await store.append(KEY, "a", fence, [(10 + n, b"%d" % n)]) for n in range(3)]
        disaster.cut()
        positions.append(await store.append(KEY, "a", fence, [(13, b"3")]))
        last = await store.append(KEY, "a", fence, [(14, b"4"), (15, b"5")])
        positions += [Position(last.seq - 1, 14), last]
        await disaster.happen()
        positions.append(await store.append(KEY, "a", fence, [(16, b"6")]))
        await store.settle(KEY, "a", fence, b"last", tag=17)
        for number, position in enumerate([start, *positions]):
            page = await read(store, position)
            assert page.continuity is Continuity.OK, "a reader is where it was"
            assert data_of(page) == [*(b"%d" % n for n in range(number, 7)), b"last"]
            assert page.finished


@async_test
async def test_a_claim_the_store_lost_is_put_back_by_its_owner() -> None:
    async with failover() as disaster:
        store = disaster.store
        disaster.cut()
        fence, _ = await opened(store)
        position = await store.append(KEY, "a", fence, [(2, b"one")])
        plain = await begin(store, 2, "b")
        await disaster.happen()
        after = await store.append(KEY, "a", fence, [(3, b"two")])
        assert after.seq == position.seq + 1
        await store.settle(KEY, "b", plain, None)
        await store.settle(KEY, "a", fence, b"last", tag=4)
        assert data_of(await read(store, position)) == [b"two", b"last"]
        assert await begin(store, 1, "c") > 0, "and the id is free again"


@async_test
async def test_an_event_that_is_sent_again_after_the_failover_brings_back_those_before_it() -> None:
    async with failover() as disaster:
        store = disaster.store
        fence, start = await opened(store)
        disaster.cut()
        await store.append(KEY, "a", fence, [(2, b"one")])
        disaster.stop()
        events = [(3, b"two"), (4, b"three")]
        with pytest.raises(StoreUnavailable):
            await store.append(KEY, "a", fence, events)
        await disaster.happen()
        for _ in range(2):
            assert (await store.append(KEY, "a", fence, events)).seq == start.seq + 3
        assert data_of(await read(store, start)) == [b"one", b"two", b"three"]


@async_test
async def test_the_end_alone_brings_a_lost_tail_back() -> None:
    async with failover() as disaster:
        store = disaster.store
        fence, start = await opened(store)
        disaster.cut()
        await store.append(KEY, "a", fence, [(2, b"one")])
        await disaster.happen()
        await store.settle(KEY, "a", fence, b"last", tag=3)
        assert data_of(await read(store, start)) == [b"one", b"last"]


@async_test
async def test_without_its_writer_a_reader_of_lost_events_gets_an_error() -> None:
    async with failover() as disaster:
        store = disaster.store
        fence, _ = await opened(store)
        await store.append(KEY, "a", fence, [(2, b"one")])
        disaster.cut()
        lost = await store.append(KEY, "a", fence, [(3, b"two")])
        await disaster.happen()
        other = RedisStore(disaster.link, namespace="failover")
        page = await read(other, lost)
        assert (page.continuity, page.events) == (Continuity.FORK, [])
        assert await other.attach(KEY, PRINCIPAL, "a", lost) is Refusal.UNRESUMABLE


@async_test
async def test_a_tag_distinguishes_a_lost_event_from_its_replacement() -> None:
    async with failover() as disaster:
        store = disaster.store
        disaster.cut()
        lost = await store.append(KEY, "", -1, [(3, b"lost")])
        await disaster.happen()
        assert await store.append(KEY, "", -1, [(4, b"other")]) == Position(lost.seq, 4)
        page = await store.read(KEY, record().standalone, lost, 100, 10_000)
        assert page is not None
        assert page.continuity is Continuity.FORK


@async_test
async def test_recent_writes_that_do_not_reach_back_far_enough_leave_a_reported_gap() -> None:
    async with failover() as disaster:
        store = disaster.store
        fence, start = await opened(store)
        disaster.cut()
        for number in range(2, 12):
            await store.append(KEY, "a", fence, [(number, b"x" * 60_000)])
        await disaster.happen()
        await store.settle(KEY, "a", fence, b"last", tag=99)
        page = await read(store, start)
        assert page.continuity is Continuity.GAP
        assert page.events[-1].data == b"last"
        assert page.finished


@async_test
async def test_of_a_stream_that_the_store_lost_the_writer_restores_the_rest_and_readers_get_the_gap() -> None:
    async with failover() as disaster:
        store = disaster.store
        disaster.cut()
        fence, start = await opened(store)
        for number in range(2, 12):
            await store.append(KEY, "a", fence, [(number, b"x" * 60_000)])
        await disaster.happen()
        await store.settle(KEY, "a", fence, b"last", tag=99)
        repeat = await store.attach(KEY, PRINCIPAL, "a", None)
        assert isinstance(repeat, Attached)
        for cursor in (start, repeat.cursor):
            page = await read(store, cursor)
            assert page.missed is not None
            assert page.missed[0] == start.seq + 1
            assert page.events[-1].data == b"last"


@async_test
async def test_a_question_that_the_store_lost_is_there_again_and_can_be_answered() -> None:
    async with failover() as disaster:
        store = disaster.store
        fence, start = await opened(store)
        disaster.cut()
        assert await store.ask(KEY, "a.1", "a")
        await store.append(KEY, "a", fence, [(2, b"question")])
        assert await store.ask(KEY, "outside", record().standalone)
        await disaster.happen()
        await store.look_again()
        assert data_of(await read(store, start)) == [b"question"]
        assert await store.answer(KEY, PRINCIPAL, "a.1", b"d", b"{}") is Answered.FIRST
        assert await store.answer(KEY, PRINCIPAL, "outside", b"d", b"{}") is Answered.FIRST
        assert await store.take_answer(KEY, "a.1") == b"{}"


@async_test
async def test_a_question_of_a_call_that_has_ended_is_not_restored() -> None:
    async with failover() as f:
        fence = await begin(f.store, 1, "a")
        assert await f.store.ask(KEY, "a.1", "a")
        await f.store.settle(KEY, "a", fence, None)
        await f.store.look_again()
        assert await f.store.answer(KEY, PRINCIPAL, "a.1", b"d", b"{}") is Answered.UNKNOWN


@async_test
async def test_a_question_is_there_again_if_only_its_event_was_lost() -> None:
    async with failover() as disaster:
        store = disaster.store
        fence, start = await opened(store)
        assert await store.ask(KEY, "a.1", "a")
        disaster.cut()
        await store.append(KEY, "a", fence, [(2, b"question")])
        await disaster.happen()
        await store.look_again()
        assert data_of(await read(store, start)) == [b"question"]
        await store.look_again()
        await store.append(KEY, "a", fence, [(3, b"next")])
        assert data_of(await read(store, start)) == [b"question", b"next"], "and once"


@async_test
async def test_an_ask_of_a_call_that_another_replica_has_ended_is_not_restored() -> None:
    async with failover() as disaster:
        store = disaster.store
        wakeups: list[object] = []
        store.wake = lambda *what: wakeups.append(what)
        await opened(store)
        assert await store.ask(KEY, "a.1", "a")
        other = RedisStore(disaster.link, namespace="failover", replica="other")
        assert await other.reap(Orphan(KEY, "a", 1, store.me), b"dead", tag=9)
        assert not wakeups
        await store.look_again()
        assert (WakeUp.ANSWER, KEY, "a.1") in wakeups
        assert await store.answer(KEY, PRINCIPAL, "a.1", b"d", b"{}") is Answered.UNKNOWN


@pytest.mark.parametrize("first", [0, 2])
@async_test
async def test_the_calls_that_the_store_lost_are_restored_in_each_order_of_their_writes(first: int) -> None:
    async with failover() as disaster:
        store = disaster.store
        disaster.cut()
        fences = [await begin(store, number, f"s{number}") for number in range(3)]
        await disaster.happen()
        await store.open_stream(KEY, f"s{first}", fences[first], 1)
        for number, fence in enumerate(fences):
            await store.settle(KEY, f"s{number}", fence, b"end", tag=5 + number)


@async_test
async def test_the_newest_append_is_restored_whole_even_if_it_is_large() -> None:
    async with failover() as disaster:
        store = disaster.store
        fence, _ = await opened(store)
        before = await store.append(KEY, "a", fence, [(2, b"small")])
        disaster.cut()
        await store.append(KEY, "a", fence, [(number, b"x" * 60_000) for number in range(3, 13)])
        await disaster.happen()
        await store.settle(KEY, "a", fence, b"last", tag=99)
        page = await read(store, before)
        assert (page.continuity, len(page.events), page.finished) == (Continuity.OK, 11, True)


@async_test
async def test_an_exchange_that_a_failover_brought_back_is_an_orphan_of_a_living_owner() -> None:
    async with failover() as disaster:
        store = disaster.store
        await store.renew(600)
        fence = await begin(store, 1, "a")
        disaster.cut()
        await store.settle(KEY, "a", fence, None)
        await disaster.happen()
        assert await store.orphans() == [], "not at once: its own claims may be on the way"
        store._clock.given = Ahead()
        [orphan] = await store.orphans()
        assert await store.reap(orphan, b"lost", tag=5)
        try:
            await store.append(KEY, "a", fence, [(6, b"late")])
        except Fenced:
            return
        raise AssertionError("the zombie wrote")


class Ahead:
    """A clock that is a minute further than Redis's."""

    def now(self) -> float:
        return time.time() + 60

    wall = now


@async_test
async def test_a_reader_whose_end_was_lost_is_reported_to_its_process() -> None:
    async with failover() as f:
        await f.store.renew(60)
        attached = await f.store.attach(KEY, PRINCIPAL, None, None)
        assert isinstance(attached, Attached)
        f.cut()
        stream = attached.record.standalone
        assert await f.store.detach(KEY, stream, attached.generation, None, broke=False) is False
        held: list[tuple[WakeUp, str, str]] = []
        f.store.wake = lambda kind, key, name: held.append((kind, key, name))
        await f.store.orphans()
        assert held == []
        await f.happen()
        await f.store.orphans()
        assert held == [(WakeUp.HELD, KEY, stream)]
