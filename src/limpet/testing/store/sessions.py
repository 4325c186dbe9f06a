"""Whole sessions through the commands of a store.

The rules have tests of their own; these show that the store applies and keeps them.
"""

import asyncio

from limpet.core.lifecycle import SessionInput, SessionState
from limpet.core.stream import Continuity, Position
from limpet.errors import SessionGone
from limpet.stores.base import LINGER_SHARE, STANDALONE_FENCE, Duplicate, Ending, Refusal, Totals, WakeUp
from limpet.testing.store.bench import (
    GRACE,
    IDLE,
    KEY,
    LIFETIME,
    OTHER,
    PRINCIPAL,
    STRANGER,
    Bench,
    Contract,
    data_of,
    reasons,
    record,
    refused,
    scenario,
    tag_of,
)

ENDING = Ending(b'{"id":', b',"error":{}}', tag=tag_of("ending", 7))


async def finished(bench: Bench, number: int, data: bytes, *, keep: bool = False) -> str:
    """Run a call whose client never came back for its answer; return its stream."""
    stream = f"s{number}"
    fence = await bench.streaming(f"id{number}", stream)
    await bench.store.detach(KEY, stream, 0, None, broke=False)
    await bench.store.settle(KEY, stream, fence, data, tag=tag_of(stream, 1), keep=keep)
    return stream


