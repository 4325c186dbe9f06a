"""Tasks: of one principal, changed by version, forgotten when they expire, found when their owner has died."""

import asyncio

from limpet.errors import StateError, StoreUnavailable
from limpet.stores.base import TASK_END_BYTES, Cell, OrphanTask, Refusal, WakeUp
from limpet.testing.store.bench import PRINCIPAL, STRANGER, Bench, Contract, refused, scenario
from limpet.testing.store.fleet import LEASE, Fleet, fleet_scenario

TASK, TTL = "task", 60.0


async def begin(bench: Bench, key: str = TASK, value: bytes = b"begun", principal: str = PRINCIPAL) -> None:
    """Open a task that must find room."""
    assert await bench.store.open_task(key, principal, value, ttl=TTL) is None


async def check_full(bench: Bench, key: str, value: bytes = b"") -> bool:
    """Try to open a task."""
    return await bench.store.open_task(key, PRINCIPAL, value, ttl=TTL) is Refusal.FULL


async def change(bench: Bench, value: bytes, version: int, key: str = TASK, *, ends: bool = False) -> int:
    """Try to change a task."""
    return await bench.store.set_task(key, PRINCIPAL, value, version=version, ttl=TTL, ends=ends)


async def ended(bench: Bench, orphan: OrphanTask) -> int:
    """Try to end a task in its owner's place."""
    return await bench.store.set_task(
        orphan.key, orphan.principal, b"unknown", version=orphan.cell.version, ttl=60, ends=True
    )


class TaskContract(Contract):
    """open_task, get_task, set_task."""

    @scenario()
    async def test_a_task_is_one_and_belongs_to_its_principal(self, bench: Bench) -> None:
        store = bench.store
        await store.renew(TTL)
        assert await store.get_task(TASK, PRINCIPAL) is None
        await begin(bench)
        assert await store.get_task(TASK, PRINCIPAL) == Cell(b"begun", 1)
        assert await store.get_task(TASK, STRANGER) is None
        assert await store.set_task(TASK, STRANGER, b"mine", version=1, ttl=TTL) == -1
        assert await change(bench, b"later", 1) == 2
        await begin(bench)
        assert await store.get_task(TASK, PRINCIPAL) == Cell(b"later", 2), "opened twice it is one"
        assert await store.orphan_tasks() == [], "its owner lives"

    @scenario()
    async def test_a_change_counts_the_version_up_and_wakes_once_for_each_version(self, bench: Bench) -> None:
        assert await change(bench, b"x", 1) == -1
        await begin(bench)
        for version in (0, 2):
            assert await change(bench, b"x", version) == -1
        assert await bench.store.get_task(TASK, PRINCIPAL) == Cell(b"begun", 1)
        assert bench.wakeups == [], "nothing has changed"
        assert await change(bench, b"one", 1) == 2
        assert await change(bench, b"two", 2) == 3
        assert bench.wakeups == [(WakeUp.TASK, TASK, "")] * 2
        assert await change(bench, b"two", 2) == 3, "sent again"
        assert await bench.store.get_task(TASK, PRINCIPAL) == Cell(b"two", 3)
        won = await asyncio.gather(*(change(bench, b"%d" % number, 3) for number in range(30)))
        assert sorted(won) == [-1] * 29 + [4]

    @scenario()
    async def test_a_task_is_gone_when_its_time_has_come_and_not_before(self, bench: Bench) -> None:
        store = bench.store
        await begin(bench)
        bench.clock.advance(TTL / 2)
        assert await store.set_task(TASK, PRINCIPAL, b"soon", version=1, ttl=1) == 2, "never shortened"
        bench.clock.advance(TTL / 2 - 1)
        await store.sweep()
        assert await change(bench, b"longer", 2) == 3
        bench.clock.advance(TTL - 1)
        await store.sweep()
        assert await store.get_task(TASK, PRINCIPAL) == Cell(b"longer", 3)
        bench.clock.advance(1)
        assert await store.get_task(TASK, PRINCIPAL) is None, "it is gone before any sweep"
        assert await change(bench, b"late", 3) == -1
        await store.sweep()
        assert await store.get_task(TASK, PRINCIPAL) is None

    @scenario(tasks_per_principal=2, tasks=3)
    async def test_tasks_are_limited_per_principal_and_in_all(self, bench: Bench) -> None:
        await begin(bench, "one", b"")
        await begin(bench, "two")
        assert await check_full(bench, "three")
        assert await bench.store.get_task("three", PRINCIPAL) is None
        await begin(bench, "theirs", principal=STRANGER)
        assert await bench.store.open_task("more", STRANGER, b"", ttl=TTL) is Refusal.FULL, "of all"
        bench.clock.advance(TTL)
        await begin(bench, "three")
        await bench.store.sweep()
        await begin(bench, "four")

    @scenario(task_bytes=100, tasks_bytes=150, principal_tasks_bytes=120)
    async def test_bytes_are_limited_and_a_refusal_changes_nothing(self, bench: Bench) -> None:
        await begin(bench)
        await refused(change(bench, b"x" * 101, 1), StateError)
        assert await bench.store.get_task(TASK, PRINCIPAL) == Cell(b"begun", 1)
        assert await change(bench, b"x" * 100, 1) == 2
        assert await check_full(bench, "other", b"x" * 21), "the principal's tasks together"
        await begin(bench, "theirs", b"x" * 50, STRANGER)
        assert await check_full(bench, "other", b"x"), "all tasks together"
        assert await change(bench, b"x" * 40, 2) == 3
        await begin(bench, "other", b"x" * 40)
        await refused(change(bench, b"x" * 81, 1, "other"), StateError)
        assert await change(bench, b"x" * 60, 1, "other") == 2
        assert await change(bench, b"x" * TASK_END_BYTES, 3, ends=True) == 4, "a short end has no bounds"
        bench.clock.advance(TTL)
        await begin(bench, "third", b"x" * 100)


