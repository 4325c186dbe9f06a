"""Two stores on one file, as two processes have them: wake-ups, leases, and the work of a dead replica."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path
from typing import Final

import pytest

from limpet.core.lifecycle import SessionInput
from limpet.errors import Fenced
from limpet.stores.base import (
    UNREPORTED_SECONDS,
    Answered,
    Attached,
    Claim,
    Claimed,
    Duplicate,
    Forwarded,
    Orphan,
    WakeUp,
)
from limpet.stores.sqlite import SqliteStore, outbox
from limpet.stores.sqlite.worker import Worker
from limpet.testing import VirtualClock
from limpet.testing.store.bench import GRACE, KEY, PRINCIPAL, data_of, record
from tests.sqlite.support import store_path
from tests.support import async_test

LEASE: Final = 10.0
AddressedWakeUp = tuple[WakeUp, str, str]


class Pair:
    """A store where the work is, another where a client's next request lands, and their wake-ups."""

    def __init__(self, here: SqliteStore, there: SqliteStore, clock: VirtualClock, path: Path) -> None:
        self.here, self.there, self.clock, self.path = here, there, clock, path
        self.woken_here: asyncio.Queue[AddressedWakeUp] = asyncio.Queue()
        self.woken_there: asyncio.Queue[AddressedWakeUp] = asyncio.Queue()
        here.bind(lambda *wakeup: self.woken_here.put_nowait(wakeup))
        there.bind(lambda *wakeup: self.woken_there.put_nowait(wakeup))

    async def begin(self, stream: str = "a", request_id: int = 1) -> int:
        """Claim an exchange here, and start its stream."""
        claimed = await self.here.claim(KEY, PRINCIPAL, Claim(request_id, stream, b"body"))
        assert isinstance(claimed, Claimed)
        await self.here.open_stream(KEY, stream, claimed.fence, 1)
        return claimed.fence

    async def wakes_here(self, kind: WakeUp, name: str) -> None:
        """Wait for a wake-up of the session. One that was sent before may come again."""
        while await self.woken_here.get() != (kind, KEY, name):
            pass

    async def die(self) -> None:
        """Let the lease of here end."""
        for _ in range(3):
            self.clock.advance(LEASE / 2)
            await self.there.renew(LEASE)

    async def attach_there(self, stream: str | None = None) -> Attached:
        attached = await self.there.attach(KEY, PRINCIPAL, stream, None)
        assert isinstance(attached, Attached)
        return attached


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    clock = VirtualClock()
    with store_path() as path:
        here, there = (SqliteStore(path, clock=clock, replica=name) for name in ("here", "there"))
        async with aclosing(here), aclosing(there):
            for store in (here, there):
                await store.renew(LEASE)
            await here.open(record(), evict=False)
            yield Pair(here, there, clock, path)


@async_test
async def test_an_answer_a_cancellation_and_a_closing_wake_the_process_that_works() -> None:
    async with pair() as both:
        await both.begin()
        await both.here.ask(KEY, "a.1", "a")
        assert await both.there.answer(KEY, PRINCIPAL, "a.1", b"d", b"yes") is Answered.FIRST
        await both.wakes_here(WakeUp.ANSWER, "a.1")
        assert await both.here.take_answer(KEY, "a.1") == b"yes"
        await both.there.cancel(KEY, PRINCIPAL, 1)
        await both.wakes_here(WakeUp.CANCEL, "a")
        await both.there.close(KEY, SessionInput.DELETED)
        await both.wakes_here(WakeUp.CLOSED, "")


@async_test
async def test_a_stream_wakes_its_reader_and_the_former_reader_learns_that_it_was_superseded() -> None:
    async with pair() as both:
        fence = await both.begin()
        attached = await both.attach_there("a")
        assert await both.woken_here.get() == (WakeUp.TAKEN, KEY, "a")
        await both.here.append(KEY, "a", fence, [(2, b"one")])
        assert await both.woken_there.get() == (WakeUp.STREAM, KEY, "a")
        page = await both.there.read(KEY, "a", attached.cursor, 9, 999)
        assert page is not None
        assert data_of(page) == [b"one"]


