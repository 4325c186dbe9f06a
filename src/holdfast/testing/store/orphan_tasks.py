"""Tasks whose owner has died: found by the living, ended by one of them, and never taken from an owner that lives."""

import asyncio

from holdfast.errors import StoreUnavailable
from holdfast.stores.base import Cell, OrphanTask
from holdfast.testing.store.bench import PRINCIPAL, STRANGER, Bench
from holdfast.testing.store.fleet import LEASE, Fleet, FleetContract, fleet_scenario
from holdfast.testing.store.tasks import TASK, begin, change

ENDED = b"outcome unknown"


async def ended(bench: Bench, orphan: OrphanTask) -> int:
    """Try to end a task in its owner's place."""
    return await bench.store.set_task(
        orphan.key, orphan.principal, ENDED, version=orphan.cell.version, ttl=60, ends=True
    )


class OrphanTaskContract(FleetContract):
    """orphan_tasks, for stores that several processes share."""

    @fleet_scenario()
    async def test_a_dead_owners_task_is_found_and_ended_once(self, fleet: Fleet) -> None:
        one, two, three = fleet.benches
        await fleet.advance(LEASE * 2, 0, 1, 2)
        owner = f"{one.store.replica}.{await one.store.renew(LEASE)}"
        await begin(one)
        assert await two.store.orphan_tasks() == [], "its owner lives"
        await fleet.advance(LEASE * 1.25, 1, 2)
        assert await two.store.orphan_tasks() == [], "no replica has declared its owner dead"
        await two.store.orphans()
        [orphan] = await two.store.orphan_tasks()
        assert orphan == (TASK, PRINCIPAL, owner, Cell(b"begun", 1))
        assert await three.store.orphan_tasks() == [orphan]
        results = await asyncio.gather(
            two.store.set_task(TASK, PRINCIPAL, b"by two", version=1, ttl=60, ends=True),
            three.store.set_task(TASK, PRINCIPAL, b"by three", version=1, ttl=60, ends=True),
        )
        assert sorted(results) == [-1, 2]
        assert await change(one, b"late", 1, ends=True) == -1, "the owner wakes up, and has lost"
        for bench in (two, three):
            assert await bench.store.orphan_tasks() == []

    @fleet_scenario()
    async def test_a_task_whose_owner_is_buried_is_still_found(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.advance(LEASE * 2, 0, 1)
        await begin(one)
        await begin(one, "theirs", b"2", STRANGER)
        await fleet.advance(LEASE * 1.25, 1)
        for _ in range(3):
            assert await two.store.orphans() == []
        found = sorted(await two.store.orphan_tasks())
        assert [(task.key, task.principal) for task in found] == [(TASK, PRINCIPAL), ("theirs", STRANGER)]

    @fleet_scenario()
    async def test_a_replica_that_gave_its_lease_back_leaves_its_tasks_at_once(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await begin(one)
        await one.store.release()
        assert [task.key for task in await two.store.orphan_tasks()] == [TASK]

    @fleet_scenario()
    async def test_a_change_after_the_look_keeps_a_task_from_being_ended_by_it(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await begin(one)
        await one.store.release()
        [orphan] = await two.store.orphan_tasks()
        assert await change(one, b"step", 1) == 2
        assert await ended(two, orphan) == -1
        [orphan] = await two.store.orphan_tasks()
        assert orphan.cell == Cell(b"step", 2)
        assert await ended(two, orphan) == 3
        assert await two.store.orphan_tasks() == []

    @fleet_scenario()
    async def test_a_task_that_has_ended_or_expired_has_no_owner(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await begin(one)
        await begin(one, "expires")
        assert await change(two, b"answer", 1) == 2, "others may change it, and its owner stays"
        assert await change(one, b"done", 2, ends=True) == 3
        await one.store.release()
        assert [task.key for task in await two.store.orphan_tasks()] == ["expires"]
        fleet.clock.advance(60)
        assert await two.store.orphan_tasks() == []

    @fleet_scenario()
    async def test_a_task_that_its_owner_does_not_run_is_found_by_its_owner_alone(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await begin(one)
        await begin(one, "runs")
        assert await one.store.orphan_tasks({TASK, "runs"}) == []
        assert await two.store.orphan_tasks(()) == []
        [orphan] = await one.store.orphan_tasks({"runs"})
        assert (orphan.key, orphan.principal, orphan.cell) == (TASK, PRINCIPAL, Cell(b"begun", 1))
        assert await ended(one, orphan) == 2
        assert await one.store.orphan_tasks({"runs"}) == []

    @fleet_scenario()
    async def test_an_outage_longer_than_the_lease_costs_no_task(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.advance(LEASE * 2, 0, 1)
        await begin(one)
        fleet.clock.advance(LEASE * 3)
        await two.store.orphans()
        await fleet.advance(LEASE, 0, 1)
        await two.store.orphans()
        assert await two.store.orphan_tasks() == []

    @fleet_scenario()
    async def test_who_was_declared_dead_begins_no_task_before_it_has_a_new_lease(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        await fleet.orphans_of_dead_replicas()
        try:
            await one.store.open_task(TASK, PRINCIPAL, b"", ttl=60)
        except StoreUnavailable:
            await one.store.renew(LEASE)
            await begin(one)
            assert await two.store.orphan_tasks() == []
            return
        raise AssertionError("a task whose owner is dead from the start has begun")

    @fleet_scenario()
    async def test_all_tasks_of_dead_replicas_are_found(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        for number in range(50):
            await begin(one, f"t{number}")
        await one.store.release()
        count = 0
        while found := await two.store.orphan_tasks():
            for orphan in found:
                assert await ended(two, orphan) == 2
                count += 1
        assert count == 50
