"""Which replica may declare another one dead, and how leases survive outages, pauses and jumps of the clock."""

import asyncio

from limpet.errors import Fenced, StoreUnavailable
from limpet.stores.base import Orphan
from limpet.testing.store.bench import KEY, PRINCIPAL, Bench, Contract, refused
from limpet.testing.store.fleet import DEAD, LEASE, Fleet, fleet_scenario

OUTAGE = LEASE * 10


class LeaseContract(Contract):
    """renew and orphans, for stores that several processes share."""

    @fleet_scenario()
    async def test_the_living_have_no_orphans_and_one_that_left_in_order_has_them_at_once(
        self, fleet: Fleet
    ) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await one.open()
        await one.begin(1, "a")
        fleet.clock.advance(LEASE - 1)
        assert await two.store.orphans() == []
        leases = await two.store.replicas()
        assert {name: round(left) for name, left in leases.items()} == {
            bench.store.replica: 1 for bench in (one, two)
        }
        await one.store.release()
        assert one.store.replica not in await two.store.replicas()
        assert [orphan.stream for orphan in await two.store.orphans()] == ["a"]

    @fleet_scenario()
    async def test_an_outage_longer_than_the_lease_costs_no_call(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.advance(LEASE * 2, 0, 1)
        first = await one.store.renew(LEASE)
        await one.open()
        fence = await one.begin(1, "a")
        # No replica reaches the store; then the other one is back first.
        fleet.clock.advance(OUTAGE)
        assert await two.store.orphans() == []
        await fleet.lease(1)
        assert await two.store.orphans() == []
        await fleet.advance(LEASE / 2, 1)
        assert await two.store.orphans() == []
        assert await one.store.renew(LEASE) == first, "it takes back its own lease"
        await fleet.advance(LEASE * 2, 0, 1)
        assert await two.store.orphans() == []
        await one.store.settle(KEY, "a", fence, None)

    @fleet_scenario()
    async def test_what_is_really_dead_after_an_outage_is_found_one_lease_later(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.advance(LEASE * 2, 0, 1)
        await one.open()
        fence = await one.begin(1, "a")
        fleet.clock.advance(OUTAGE)
        await fleet.advance(LEASE - LEASE / 4, 1)
        assert await two.store.orphans() == []
        await fleet.advance(LEASE / 4, 1)
        [orphan] = await two.store.orphans()
        assert await two.store.reap(orphan, DEAD, tag=9)
        await refused(one.store.settle(KEY, "a", fence, b"late", tag=5))

    @fleet_scenario()
    async def test_a_clock_that_is_set_back_costs_no_call_and_hides_no_death(self, fleet: Fleet) -> None:
        one, two, three = fleet.benches
        await fleet.advance(OUTAGE, 0, 1, 2)
        await one.open()
        await one.begin(1, "dead before")
        await two.begin(2, "dead later")
        fleet.clock.set_back(OUTAGE / 2)
        assert await three.store.orphans() == []
        await fleet.lease(2)
        await fleet.advance(LEASE / 2, 2)
        assert await three.store.orphans() == [], "the others could not renew yet"
        await fleet.advance(LEASE / 2, 1, 2)
        assert [orphan.stream for orphan in await three.store.orphans()] == ["dead before"]
        await fleet.advance(LEASE * 1.25, 2)
        assert {orphan.stream for orphan in await three.store.orphans()} == {"dead before", "dead later"}

    @fleet_scenario()
    async def test_a_replica_that_was_paused_declares_no_other_dead_when_it_wakes(self, fleet: Fleet) -> None:
        one, two, three = fleet.benches
        await fleet.advance(LEASE * 2, 0, 1, 2)
        await one.open()
        await one.begin(1, "a")
        # The third one could not reach the store for less than its own lease; the first one did not renew meanwhile.
        fleet.clock.advance(LEASE * 0.9)
        await fleet.lease(2)
        fleet.clock.advance(LEASE * 0.2)
        for bench in (two, three):
            assert await bench.store.orphans() == []
        await fleet.lease(0)

    @fleet_scenario()
    async def test_a_replica_that_has_just_begun_declares_no_other_dead(self, fleet: Fleet) -> None:
        one, two, three = fleet.benches
        await fleet.lease(0)
        await one.open()
        await one.begin(1, "a")
        fleet.clock.advance(LEASE * 3)
        assert await three.store.orphans() == [], "nor one that never had a lease"
        await fleet.lease(1)
        assert await two.store.orphans() == []
        await fleet.advance(LEASE, 1)
        assert [orphan.stream for orphan in await two.store.orphans()] == ["a"]

    @fleet_scenario()
    async def test_who_was_declared_dead_comes_back_as_another_before_anything_is_reaped(
        self, fleet: Fleet
    ) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        first = await one.store.renew(LEASE)
        await one.open()
        old = await one.begin(1, "a")
        orphan = await _only(two, await fleet.orphans_of_dead_replicas())
        again = await one.store.renew(LEASE)
        assert again != first
        fence = await one.begin(2, "b")
        assert [left.stream for left in await two.store.orphans()] == ["a"], "its later claims are its own"
        assert await two.store.reap(orphan, DEAD, tag=9)
        await refused(one.store.settle(KEY, "a", old, b"late", tag=5), (Fenced,))
        await one.store.settle(KEY, "b", fence, None)

    @fleet_scenario()
    async def test_a_replica_declared_dead_begins_no_work_before_it_has_a_new_lease(
        self, fleet: Fleet
    ) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await two.open()
        assert await fleet.orphans_of_dead_replicas() == []
        await refused(one.claim(1, "a"), (StoreUnavailable,))
        await refused(one.store.attach(KEY, PRINCIPAL, None, None), (StoreUnavailable,))
        await one.store.renew(LEASE)
        await one.attach()
        await one.store.settle(KEY, "a", await one.begin(1, "a"), None)

    @fleet_scenario()
    async def test_a_replica_without_a_valid_lease_is_not_ready_until_it_has_one(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await one.store.prove()
        await fleet.lease(0, 1)
        await one.store.prove()
        fleet.clock.advance(LEASE * 1.25)
        # The lease has ended, and no replica has declared the owner dead.
        await refused(one.store.prove(), (StoreUnavailable,))
        first = await one.store.renew(LEASE)
        await one.store.prove()
        await fleet.advance(LEASE * 2, 1)
        await two.store.orphans()
        await refused(one.store.prove(), (StoreUnavailable,))
        await two.store.prove()
        assert await one.store.renew(LEASE) != first
        await one.store.prove()

    @fleet_scenario()
    async def test_of_a_renewal_and_a_declaration_at_once_one_decides(self, fleet: Fleet) -> None:
        one, two, three = fleet.benches
        await fleet.lease(0, 1, 2)
        await one.open()
        for number in range(10):
            first = await one.store.renew(LEASE)
            fence = await one.begin(number, f"s{number}")
            await fleet.advance(LEASE * 1.25, 1, 2)
            renewed, *found = await asyncio.gather(
                one.store.renew(LEASE), two.store.orphans(), three.store.orphans()
            )
            orphans = [orphan for some in found for orphan in some]
            if renewed == first:
                assert orphans == []
                await one.store.settle(KEY, f"s{number}", fence, None)
            else:
                assert {orphan.stream for orphan in orphans} <= {f"s{number}"}
                for orphan in await two.store.orphans():
                    assert await two.store.reap(orphan, DEAD, tag=100 + number)


async def _only(bench: Bench, orphans: list[Orphan]) -> Orphan:
    """Return the only orphan, found again by another call."""
    [orphan] = orphans
    assert await bench.store.orphans() == orphans
    return orphan
