"""Turns: the calls of a session one after another, in the order of their claims."""

from limpet.errors import Fenced, SessionGone, StreamClosed
from limpet.stores.base import WakeUp
from limpet.testing.store.bench import KEY, OTHER, Bench, Contract, refused, scenario
from limpet.testing.store.fleet import Fleet, fleet_scenario


class TurnRules(Contract):
    """turn, hold_turn and pass_turn."""

    @scenario()
    async def test_a_call_may_start_when_no_earlier_one_is_in_flight(self, bench: Bench) -> None:
        await bench.open()
        store = bench.store
        ping = await bench.begin("ping", "control", control=True)
        first, second = await bench.begin(1, "a"), await bench.begin(2, "b")
        assert await store.turn(KEY, "a", first)
        assert not await store.turn(KEY, "b", second)
        await store.settle(KEY, "a", first, None)
        assert await store.turn(KEY, "b", second)
        await store.settle(KEY, "control", ping, None)
        await bench.store.settle(KEY, "b", second, b"last", tag=5)
        assert await store.turn(KEY, "c", await bench.begin(3, "c"))

    @scenario()
    async def test_sessions_have_turns_of_their_own(self, bench: Bench) -> None:
        await bench.open()
        await bench.open(OTHER)
        first, second = await bench.begin(1, "a"), await bench.begin(1, "b", key=OTHER)
        assert await bench.store.turn(KEY, "a", first)
        assert await bench.store.turn(OTHER, "b", second)

    @scenario()
    async def test_a_turn_that_is_held_outlasts_its_call_until_it_is_passed_on(self, bench: Bench) -> None:
        await bench.open()
        store = bench.store
        first, second = await bench.begin(1, "a"), await bench.begin(2, "b")
        for _ in range(2):
            await store.hold_turn(KEY, "a", first)
        await store.settle(KEY, "a", first, None)
        third = await bench.begin(1, "c")
        assert not await store.turn(KEY, "b", second)
        await store.pass_turn(KEY, "a", first + 1)
        assert not await store.turn(KEY, "b", second), "another fence's turn is left alone"
        bench.wakeups.clear()
        for _ in range(2):
            await store.pass_turn(KEY, "a", first)
        assert set(bench.wakeups) == {(WakeUp.TURN, KEY, "b")}
        assert await store.turn(KEY, "b", second)
        assert not await store.turn(KEY, "c", third)

    @scenario()
    async def test_a_call_that_has_ended_has_no_turn_and_can_hold_none(self, bench: Bench) -> None:
        await bench.open()
        fence = await bench.begin(1, "a")
        await refused(bench.store.turn(KEY, "a", fence + 1))
        await bench.store.settle(KEY, "a", fence, b"last", tag=5)
        for attempt in (bench.store.turn(KEY, "a", fence), bench.store.hold_turn(KEY, "a", fence)):
            await refused(attempt)
        await bench.store.pass_turn("unknown", "a", fence)
        for attempt in (bench.store.turn("unknown", "a", 1), bench.store.hold_turn("unknown", "a", 1)):
            await refused(attempt, (SessionGone,))


class FleetTurnRules(Contract):
    """Turns where several replicas serve one session."""

    @fleet_scenario()
    async def test_a_turn_is_passed_on_to_the_replica_whose_call_is_next(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await one.open()
        first = await one.begin(1, "a")
        second = await two.begin(2, "b")
        assert not await two.store.turn(KEY, "b", second)
        await one.store.settle(KEY, "a", first, None)
        await one.store.pass_turn(KEY, "a", first)
        await fleet.heard(1, WakeUp.TURN, KEY, "b")
        assert await two.store.turn(KEY, "b", second)

    @fleet_scenario()
    async def test_the_turns_of_a_dead_replica_end_with_it(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await one.open()
        first = await one.begin(1, "a")
        second = await two.begin(2, "b")
        await one.store.hold_turn(KEY, "a", first)
        await one.store.settle(KEY, "a", first, None)
        assert not await two.store.turn(KEY, "b", second)
        assert await fleet.orphans_of_dead_replicas() == []
        assert await two.store.turn(KEY, "b", second)

    @fleet_scenario()
    async def test_a_dead_replicas_call_gives_its_turn_up_when_it_is_reaped(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await one.open()
        first = await one.begin(1, "a")
        second = await two.begin(2, "b")
        [orphan] = await fleet.orphans_of_dead_replicas()
        assert not await two.store.turn(KEY, "b", second)
        assert await two.store.reap(orphan, b"lost", tag=9)
        assert await two.store.turn(KEY, "b", second)
        await refused(one.store.hold_turn(KEY, "a", first), (Fenced, StreamClosed))
