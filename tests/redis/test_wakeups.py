"""Lost wake-ups: every change is noticed nevertheless."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from limpet.core.lifecycle import SessionInput
from limpet.stores.base import Attached, Claim, Claimed, Orphan, WakeUp
from limpet.stores.redis.link import Single
from limpet.stores.redis.store import RedisStore
from limpet.testing.store.bench import KEY, PRINCIPAL, record
from tests.redis_server import RedisServer
from tests.support import BOUND, async_test, until


@asynccontextmanager
async def deaf_and_talking(
    server: RedisServer,
) -> AsyncIterator[tuple[RedisStore, RedisStore, asyncio.Queue[object]]]:
    """Two replicas, of which the first never receives a wake-up."""
    deaf, talking = (
        RedisStore(server.url, namespace="wakeups", replica=name) for name in ("deaf", "talking")
    )
    async with aclosing(talking):
        wakeups: asyncio.Queue[object] = asyncio.Queue()
        deaf.bind(lambda what, key, name: wakeups.put_nowait((what, key, name)))
        deaf._take = lambda data: None  # type: ignore[method-assign]  # noqa: ARG005
        async with aclosing(deaf):
            await deaf.heard()
            await deaf.open(record(), evict=False)
            yield deaf, talking, wakeups


async def woken(wakeups: asyncio.Queue[object], wanted: object) -> None:
    async with asyncio.timeout(BOUND):
        while await wakeups.get() != wanted:
            pass


@async_test
async def test_an_event_whose_wake_up_was_lost_is_noticed_within_a_second(server: RedisServer) -> None:
    async with deaf_and_talking(server) as (deaf, talking, wakeups):
        reader = await deaf.attach(KEY, PRINCIPAL, None, None)
        assert isinstance(reader, Attached)
        await talking.append(KEY, "", -1, [(1, b"{}")])
        await woken(wakeups, (WakeUp.STREAM, KEY, record().standalone))


@async_test
async def test_an_answer_and_a_cancellation_whose_wake_ups_were_lost_are_noticed(server: RedisServer) -> None:
    async with deaf_and_talking(server) as (deaf, talking, wakeups):
        claimed = await deaf.claim(KEY, PRINCIPAL, Claim(1, "a", b""))
        assert isinstance(claimed, Claimed)
        await deaf.ask(KEY, "a.1", "a")
        await talking.answer(KEY, PRINCIPAL, "a.1", b"d", b"{}")
        await woken(wakeups, (WakeUp.ANSWER, KEY, "a.1"))
        await talking.cancel(KEY, PRINCIPAL, 1)
        await woken(wakeups, (WakeUp.CANCEL, KEY, "a"))


@async_test
async def test_an_end_whose_wake_up_was_lost_is_noticed(server: RedisServer) -> None:
    async with deaf_and_talking(server) as (deaf, talking, wakeups):
        await deaf.attach(KEY, PRINCIPAL, None, None)
        await talking.close(KEY, SessionInput.DELETED)
        await woken(wakeups, (WakeUp.CLOSED, KEY, ""))


@async_test
async def test_a_takeover_with_a_lost_wake_up_is_noticed_once(server: RedisServer) -> None:
    async with deaf_and_talking(server) as (deaf, talking, wakeups):
        taken = (WakeUp.TAKEN, KEY, record().standalone)
        await deaf.attach(KEY, PRINCIPAL, None, None)
        await talking.attach(KEY, PRINCIPAL, None, None)
        await woken(wakeups, taken)
        await deaf.look_again()
        assert taken not in [wakeups.get_nowait() for _ in range(wakeups.qsize())]


@async_test
async def test_a_reader_that_came_back_is_not_sent_away(server: RedisServer) -> None:
    here, there = (RedisStore(server.url, namespace="back", replica=name) for name in ("here", "there"))
    async with aclosing(there):
        heard: asyncio.Queue[object] = asyncio.Queue()
        late: asyncio.Queue[bytes] = asyncio.Queue()
        here.bind(lambda what, key, name: heard.put_nowait((what, key, name)))
        take, here._take = here._take, lambda data: late.put_nowait(data)  # type: ignore[method-assign]  # noqa: PLW0108
        async with aclosing(here):
            await here.heard()
            await here.open(record(), evict=False)
            for store in (here, there, here):
                assert isinstance(await store.attach(KEY, PRINCIPAL, None, None), Attached)
            take(await late.get())
            await there.append(KEY, "", -1, [(1, b"{}")])
            take(await late.get())
            assert await heard.get() == (WakeUp.STREAM, KEY, record().standalone)
            await there.attach(KEY, PRINCIPAL, None, None)
            take(await late.get())
            await woken(heard, (WakeUp.TAKEN, KEY, record().standalone))


@async_test
async def test_what_has_not_changed_sends_no_wake_up(server: RedisServer) -> None:
    async with deaf_and_talking(server) as (deaf, _, wakeups):
        await deaf.attach(KEY, PRINCIPAL, None, None)
        claimed = await deaf.claim(KEY, PRINCIPAL, Claim(1, "a", b""))
        assert isinstance(claimed, Claimed)
        await deaf.ask(KEY, "a.1", "a")
        await deaf.look_again()
        heard = [wakeups.get_nowait() for _ in range(wakeups.qsize())]
        assert set(heard) <= {(WakeUp.NEWS, "", ""), (WakeUp.FORWARD, "", "")}


@async_test
async def test_a_cut_subscription_connection_is_opened_again(server: RedisServer) -> None:
    store, other = RedisStore(server.url, replica="one"), RedisStore(server.url, replica="two")
    async with aclosing(store), aclosing(other):
        wakeups: asyncio.Queue[object] = asyncio.Queue()
        store.bind(lambda what, key, name: wakeups.put_nowait((what, key, name)))
        await store.heard()
        assert server.tell("CLIENT", "KILL", "TYPE", "pubsub") == "1"
        await until(lambda: not store._listening.is_set())
        await store.heard()
        await other.open_task("t", PRINCIPAL, b"1", ttl=60)
        await other.set_task("t", PRINCIPAL, b"2", version=1, ttl=60)
        await woken(wakeups, (WakeUp.TASK, "t", ""))


@async_test
async def test_wake_ups_of_an_unknown_kind_are_ignored(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limpet.stores.shared.server.POLL_SECONDS", 1_000.0)
    store = RedisStore(server.url, namespace="wakeups")
    async with aclosing(store):
        wakeups: asyncio.Queue[WakeUp] = asyncio.Queue()
        store.bind(lambda what, key, name: wakeups.put_nowait(what))  # noqa: ARG005
        await store.heard()
        for later in ("later", "later k", "later k n r.1", "news a b c d e"):
            server.tell("PUBLISH", "lp:1:wakeups:bell", later)
        async with asyncio.timeout(BOUND):
            assert await wakeups.get() is WakeUp.NEWS
        assert store._listening.is_set()


@async_test
async def test_a_replica_that_is_too_far_behind_learns_that_it_missed_announcements(
    server: RedisServer,
) -> None:
    store = RedisStore(server.url, namespace="news")
    async with aclosing(store):
        await store.announce("first", b"")
        begin = (await store.announced("")).cursor
        for kept in (3, 0):
            for number in range(10):
                await store.announce(f"{kept}-{number}", b"")
            server.tell("XTRIM", f"{store.key('*')}:news", "MAXLEN", str(kept))
            await store.announce(f"{kept}-last", b"")
            news = await store.announced(begin)
            assert (len(news.events), news.missed) == (kept + 1, True)
            begin = news.cursor
            assert await store.announced(begin) == (begin, [], False), "and once"


@async_test
async def test_a_reader_of_an_exchange_that_another_replica_has_ended_reads_the_end(
    server: RedisServer,
) -> None:
    mine, other = (RedisStore(server.url, namespace="ended", replica=name) for name in ("mine", "other"))
    async with aclosing(mine), aclosing(other):
        await mine.open(record(), evict=False)
        claimed = await mine.claim(KEY, PRINCIPAL, Claim(1, "a", b""))
        assert isinstance(claimed, Claimed)
        start = await mine.open_stream(KEY, "a", claimed.fence, 1)
        await mine.append(KEY, "a", claimed.fence, [(2, b"one"), (3, b"two")])
        link = mine._link
        assert isinstance(link, Single)
        sent = link.pipeline.sent
        page = await mine.read(KEY, "a", start, 10, 1_000)
        assert page is not None
        assert [event.data for event in page.events] == [b"one", b"two"]
        assert link.pipeline.sent == sent, "it was written here, so Redis is not asked"
        assert await other.reap(Orphan(KEY, "a", 1, mine.me), b"end", tag=4)
        mine.woken(WakeUp.STREAM, KEY, "a")
        page = await mine.read(KEY, "a", page.events[-1].position, 10, 1_000)
        assert page is not None
        assert ([event.data for event in page.events], page.finished) == ([b"end"], True)
