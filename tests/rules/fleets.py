"""The rules of sessions that several replicas serve."""

import asyncio

from limpet.core.lifecycle import SessionInput
from limpet.core.stream import Position
from limpet.errors import SessionGone
from limpet.stores.base import Answered, Claim, Claimed, Duplicate, Probed, Refusal, WakeUp
from limpet.testing.store.bench import (
    GRACE,
    IDLE,
    KEY,
    PRINCIPAL,
    Bench,
    Contract,
    data_of,
    record,
    refused,
    scenario,
    tag_of,
)
from limpet.testing.store.fleet import DEAD, LEASE, Fleet, fleet_scenario
from tests.rules.closing import ENDING


class ProbeRules(Contract):
    """probe and vouch."""

    @scenario()
    async def test_a_probe_returns_the_reader_and_whether_its_replica_vouched_for_it(
        self, bench: Bench
    ) -> None:
        await bench.open()
        assert await bench.store.probe(KEY, "a") is None
        fence = await bench.begin(1, "a")
        first = await bench.store.probe(KEY, "a")
        assert first == Probed(running=True, kept=False, reader=bench.store.replica, word=0)
        for alive in (True, False, False, True):
            before = await bench.store.probe(KEY, "a")
            await bench.store.vouch(KEY, "a", alive=alive)
            after = await bench.store.probe(KEY, "a")
            assert before is not None
            assert after is not None
            assert after.word != before.word
            assert bool(after.word % 2) is alive
        await bench.store.detach(KEY, "a", 0, None, broke=True)
        left = await bench.store.probe(KEY, "a")
        assert left is not None
        assert left.reader == ""
        await bench.store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 1), keep=True)
        ended = await bench.store.probe(KEY, "a")
        assert ended is not None
        assert (ended.running, ended.kept) == (False, True)
        await bench.store.vouch(KEY, "unknown", alive=True)
        assert await bench.store.probe("unknown", "a") is None
        assert not [wakeup for wakeup in bench.wakeups if wakeup[0] is WakeUp.PROBE], (
            "no other replica reads it"
        )