@async_test
async def test_a_reader_that_came_back_is_not_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with store_path() as path:
        here, there = SqliteStore(path, replica="here"), SqliteStore(path, replica="there")
        async with aclosing(here), aclosing(there):
            heard: asyncio.Queue[AddressedWakeUp] = asyncio.Queue()
            here.bind(lambda *wakeup: heard.put_nowait(wakeup))
            await here.open(record(), evict=False)
            with monkeypatch.context() as patch:
                # It does not listen meanwhile, like a process that was paused.
                patch.setattr(Worker, "_listen", lambda worker: None)  # noqa: ARG005
                for store in (here, there, here):
                    assert isinstance(await store.attach(KEY, PRINCIPAL, None, None), Attached)
            await there.announce("news", b"")
            await here.sessions()
            assert await heard.get() == (WakeUp.NEWS, "", "")


@async_test
async def test_announcements_reach_all_replicas_once_and_in_order() -> None:
    async with pair() as both:
        begin = (await both.there.announced("")).cursor
        for name in ("1", "2", "2"):
            await both.here.announce(name, name.encode())
        assert await both.woken_there.get() == (WakeUp.NEWS, "", "")
        cursor, events, missed = await both.there.announced(begin)
        assert (events, missed) == ([b"1", b"2"], False)
        assert (await both.there.announced(cursor)).events == []
        assert (await both.here.announced(begin)).events == [b"1", b"2"]


@async_test
async def test_a_replica_that_is_too_far_behind_learns_that_it_missed_announcements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with pair() as both:
        begin = (await both.there.announced("")).cursor
        for kept in (3, 0):
            monkeypatch.setattr(outbox, "_NEWS", kept)
            for number in range(10):
                await both.here.announce(f"{kept}-{number}", b"")
            await both.here.sweep()
            news = await both.there.announced(begin)
            assert (len(news.events), news.missed) == (kept, True)
            begin = news.cursor
            assert await both.there.announced(begin) == (begin, [], False), "and once"


@async_test
async def test_a_request_waits_in_the_inbox_of_a_living_replica_until_it_is_taken() -> None:
    async with pair() as both:
        for _ in range(2):
            assert await both.there.forward("here", "r1", b"payload", seconds=5.0)
        assert await both.woken_here.get() == (WakeUp.FORWARD, "", "")
        assert await both.here.inbox() == [Forwarded("r1", b"payload")]
        assert await both.there.inbox() == []
        await both.here.remove_forwarded("r1")
        assert await both.here.inbox() == []
        await both.there.forward("here", "r2", b"payload", seconds=5.0)
        both.clock.advance(5)
        assert await both.here.inbox() == []
        assert not await both.there.forward("unknown", "r3", b"payload", seconds=5.0)
        await both.die()
        assert not await both.there.forward("here", "r4", b"payload", seconds=5.0)


@async_test
async def test_all_replicas_share_the_first_secret() -> None:
    async with pair() as both:
        offers = [
            store.secret("key", name, seconds=60) for store, name in ((both.here, b"1"), (both.there, b"2"))
        ]
        first, second = await asyncio.gather(*offers)
        assert first == second
        assert first in {b"1", b"2"}


@async_test
async def test_a_lease_is_one_incarnation_for_as_long_as_it_is_renewed() -> None:
    async with pair() as both:
        first = await both.here.renew(LEASE)
        both.clock.advance(LEASE - 1)
        assert await both.here.renew(LEASE) == first
        assert sorted(await both.there.replicas()) == ["here", "there"]
        both.clock.advance(LEASE)
        assert await both.there.replicas() == {}
        assert await both.here.renew(LEASE) == first, "no replica has declared it dead"
        await both.there.renew(LEASE)
        await both.die()
        assert await both.there.orphans() == []
        again = await both.here.renew(LEASE)
        assert again > first


@async_test
async def test_a_twin_renews_the_same_incarnation() -> None:
    async with pair() as both:
        twin = both.here.twin()
        assert await twin.renew(LEASE) == await both.here.renew(LEASE)
        both.clock.advance(LEASE + 1)
        renewed = await twin.renew(LEASE)
        assert await both.here.renew(LEASE) == renewed
        await twin.aclose()
        assert await both.here.sessions() == [KEY]