class SessionContract(Contract):
    """All commands of a session, at one replica."""

    @scenario(stream_events=4)
    async def test_a_stream_is_written_read_resumed_and_kept_for_a_repeat(self, bench: Bench) -> None:
        store = bench.store
        await bench.open()
        fence = await bench.streaming(1, "a")
        positions = [await bench.start_of("a")]
        positions += [await bench.append("a", fence, n, b"%d" % n) for n in range(1, 7)]
        assert await bench.append("a", fence, 6, b"6") == positions[6], "sent again it is there once"
        assert bench.wakeups.count((WakeUp.STREAM, KEY, "a")) >= 6
        page = await bench.read("a", positions[1])
        assert (page.continuity, page.missed, data_of(page)) == (
            Continuity.GAP,
            (3, 3),
            [b"3", b"4", b"5", b"6"],
        )
        assert [event.position for event in page.events] == positions[3:]
        assert (await bench.read("a", positions[2])).continuity is Continuity.OK
        forged = Position(positions[5].seq, positions[5].tag ^ 1)
        assert (await bench.read("a", forged)).continuity is Continuity.FORK
        assert await store.attach(KEY, PRINCIPAL, "a", forged) is Refusal.UNRESUMABLE
        reader = await bench.attach("a", positions[4])
        await store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 7), keep=True)
        page = await bench.read("a", positions[5])
        assert (data_of(page), page.finished) == ([b"6", b"last"], True)
        await store.detach(KEY, "a", reader.generation, positions[6], broke=True)
        again = await bench.claim(1, "b")
        assert again == Duplicate("a", same=True, finished=True, has_reader=False)
        whole = await bench.attach("a", positions[6])
        assert whole.returned
        await store.detach(KEY, "a", whole.generation, page.events[-1].position, broke=False)
        await bench.begin(1, "c")
        await refused(bench.append("a", fence, 9))

    @scenario()
    async def test_many_commands_of_one_session_at_once_are_all_done(self, bench: Bench) -> None:
        opened = await bench.open()

        async def call(number: int) -> None:
            stream = f"s{number}"
            fence = await bench.streaming(number, stream)
            await bench.append(stream, fence, 1, b"%d" % number)
            await bench.store.append(KEY, "", STANDALONE_FENCE, [(number + 1, b"%d" % number)])
            await bench.store.settle(KEY, stream, fence, b"end", tag=tag_of(stream, 2))
            assert data_of(await bench.read(stream, (await bench.attach(stream)).cursor)) == [
                b"%d" % number,
                b"end",
            ]

        await asyncio.gather(*(call(number) for number in range(12)))
        page = await bench.read(opened.standalone, Position(0, 0))
        assert sorted(int(data) for data in data_of(page)) == list(range(12))
        status = await bench.store.look(KEY)
        assert status is not None
        assert (status.running, status.readers) == (0, 12)

    @scenario()
    async def test_sessions_end_in_their_time_and_are_found_when_they_are_due(self, bench: Bench) -> None:
        store = bench.store
        for key in ("idle", "works", "reads", "broke"):
            await bench.open(key)
        fence = await bench.begin(1, "a", key="works")
        await bench.attach(key="reads")
        reader = await bench.attach(key="broke")
        assert await store.detach("broke", "broke-standalone", reader.generation, None, broke=True)
        assert await store.totals() == Totals(4, 1, 0)
        bench.clock.advance(GRACE - 1)
        assert await bench.sweep() == []
        bench.clock.advance(1)
        assert await bench.sweep() == [("broke", SessionInput.GRACE_OVER)]
        bench.clock.advance(IDLE - GRACE)
        assert await bench.sweep() == [("idle", SessionInput.IDLE)]
        bench.clock.advance(LIFETIME - IDLE)
        assert await bench.sweep() == [("reads", SessionInput.EXPIRED)]
        await store.settle("works", "a", fence, None)
        bench.clock.advance(1)
        assert await bench.sweep() == [("works", SessionInput.EXPIRED)]
        assert (await bench.sweep(), await store.sessions()) == ([], [])

    @scenario(sessions=4, sessions_per_principal=2)
    async def test_places_are_limited_and_the_longest_idle_session_of_a_principal_goes(
        self, bench: Bench
    ) -> None:
        store = bench.store
        for key in ("1", "2"):
            assert await store.open(record(key), evict=True) == []
            bench.clock.advance(1)
        await store.find("1", PRINCIPAL)
        assert reasons(await store.open(record("3"), evict=True)) == [("2", SessionInput.EVICTED)]
        await bench.begin(1, "a", key="1")
        await bench.attach(key="3")
        assert await store.open(record("4"), evict=True) is Refusal.FULL, "with work or a reader it stays"
        await bench.open("foreign", STRANGER)
        await bench.open("last", "")
        assert await store.open(record("5", STRANGER), evict=False) is Refusal.FULL
        assert sorted(await store.sessions()) == ["1", "3", "foreign", "last"]
        assert (sorted(await store.sessions(PRINCIPAL)), await store.sessions("")) == (["1", "3"], ["last"])
        assert await store.close("last", SessionInput.DELETED) is not None
        assert await store.close("last", SessionInput.DELETED) is None
        await bench.open("5", STRANGER)
        pages = [await store.sessions_after(after, limit=2) for after in ("", "3", "foreign")]
        assert [[one.record.key for one in page.sessions] for page in pages] == [
            ["1", "3"],
            ["5", "foreign"],
            [],
        ]
        assert [page.after for page in pages] == ["3", "foreign", ""]

    @scenario(streams_bytes=1000, session_bytes=900, stream_bytes=800)
    async def test_logs_have_a_budget_and_the_oldest_complete_stream_goes_first(self, bench: Bench) -> None:
        await bench.open()
        await bench.open(OTHER)
        held = await finished(bench, 0, b"x" * 50)
        reader = await bench.attach(held)
        old, new = await finished(bench, 1, b"x" * 300), await finished(bench, 2, b"x" * 300)
        for number in range(1, 7):
            await bench.store.append(OTHER, "", STANDALONE_FENCE, [(number, b"y" * 100)])
        assert await bench.store.attach(KEY, PRINCIPAL, old, None) is Refusal.UNRESUMABLE
        assert data_of(await bench.read(new, (await bench.attach(new)).cursor)) == [b"x" * 300]
        assert data_of(await bench.read(held, reader.cursor)) == [b"x" * 50], "it has a reader"
        assert len((await bench.read(f"{OTHER}-standalone", Position(0, 0), OTHER)).events) == 6
        for number in range(7, 30):
            await bench.store.append(OTHER, "", STANDALONE_FENCE, [(number, b"y" * 100)])
        assert len((await bench.read(f"{OTHER}-standalone", Position(0, 0), OTHER)).events) <= 7

    @scenario(streams_bytes=1_000 * LINGER_SHARE)
    async def test_a_closing_ends_streams_that_can_be_read_for_a_while(self, bench: Bench) -> None:
        store, starts = bench.store, {}
        for number in range(4):
            key = f"s{number}"
            await bench.open(key)
            fence = await bench.streaming(number, "a", key=key)
            starts[key] = await store.append(key, "a", fence, [(tag_of(key, 1), b"x" * 400)])
            assert await store.close(key, SessionInput.DELETED, ENDING) is not None
            assert (WakeUp.STREAM, key, "a") in bench.wakeups
            await refused(store.append(key, "a", fence, [(9, b"late")]), SessionGone)
        left = [await store.read(key, "a", start, 10, 1_000) for key, start in starts.items()]
        assert [page is not None for page in left] == [False, False, True, True], "the oldest go"
        assert left[3] is not None
        assert (data_of(left[3]), left[3].finished) == ([ENDING.message(3)], True)
        assert await bench.claim(1, "b", key="s3") is Refusal.NO_SESSION
        assert bench.wakeups.count((WakeUp.CLOSED, "s3", "")) == 1

    @scenario(subscriptions=2)
    async def test_a_session_keeps_its_record_its_subscriptions_and_its_state_of_life(
        self, bench: Bench
    ) -> None:
        store = bench.store
        opened = await bench.open()
        assert await store.open(record(), evict=True) == [], "sent again"
        await store.change(KEY, level="debug")
        await store.change(KEY, initialized=True)
        found = await store.find(KEY, PRINCIPAL)
        assert found is not None
        assert found.record == record(level="debug", initialized=True)
        assert [await store.subscribe(KEY, uri) for uri in ("u:1", "u:1", "u:ö", "u:3")] == [True] * 3 + [
            False
        ]
        await store.unsubscribe(KEY, "u:1")
        assert (await store.subscribers("u:1"), await store.subscribers("u:ö")) == ([], [KEY])
        await store.append(KEY, "", STANDALONE_FENCE, [(1, b"12345678")])
        reader = await bench.attach()
        assert await store.detach(KEY, opened.standalone, reader.generation, None, broke=True)
        status = await store.look(KEY)
        assert status is not None
        assert (status.state, status.log_bytes, status.readers) == (SessionState.DETACHED, 8, 0)
        assert status.closes_in is not None
        assert round(status.closes_in) == GRACE
        for key, principal in ((KEY, STRANGER), ("unknown", PRINCIPAL)):
            assert await bench.claim(2, "b", key=key, principal=principal) is Refusal.NO_SESSION
            assert await store.attach(key, principal, None, None) is Refusal.NO_SESSION
            assert await store.find(key, principal) is None
        assert await store.close(KEY, SessionInput.DELETED) is not None
        assert (await store.subscribers("u:ö"), await store.look(KEY)) == ([], None)
        assert await store.totals() == Totals(0, 0, 0)

    @scenario()
    async def test_a_closed_store_is_open_again_once_it_is_bound(self, bench: Bench) -> None:
        for _ in range(2):
            await bench.open()
            await bench.begin(1, "a")
            await bench.store.cancel(KEY, PRINCIPAL, 1)
            assert bench.wakeups.count((WakeUp.CANCEL, KEY, "a")) == 1
            await bench.store.close(KEY, SessionInput.DELETED)
            await bench.store.aclose()
            bench.bind()