class FleetRules(Contract):
    """Wake-ups, orphans, closings and races over several replicas."""

    @fleet_scenario()
    async def test_a_session_is_served_by_any_replica(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await one.open()
        fence = await two.streaming(1, "a")
        duplicate = await one.claim(1, "b")
        assert isinstance(duplicate, Duplicate)
        assert duplicate.has_reader
        await two.append("a", fence, 1, b"one")
        assert data_of(await one.read("a", await one.start_of("a"))) == [b"one"]
        assert await one.store.add_state(KEY, "n", 2, op="1") == 2
        assert await two.store.add_state(KEY, "n", 3, op="2") == 5

    @fleet_scenario()
    async def test_an_event_written_here_wakes_its_reader_elsewhere(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await one.open()
        fence = await one.streaming(1, "a")
        reader = await two.attach("a")
        await one.append("a", fence, 1, b"one")
        await fleet.heard(1, WakeUp.STREAM, KEY, "a")
        assert data_of(await two.read("a", reader.cursor)) == [b"one"]

    @fleet_scenario()
    async def test_a_reader_elsewhere_learns_that_it_was_superseded(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        opened = await one.open()
        old = await one.attach()
        await two.attach()
        await fleet.heard(0, WakeUp.TAKEN, KEY, opened.standalone)
        assert not await one.store.detach(KEY, opened.standalone, old.generation, None, broke=True)

    @fleet_scenario()
    async def test_a_probe_wakes_the_readers_replica_and_sees_its_answer(self, fleet: Fleet) -> None:
        one, two, three = fleet.benches
        await one.open()
        await one.streaming(1, "a")
        first = await three.store.probe(KEY, "a")
        assert first is not None
        assert first.reader == one.store.replica
        await fleet.heard(0, WakeUp.PROBE, KEY, "a")
        await two.attach("a")
        moved = await three.store.probe(KEY, "a")
        assert moved is not None
        assert moved.reader == two.store.replica
        await fleet.heard(1, WakeUp.PROBE, KEY, "a")
        await two.store.vouch(KEY, "a", alive=True)
        vouched = await three.store.probe(KEY, "a")
        assert vouched is not None
        assert vouched.word % 2
        assert vouched.word != first.word

    @fleet_scenario()
    async def test_an_ask_of_an_exchange_that_others_have_ended_wakes_its_asker(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await one.open()
        await one.begin(1, "a")
        await one.store.ask(KEY, "a.1", "a")
        [orphan] = await fleet.orphans_of_dead_replicas()
        assert await two.store.reap(orphan, DEAD, tag=tag_of("a", 9))
        await fleet.heard(0, WakeUp.ANSWER, KEY, "a.1")
        assert await one.store.take_answer(KEY, "a.1") is None

    @fleet_scenario()
    async def test_answers_and_cancellations_wake_the_replica_that_runs_the_exchange(
        self, fleet: Fleet
    ) -> None:
        one, two, three = fleet.benches
        await one.open()
        await one.begin(1, "a")
        await one.store.ask(KEY, "a.1", "a")
        assert await two.store.answer(KEY, PRINCIPAL, "a.1", b"d", b"{}") is Answered.FIRST
        await fleet.heard(0, WakeUp.ANSWER, KEY, "a.1")
        await three.store.cancel(KEY, PRINCIPAL, 1)
        await fleet.heard(0, WakeUp.CANCEL, KEY, "a")

    @fleet_scenario()
    async def test_the_end_of_a_session_wakes_every_replica_that_has_something_of_it(
        self, fleet: Fleet
    ) -> None:
        one, two, three = fleet.benches
        await one.open()
        await one.begin(1, "a")
        await two.attach()
        assert await three.store.close(KEY, SessionInput.DELETED) is not None
        await fleet.heard(0, WakeUp.CLOSED, KEY, "")
        await fleet.heard(1, WakeUp.CLOSED, KEY, "")

    @fleet_scenario()
    async def test_a_closing_here_ends_what_runs_there_for_a_reader_at_a_third_replica(
        self, fleet: Fleet
    ) -> None:
        one, two, three = fleet.benches
        await one.open()
        fence = await one.streaming(1, "a")
        reader = await two.attach("a")
        assert await three.store.close(KEY, SessionInput.DELETED, ENDING) is not None
        await fleet.heard(1, WakeUp.STREAM, KEY, "a")
        await fleet.heard(0, WakeUp.CLOSED, KEY, "")
        page = await two.read("a", reader.cursor)
        assert (data_of(page), page.finished) == ([ENDING.message(1)], True)
        await refused(one.store.settle(KEY, "a", fence, b"late", tag=tag_of("a", 9)), (SessionGone,))

    @fleet_scenario()
    async def test_racing_replicas_claim_an_id_once(self, fleet: Fleet) -> None:
        await fleet.benches[0].open()
        claims = [bench.claim(1, f"s{n}-{m}") for n, bench in enumerate(fleet.benches) for m in range(20)]
        verdicts = await asyncio.gather(*claims)
        assert sum(isinstance(verdict, Claimed) for verdict in verdicts) == 1

    # The dead

    @fleet_scenario()
    async def test_what_a_dead_replica_ran_ends_once_with_one_terminal_message(self, fleet: Fleet) -> None:
        one, two, three = fleet.benches
        await fleet.lease(0, 1, 2)
        await two.open()
        fence = await one.streaming(7, "a")
        await one.append("a", fence, 1, b"one")
        plain = await one.begin("8", "b")
        orphans = await fleet.orphans_of_dead_replicas()
        assert sorted((orphan.stream, orphan.id) for orphan in orphans) == [("a", 7), ("b", "8")]
        for orphan in orphans:
            reaps = [
                bench.store.reap(orphan, DEAD, tag=tag_of(orphan.stream, number))
                for number, bench in enumerate([two, three] * 5, start=10)
            ]
            assert sorted(await asyncio.gather(*reaps)) == [False] * 9 + [True]
        page = await two.read("a", await two.start_of("a"))
        assert (data_of(page), page.finished) == ([b"one", DEAD], True)
        for attempt in (
            one.append("a", fence, 2, b"late"),
            one.store.settle(KEY, "a", fence, b"late", tag=5),
            one.store.settle(KEY, "b", plain, None),
        ):
            await refused(attempt)
        assert data_of(await two.read("a", await two.start_of("a"))) == [b"one", DEAD]

    @fleet_scenario()
    async def test_a_repeat_of_a_call_that_died_gets_its_error_and_does_not_run(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await one.open()
        await one.begin(1, "a", digest=b"call")
        [orphan] = await fleet.orphans_of_dead_replicas()
        assert await two.store.reap(orphan, DEAD, tag=9)
        repeat = await two.claim(1, "b", digest=b"call")
        assert isinstance(repeat, Duplicate)
        assert (repeat.stream, repeat.finished, repeat.has_reader) == ("a", True, False)
        await two.begin(1, "c", digest=b"another")

    @fleet_scenario()
    async def test_the_readers_of_a_dead_replica_are_gone_and_the_grace_begins(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await one.open()
        await one.attach()
        fleet.clock.advance(IDLE + GRACE)
        assert await two.sweep() == [], "a reader counts as life as long as its replica does"
        assert await fleet.orphans_of_dead_replicas() == []
        assert await two.sweep() == []
        fleet.clock.advance(GRACE)
        assert await two.sweep() == [(KEY, SessionInput.GRACE_OVER)]

    @fleet_scenario()
    async def test_a_reader_elsewhere_outlives_the_owner(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await one.open()
        await one.streaming(1, "a")
        reader = await two.attach("a")
        [orphan] = await fleet.orphans_of_dead_replicas()
        assert await two.store.reap(orphan, DEAD, tag=9)
        assert (WakeUp.STREAM, KEY, "a") in two.wakeups
        assert data_of(await two.read("a", reader.cursor)) == [DEAD]
        assert await two.store.detach(KEY, "a", reader.generation, None, broke=True)

    @fleet_scenario()
    async def test_a_replica_that_wakes_up_is_another_incarnation(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        first = await one.store.renew(LEASE)
        await one.open()
        await one.begin(1, "a")
        [orphan] = await fleet.orphans_of_dead_replicas()
        again = await one.store.renew(LEASE)
        assert again != first
        fence = await one.begin(2, "b")
        assert await two.store.reap(orphan, DEAD, tag=9)
        assert await two.store.orphans() == [], "its later claims are its own"
        await one.store.settle(KEY, "b", fence, None)

    @fleet_scenario()
    async def test_of_racing_sweepers_on_all_replicas_one_closes_each_session(self, fleet: Fleet) -> None:
        for number in range(30):
            await fleet.benches[0].open(f"s{number}")
        fleet.clock.advance(IDLE)
        swept = await asyncio.gather(*(bench.sweep() for bench in fleet.benches for _ in range(3)))
        assert sorted(key for sweep in swept for key, _ in sweep) == sorted(f"s{n}" for n in range(30))

    @fleet_scenario()
    async def test_a_session_closed_elsewhere_takes_nothing_more(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await one.open()
        fence = await one.streaming(1, "a")
        await two.store.close(KEY, SessionInput.DELETED)
        try:
            await one.append("a", fence, 1)
        except SessionGone:
            pass
        else:
            raise AssertionError("a closed session took a message")
        assert await one.store.claim(KEY, PRINCIPAL, Claim(1, "b", b"")) is Refusal.NO_SESSION
        assert await one.store.read(KEY, record().standalone, Position(0, 0), 9, 9) is None
