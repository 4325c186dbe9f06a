"""One session at several replicas: served by any of them, woken where something waits, and taken over from the dead."""

import asyncio

from limpet.core.lifecycle import SessionInput
from limpet.core.stream import Position
from limpet.errors import SessionGone
from limpet.stores.base import STANDALONE_FENCE, Answered, Claimed, Duplicate, Refusal, WakeUp
from limpet.testing.store.bench import GRACE, IDLE, KEY, PRINCIPAL, Contract, data_of, record, refused, tag_of
from limpet.testing.store.fleet import DEAD, LEASE, Fleet, fleet_scenario


class FleetContract(Contract):
    """The commands of a session, at three replicas."""

    @fleet_scenario()
    async def test_a_session_is_served_by_any_replica_and_wakes_where_something_waits(
        self, fleet: Fleet
    ) -> None:
        one, two, three = fleet.benches
        opened = await one.open()
        fence = await two.streaming(1, "a")
        assert isinstance(await one.claim(1, "b"), Duplicate)
        reader = await three.attach("a")
        await fleet.heard(1, WakeUp.TAKEN, KEY, "a")
        await two.append("a", fence, 1, b"one")
        await fleet.heard(2, WakeUp.STREAM, KEY, "a")
        assert data_of(await three.read("a", reader.cursor)) == [b"one"]
        probed = await one.store.probe(KEY, "a")
        assert probed is not None
        assert probed.reader == three.store.replica
        await fleet.heard(2, WakeUp.PROBE, KEY, "a")
        assert await two.store.ask(KEY, "a.1", "a")
        assert await one.store.answer(KEY, PRINCIPAL, "a.1", b"d", b"yes") is Answered.FIRST
        await fleet.heard(1, WakeUp.ANSWER, KEY, "a.1")
        assert await two.store.take_answer(KEY, "a.1") == b"yes"
        await three.store.cancel(KEY, PRINCIPAL, 1)
        await fleet.heard(1, WakeUp.CANCEL, KEY, "a")
        second = await one.begin(2, "b")
        assert not await one.store.turn(KEY, "b", second)
        await two.store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 2))
        await two.store.pass_turn(KEY, "a", fence)
        await fleet.heard(0, WakeUp.TURN, KEY, "b")
        assert await one.store.turn(KEY, "b", second)
        taken = await asyncio.gather(*(bench.store.take_home(KEY, "") for bench in (two, three)))
        assert len({record.home for record in taken if record is not None}) == 1, "one of them has it"
        assert await three.store.close(KEY, SessionInput.DELETED) is not None
        await fleet.heard(0, WakeUp.CLOSED, KEY, "")
        await fleet.heard(1, WakeUp.CLOSED, KEY, "")
        assert await two.claim(3, "c") is Refusal.NO_SESSION
        await refused(one.store.settle(KEY, "b", second, None), (SessionGone,))
        assert await one.store.read(KEY, opened.standalone, Position(0, 0), 9, 9) is None

    @fleet_scenario()
    async def test_racing_replicas_claim_an_id_once_and_lose_no_event(self, fleet: Fleet) -> None:
        opened = await fleet.benches[0].open()
        claims = [bench.claim(1, f"s{n}-{m}") for n, bench in enumerate(fleet.benches) for m in range(20)]
        verdicts = await asyncio.gather(*claims)
        assert sum(isinstance(verdict, Claimed) for verdict in verdicts) == 1
        pushes = [
            bench.store.append(KEY, "", STANDALONE_FENCE, [(100 * n + m + 1, b"%d" % (100 * n + m))])
            for n, bench in enumerate(fleet.benches)
            for m in range(10)
        ]
        positions = await asyncio.gather(*pushes)
        assert sorted(position.seq for position in positions) == list(range(1, 31))
        page = await fleet.benches[1].read(opened.standalone, Position(0, 0))
        assert [event.position for event in page.events] == sorted(positions)
        status = await fleet.benches[2].store.look(KEY)
        assert status is not None
        assert (status.running, status.readers) == (1, 1)

    @fleet_scenario()
    async def test_of_racing_sweepers_on_all_replicas_one_closes_each_session(self, fleet: Fleet) -> None:
        for number in range(30):
            await fleet.benches[0].open(f"s{number}")
        fleet.clock.advance(IDLE)
        closes = [bench.store.close(f"s{n}", SessionInput.DELETED) for n, bench in enumerate(fleet.benches)]
        swept = [bench.sweep() for bench in fleet.benches for _ in range(3)]
        closed, keys = await asyncio.gather(asyncio.gather(*closes), asyncio.gather(*swept))
        found = [one.record.key for one in closed if one is not None]
        assert sorted([*found, *(key for some in keys for key, _ in some)]) == sorted(
            f"s{n}" for n in range(30)
        )

    @fleet_scenario()
    async def test_what_a_dead_replica_ran_is_found_and_ends_once(self, fleet: Fleet) -> None:
        one, two, three = fleet.benches
        await fleet.lease(0, 1, 2)
        await two.open()
        fence = await one.streaming(7, "a")
        await one.append("a", fence, 1, b"one")
        plain, later = await one.begin("8", "b"), await two.begin(9, "c")
        orphans = await fleet.orphans_of_dead_replicas()
        assert sorted((orphan.stream, orphan.id) for orphan in orphans) == [("a", 7), ("b", "8")]
        assert not await two.store.turn(KEY, "c", later)
        for orphan in orphans:
            tags = [tag_of(orphan.stream, number) for number in range(10, 20)]
            reaps = [(two, three)[tag % 2].store.reap(orphan, DEAD, tag=tag) for tag in tags]
            assert sorted(await asyncio.gather(*reaps)) == [False] * 9 + [True]
        for attempt in (one.append("a", fence, 2, b"late"), one.store.settle(KEY, "b", plain, None)):
            await refused(attempt)
        page = await two.read("a", await two.start_of("a"))
        assert (data_of(page), page.finished) == ([b"one", DEAD], True)
        assert await two.store.turn(KEY, "c", later)

    @fleet_scenario()
    async def test_readers_and_turns_of_a_dead_replica_are_found_without_a_call(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await one.open()
        await one.open("turns")
        await one.attach()
        held, waits = await one.begin(1, "a", key="turns"), await two.begin(2, "b", key="turns")
        await one.store.hold_turn("turns", "a", held)
        await one.store.settle("turns", "a", held, None)
        fleet.clock.advance(IDLE + GRACE)
        assert await two.sweep() == [], "a reader counts as life as long as its replica does"
        assert not await two.store.turn("turns", "b", waits)
        assert await fleet.orphans_of_dead_replicas() == []
        assert await two.store.turn("turns", "b", waits)
        fleet.clock.advance(GRACE)
        assert [key for key, _ in await two.sweep()] == [record().key]
        assert LEASE < GRACE