@async_test
async def test_the_work_of_dead_replicas_is_ended_once_and_they_are_fenced() -> None:
    async with pair() as both:
        fence = await both.begin()
        assert await both.there.orphans() == []
        await both.die()
        [orphan] = await both.there.orphans()
        assert (orphan.session, orphan.stream, orphan.id) == (KEY, "a", 1)
        tries = [both.there.reap(orphan, b"unknown", tag=9 + number) for number in range(5)]
        assert sorted(await asyncio.gather(*tries)) == [False] * 4 + [True]
        with pytest.raises(Fenced):
            await both.here.append(KEY, "a", fence, [(3, b"late")])
        with pytest.raises(Fenced):
            await both.here.settle(KEY, "a", fence, b"late", tag=4)
        repeat = await both.there.claim(KEY, PRINCIPAL, Claim(1, "b", b"body"))
        assert isinstance(repeat, Duplicate)
        assert (repeat.stream, repeat.finished, repeat.has_reader) == ("a", True, False)
        page = await both.there.read(KEY, "a", (await both.attach_there("a")).cursor, 9, 999)
        assert page is not None
        assert (data_of(page), page.finished) == ([b"unknown"], True)
        assert await both.there.orphans() == []


@async_test
async def test_nothing_of_a_dead_replica_stays_when_its_work_is_ended() -> None:
    async with pair() as both:
        await both.begin()
        await both.die()
        [orphan] = await both.there.orphans()
        assert await both.there.reap(orphan, b"unknown", tag=7)
        for _ in range(2):
            assert await both.there.orphans() == []
        with closing(sqlite3.connect(both.path)) as connection:
            assert connection.execute("SELECT replica FROM lease").fetchall() == [("there",)]
            assert connection.execute("SELECT name FROM field WHERE name GLOB 'o:*'").fetchall() == []


@async_test
async def test_exchanges_of_living_replicas_and_settled_exchanges_are_not_reaped() -> None:
    async with pair() as both:
        fence = await both.begin()
        both.clock.advance(LEASE - 1)
        assert await both.there.orphans() == []
        await both.here.settle(KEY, "a", fence, b"last", tag=5)
        incarnation = await both.here.renew(LEASE)
        done = Orphan(KEY, "a", 1, f"here.{incarnation}")
        assert not await both.there.reap(done, b"unknown", tag=9)


@async_test
async def test_sessions_of_dead_replicas_are_detached_and_their_grace_begins() -> None:
    async with pair() as both:
        attached = await both.here.attach(KEY, PRINCIPAL, None, None)
        assert isinstance(attached, Attached)
        await both.die()
        assert await both.there.orphans() == []
        both.clock.advance(GRACE - 1)
        assert await both.there.sweep() == []
        both.clock.advance(1)
        assert [closed.reason for closed in await both.there.sweep()] == [SessionInput.GRACE_OVER]


@async_test
async def test_readers_of_the_living_keep_their_sessions() -> None:
    async with pair() as both:
        await both.here.attach(KEY, PRINCIPAL, None, None)
        await both.begin()
        await both.attach_there("a")
        await both.die()
        [orphan] = await both.there.orphans()
        assert await both.there.reap(orphan, b"unknown", tag=9)
        both.clock.advance(GRACE * 3)
        assert await both.there.sweep() == []


@async_test
async def test_a_replica_that_stops_in_order_leaves_only_the_exchanges_it_still_owns() -> None:
    async with pair() as both:
        await both.there.release()
        assert list(await both.here.replicas()) == ["here"]
        await both.begin()
        await both.here.release()
        await both.there.renew(LEASE)
        assert [orphan.stream for orphan in await both.there.orphans()] == ["a"]


@async_test
async def test_a_closing_is_returned_again_until_it_is_reported() -> None:
    async with pair() as both:
        closed = await both.here.close(KEY, SessionInput.DELETED)
        assert closed is not None
        assert await both.there.unreported_closings() == []
        both.clock.advance(UNREPORTED_SECONDS)
        assert await both.there.unreported_closings() == [closed]
        assert await both.here.unreported_closings() == [], "it was handed to a replica a moment ago"
        both.clock.advance(UNREPORTED_SECONDS)
        assert await both.here.unreported_closings() == [closed]
        await both.here.closing_reported(closed)
        both.clock.advance(UNREPORTED_SECONDS)
        assert await both.there.unreported_closings() == []


@async_test
async def test_every_closing_has_a_name_of_its_own() -> None:
    async with pair() as both:
        names = set()
        for _ in range(3):
            closed = await both.here.close(KEY, SessionInput.DELETED)
            assert closed is not None
            names.add(closed.event)
            await both.here.closing_reported(closed)
            await both.here.open(record(), evict=False)
        assert len(names) == 3