class OrphanTaskContract(Contract):
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
        for _ in range(3):
            assert await two.store.orphans() == []
        [orphan] = await two.store.orphan_tasks()
        assert orphan == (TASK, PRINCIPAL, owner, Cell(b"begun", 1))
        assert await three.store.orphan_tasks() == [orphan]
        results = await asyncio.gather(
            two.store.set_task(TASK, PRINCIPAL, b"by two", version=1, ttl=60, ends=True),
            three.store.set_task(TASK, PRINCIPAL, b"by three", version=1, ttl=60, ends=True),
        )
        assert sorted(results) == [-1, 2]
        assert await change(one, b"late", 1, ends=True) == -1, "the owner wakes up, and has lost"
        await refused(one.store.open_task("late", PRINCIPAL, b"", ttl=60), StoreUnavailable)
        for bench in (two, three):
            assert await bench.store.orphan_tasks() == []

    @fleet_scenario()
    async def test_a_replica_that_gave_its_lease_back_leaves_its_tasks_at_once(self, fleet: Fleet) -> None:
        one, two, _ = fleet.benches
        await fleet.lease(0, 1)
        for number in range(50):
            await begin(one, f"t{number}", principal=(PRINCIPAL, STRANGER)[number % 2])
        await begin(one)
        await begin(one, "ends")
        assert await change(two, b"answer", 1, "ends") == 2, "others may change it, and its owner stays"
        assert await change(one, b"done", 2, "ends", ends=True) == 3
        await one.store.release()
        count = 0
        while found := [task for task in await two.store.orphan_tasks() if task.key != TASK]:
            for orphan in found:
                assert await ended(two, orphan) == 2
                count += 1
        assert count == 50, "all of them, and not the one that has ended"
        [orphan] = await two.store.orphan_tasks()
        assert await change(one, b"step", 1) == 2
        assert await ended(two, orphan) == -1, "it has changed after the look"
        [orphan] = await two.store.orphan_tasks()
        assert orphan.cell == Cell(b"step", 2)
        fleet.clock.advance(TTL)
        assert await two.store.orphan_tasks() == [], "it has expired"

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
