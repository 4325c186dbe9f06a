"""Another replica may run the calls of a dead one again, if their requests were kept for that."""

import asyncio

from holdfast.errors import Fenced
from holdfast.stores.base import Adopted, Answered, Orphan, WakeUp
from holdfast.testing.store.bench import KEY, PRINCIPAL, STRANGER, Bench, data_of, record, refused, tag_of
from holdfast.testing.store.fleet import DEAD, LEASE, Fleet, FleetContract, fleet_scenario

PAYLOAD = b'{"request":"again"}'


class AdoptionContract(FleetContract):
    """adopt, for stores that several processes share."""

    @fleet_scenario()
    async def test_only_what_was_kept_can_be_adopted(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await one.open()
        await one.begin(1, "plain")
        await one.begin(2, "kept", payload=PAYLOAD)
        orphans = await fleet.orphans_of_dead_replicas()
        assert {orphan.stream: orphan.runs for orphan in orphans} == {"plain": 0, "kept": 1}
        for orphan in orphans:
            adopted = await two.store.adopt(orphan, tag=9)
            assert (adopted is not None) is (orphan.stream == "kept")

    @fleet_scenario()
    async def test_of_many_who_adopt_one_does_with_all_it_needs(self, fleet: Fleet) -> None:
        one, two, three = fleet.benches
        await fleet.lease(0, 1, 2)
        await one.open()
        await one.begin("x", "a", digest=b"call", payload=PAYLOAD)
        [orphan] = await fleet.orphans_of_dead_replicas()
        await fleet.lease(2)
        tries = [two.store.adopt(orphan, tag=8), three.store.adopt(orphan, tag=9)]
        tried = await asyncio.gather(*tries)
        [adopted] = [found for found in tried if found is not None]
        assert adopted.record == record()
        claim = adopted.claim
        assert (claim.id, claim.stream, claim.digest, claim.payload) == ("x", "a", b"call", PAYLOAD)
        winner = fleet.benches[1 + tried.index(adopted)]
        assert await winner.store.orphans() == [], "it is a living one's now"

    @fleet_scenario()
    async def test_an_adoption_sent_again_is_the_same_adoption(self, fleet: Fleet) -> None:
        _, two, three, orphan = await _orphaned(fleet)
        adopted = await two.store.adopt(orphan, tag=9)
        assert adopted is not None
        assert await two.store.adopt(orphan, tag=9) == adopted
        assert await three.store.adopt(orphan, tag=9) is None
        await two.store.settle(KEY, "a", adopted.fence, b"last", tag=tag_of("a", 5))
        assert await two.store.adopt(orphan, tag=9) is None
        fleet.clock.advance(1000)
        assert [key for key, _ in await two.sweep()] == [KEY], "counted twice it would still be at work"

    @fleet_scenario()
    async def test_the_stream_continues_after_an_adoption_and_the_dead_replica_writes_no_more(
        self, fleet: Fleet
    ) -> None:
        one, two, three = fleet.benches
        await fleet.lease(0, 1)
        await one.open()
        fence = await one.streaming(1, "a", payload=PAYLOAD)
        last = await one.append("a", fence, 1, b"first run")
        reader = await three.attach("a")
        [orphan] = await fleet.orphans_of_dead_replicas()
        adopted = await _adopted(two, orphan)
        assert adopted.position == last
        for attempt in (
            one.append("a", fence, 2, b"late"),
            one.store.open_stream(KEY, "a", fence, 7),
            one.store.settle(KEY, "a", fence, b"late", tag=5),
        ):
            await refused(attempt, (Fenced,))
        await two.append("a", adopted.fence, 3, b"second run")
        await two.store.settle(KEY, "a", adopted.fence, b"last", tag=tag_of("a", 4))
        await fleet.heard(2, WakeUp.STREAM, KEY, "a")
        page = await three.read("a", reader.cursor)
        assert (data_of(page), page.finished) == ([b"first run", b"second run", b"last"], True)

    @fleet_scenario()
    async def test_a_call_without_a_stream_has_one_from_its_adoption_on(self, fleet: Fleet) -> None:
        _, two, three, orphan = await _orphaned(fleet)
        adopted = await _adopted(two, orphan)
        reader = await three.attach("a")
        assert reader.cursor == adopted.position
        await two.append("a", adopted.fence, 1, b"said")
        assert data_of(await three.read("a", reader.cursor)) == [b"said"]

    @fleet_scenario()
    async def test_what_was_adopted_is_an_orphan_again_when_the_adopter_dies(self, fleet: Fleet) -> None:
        _, two, three, orphan = await _orphaned(fleet)
        first = await _adopted(two, orphan)
        [again] = await fleet.orphans_of_dead_replicas(2)
        assert (again.stream, again.runs) == ("a", 2)
        assert again.owner != orphan.owner
        assert await three.store.adopt(orphan, tag=10) is None, "it is no longer that owner's"
        assert not await three.store.reap(orphan, DEAD, tag=11)
        second = await _adopted(three, again)
        assert second.fence > first.fence
        await refused(two.store.settle(KEY, "a", first.fence, b"late", tag=5), (Fenced,))
        await three.store.settle(KEY, "a", second.fence, b"last", tag=tag_of("a", 4))

    @fleet_scenario()
    async def test_what_was_adopted_is_not_reaped_for_its_first_owner(self, fleet: Fleet) -> None:
        _, two, three, orphan = await _orphaned(fleet)
        await _adopted(two, orphan)
        assert not await three.store.reap(orphan, DEAD, tag=9)

    @fleet_scenario()
    async def test_what_was_reaped_is_not_adopted(self, fleet: Fleet) -> None:
        _, two, three, orphan = await _orphaned(fleet)
        assert await two.store.reap(orphan, DEAD, tag=9)
        assert await three.store.adopt(orphan, tag=10) is None

    @fleet_scenario()
    async def test_a_repeat_of_an_adopted_call_does_not_run_and_finds_its_stream(self, fleet: Fleet) -> None:
        _, two, three, orphan = await _orphaned(fleet)
        adopted = await _adopted(two, orphan)
        repeat = await three.claim(1, "b", payload=PAYLOAD)
        assert getattr(repeat, "stream", None) == "a"
        await two.store.settle(KEY, "a", adopted.fence, b"last", tag=tag_of("a", 4), keep=True)
        reader = await three.attach("a")
        assert data_of(await three.read("a", reader.cursor)) == [b"last"]

    @fleet_scenario()
    async def test_a_cancellation_reaches_the_adopter(self, fleet: Fleet) -> None:
        _, two, three, orphan = await _orphaned(fleet)
        await _adopted(two, orphan)
        await three.store.cancel(KEY, PRINCIPAL, 1)
        await fleet.heard(1, WakeUp.CANCEL, KEY, "a")

    @fleet_scenario(asks=1)
    async def test_the_asks_of_a_dead_replica_are_forgotten_and_their_places_free(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await one.open()
        await one.begin(1, "a", payload=PAYLOAD)
        assert await one.store.ask(KEY, "a.old", "a")
        [orphan] = await fleet.orphans_of_dead_replicas()
        await _adopted(two, orphan)
        assert await two.store.answer(KEY, PRINCIPAL, "a.old", b"d", b"{}") is Answered.UNKNOWN
        assert await two.store.ask(KEY, "a.new", "a")
        assert await one.store.answer(KEY, PRINCIPAL, "a.new", b"d", b"{}") is Answered.FIRST
        await fleet.heard(1, WakeUp.ANSWER, KEY, "a.new")

    @fleet_scenario(rerun_bytes=2 * len(PAYLOAD))
    async def test_no_more_is_kept_than_a_session_may_and_ended_calls_make_room(self, fleet: Fleet) -> None:
        one, *_ = fleet.benches
        await fleet.lease(0, 1)
        await one.open()
        await one.begin("longer", "big", payload=b"x" * (2 * len(PAYLOAD) + 1))
        plain, streamed = [await one.streaming(n, f"s{n}", payload=PAYLOAD) for n in range(2)]
        await one.begin("full", "full", payload=PAYLOAD)
        await one.store.settle(KEY, "s0", plain, None)
        await one.store.settle(KEY, "s1", streamed, b"last", tag=tag_of("s1", 1))
        await one.begin("room", "room", payload=PAYLOAD)
        await one.begin("room too", "room too", payload=PAYLOAD)
        orphans = await fleet.orphans_of_dead_replicas()
        kept = {orphan.stream: orphan.runs for orphan in orphans}
        assert kept == {"big": 0, "full": 0, "room": 1, "room too": 1}

    @fleet_scenario(principal_kept_bytes=4 * len(PAYLOAD) - 1)
    async def test_no_more_is_kept_than_a_principal_may_in_all_its_sessions(self, fleet: Fleet) -> None:
        one, *_ = fleet.benches
        await fleet.lease(0, 1)
        fences = {}
        for session, principal in (("a", PRINCIPAL), ("b", PRINCIPAL), ("c", PRINCIPAL), ("d", STRANGER)):
            await one.open(session, principal)
            for call in ("0", "1"):
                fences[session, call] = await one.begin(
                    call, call, key=session, principal=principal, payload=PAYLOAD
                )
        await one.store.settle("a", "0", fences["a", "0"], None)
        await one.begin("2", "2", key="c", payload=PAYLOAD)
        orphans = await fleet.orphans_of_dead_replicas()
        kept = {orphan.session + orphan.stream for orphan in orphans if orphan.runs}
        assert kept == {"a1", "b0", "c2", "d0", "d1"}, "the rest ran too, and was not kept"
        assert len(orphans) == 8

    @fleet_scenario()
    async def test_a_session_with_adopted_work_lives(self, fleet: Fleet) -> None:
        _, two, _, orphan = await _orphaned(fleet)
        adopted = await _adopted(two, orphan)
        fleet.clock.advance(200)
        await fleet.lease(1)
        assert await two.sweep() == []
        await two.store.settle(KEY, "a", adopted.fence, b"last", tag=tag_of("a", 4))
        fleet.clock.advance(200)
        assert [key for key, _ in await two.sweep()] == [KEY]


async def _orphaned(fleet: Fleet) -> tuple[Bench, Bench, Bench, Orphan]:
    """Let the first replica die with a call that was kept."""
    one, two, three = fleet.benches
    await fleet.lease(0, 1)
    await one.open()
    await one.begin(1, "a", payload=PAYLOAD)
    [orphan] = await fleet.orphans_of_dead_replicas()
    await three.store.renew(LEASE)
    return one, two, three, orphan


async def _adopted(bench: Bench, orphan: Orphan) -> Adopted:
    adopted = await bench.store.adopt(orphan, tag=tag_of("a", 99))
    assert adopted is not None
    return adopted
