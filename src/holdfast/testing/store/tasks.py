"""Tasks: each belongs to a principal, changes by version, and is forgotten when it expires."""

import asyncio

from holdfast.errors import StateError
from holdfast.stores.base import TASK_END_BYTES, Cell, Refusal, WakeUp
from holdfast.testing.store.bench import PRINCIPAL, STRANGER, Bench, Contract, scenario

TASK = "task"
TTL = 60.0


async def begin(bench: Bench, key: str = TASK, value: bytes = b"begun", principal: str = PRINCIPAL) -> None:
    """Open a task that must find room."""
    assert await bench.store.open_task(key, principal, value, ttl=TTL) is None


async def change(bench: Bench, value: bytes, version: int, key: str = TASK, *, ends: bool = False) -> int:
    """Try to change a task."""
    return await bench.store.set_task(key, PRINCIPAL, value, version=version, ttl=TTL, ends=ends)


async def refused(bench: Bench, value: bytes, version: int, *, ends: bool = False) -> None:
    """Try a change that there must be no room for."""
    try:
        await change(bench, value, version, ends=ends)
    except StateError:
        return
    raise AssertionError("StateError was not raised")


class TaskContract(Contract):
    """open_task, get_task, set_task, orphan_tasks."""

    @scenario()
    async def test_a_task_is_there_as_soon_as_it_was_opened(self, bench: Bench) -> None:
        assert await bench.store.get_task(TASK, PRINCIPAL) is None
        await begin(bench)
        assert await bench.store.get_task(TASK, PRINCIPAL) == Cell(b"begun", 1)

    @scenario()
    async def test_a_task_opened_twice_is_one(self, bench: Bench) -> None:
        await begin(bench)
        assert await change(bench, b"later", 1) == 2
        await begin(bench)
        assert await bench.store.get_task(TASK, PRINCIPAL) == Cell(b"later", 2)

    @scenario()
    async def test_the_task_of_another_principal_is_not_found(self, bench: Bench) -> None:
        await begin(bench)
        assert await bench.store.get_task(TASK, STRANGER) is None
        assert await bench.store.set_task(TASK, STRANGER, b"mine", version=1, ttl=TTL) == -1
        assert await bench.store.get_task(TASK, PRINCIPAL) == Cell(b"begun", 1)

    @scenario()
    async def test_a_change_counts_the_version_up_and_wakes(self, bench: Bench) -> None:
        await begin(bench)
        assert await change(bench, b"one", 1) == 2
        assert await change(bench, b"two", 2) == 3
        assert await bench.store.get_task(TASK, PRINCIPAL) == Cell(b"two", 3)
        assert bench.wakeups == [(WakeUp.TASK, TASK, "")] * 2

    @scenario()
    async def test_a_version_that_differs_changes_nothing_and_wakes_no_process(self, bench: Bench) -> None:
        assert await change(bench, b"x", 1) == -1
        await begin(bench)
        assert await change(bench, b"x", 0) == -1
        assert await change(bench, b"x", 2) == -1
        assert await bench.store.get_task(TASK, PRINCIPAL) == Cell(b"begun", 1)
        assert bench.wakeups == []

    @scenario()
    async def test_of_racing_changes_one_wins(self, bench: Bench) -> None:
        await begin(bench)
        won = await asyncio.gather(*(change(bench, b"%d" % number, 1) for number in range(30)))
        assert sorted(won) == [-1] * 29 + [2]

    @scenario()
    async def test_a_change_sent_again_returns_the_same(self, bench: Bench) -> None:
        await begin(bench)
        assert await change(bench, b"one", 1) == 2
        assert await change(bench, b"one", 1) == 2
        assert await bench.store.get_task(TASK, PRINCIPAL) == Cell(b"one", 2)

    @scenario()
    async def test_a_task_is_gone_when_its_time_has_come_and_not_before(self, bench: Bench) -> None:
        await begin(bench)
        bench.clock.advance(TTL - 1)
        await bench.store.sweep()
        assert await bench.store.get_task(TASK, PRINCIPAL) is not None
        bench.clock.advance(1)
        assert await bench.store.get_task(TASK, PRINCIPAL) is None, "it is gone before any sweep"
        assert await change(bench, b"late", 1) == -1
        await bench.store.sweep()
        assert await bench.store.get_task(TASK, PRINCIPAL) is None

    @scenario()
    async def test_a_change_prolongs_a_task_and_never_shortens_it(self, bench: Bench) -> None:
        await begin(bench)
        bench.clock.advance(TTL / 2)
        assert await bench.store.set_task(TASK, PRINCIPAL, b"soon", version=1, ttl=1) == 2
        bench.clock.advance(TTL / 2 - 1)
        await bench.store.sweep()
        assert await change(bench, b"longer", 2) == 3
        bench.clock.advance(TTL - 1)
        await bench.store.sweep()
        assert await bench.store.get_task(TASK, PRINCIPAL) == Cell(b"longer", 3)
        bench.clock.advance(1)
        assert await bench.store.get_task(TASK, PRINCIPAL) is None

    @scenario(tasks_per_principal=2)
    async def test_a_principal_has_its_limit_of_tasks_and_others_have_theirs(self, bench: Bench) -> None:
        await begin(bench, "one")
        await begin(bench, "two")
        assert await bench.store.open_task("three", PRINCIPAL, b"", ttl=TTL) is Refusal.FULL
        assert await bench.store.get_task("three", PRINCIPAL) is None
        await begin(bench, "theirs", principal=STRANGER)
        bench.clock.advance(TTL)
        await begin(bench, "three")

    @scenario(tasks=2)
    async def test_a_store_has_its_limit_of_tasks(self, bench: Bench) -> None:
        await begin(bench, "one")
        await begin(bench, "two", principal=STRANGER)
        assert await bench.store.open_task("three", PRINCIPAL, b"", ttl=TTL) is Refusal.FULL
        bench.clock.advance(TTL)
        await bench.store.sweep()
        await begin(bench, "three")

    @scenario(tasks=1)
    async def test_a_task_without_a_byte_is_forgotten_like_any_other(self, bench: Bench) -> None:
        await begin(bench, "one", b"")
        bench.clock.advance(TTL)
        await bench.store.sweep()
        await begin(bench, "two")

    @scenario(task_bytes=100)
    async def test_a_task_has_a_limit_of_bytes_and_a_refusal_changes_nothing(self, bench: Bench) -> None:
        await begin(bench)
        await refused(bench, b"x" * 101, 1)
        assert await bench.store.get_task(TASK, PRINCIPAL) == Cell(b"begun", 1)
        assert await change(bench, b"x" * 100, 1) == 2

    @scenario(task_bytes=100, tasks_bytes=50)
    async def test_a_short_end_always_has_room_and_a_long_one_has_not(self, bench: Bench) -> None:
        await begin(bench)
        for value in (b"x" * 90, b"x" * (TASK_END_BYTES + 1)):
            await refused(bench, value, 1, ends=len(value) > TASK_END_BYTES)
        assert await change(bench, b"x" * TASK_END_BYTES, 1, ends=True) == 2
        assert await change(bench, b"x" * TASK_END_BYTES, 1, ends=True) == 2, "sent again"
        bench.clock.advance(TTL)
        await begin(bench, "other", b"x" * 50)

    @scenario()
    async def test_a_task_of_a_living_replica_is_no_orphan(self, bench: Bench) -> None:
        await bench.store.renew(TTL)
        await begin(bench)
        assert await bench.store.orphan_tasks() == []

    @scenario(tasks_bytes=100)
    async def test_all_tasks_together_have_a_limit_of_bytes(self, bench: Bench) -> None:
        await begin(bench, value=b"x" * 40)
        await begin(bench, "other", b"x" * 40)
        assert await bench.store.open_task("third", PRINCIPAL, b"x" * 40, ttl=TTL) is Refusal.FULL
        await refused(bench, b"x" * 61, 1)
        assert await change(bench, b"x" * 20, 1) == 2
        assert await change(bench, b"x" * 60, 1, "other") == 2
        bench.clock.advance(TTL)
        await begin(bench, "third", b"x" * 100)

    @scenario(principal_tasks_bytes=100)
    async def test_a_principals_tasks_together_have_a_limit_of_bytes_and_others_have_theirs(
        self, bench: Bench
    ) -> None:
        await begin(bench, value=b"x" * 40)
        await begin(bench, "other", b"x" * 40)
        assert await bench.store.open_task("third", PRINCIPAL, b"x" * 40, ttl=TTL) is Refusal.FULL
        await refused(bench, b"x" * 61, 1)
        await begin(bench, "theirs", b"x" * 100, STRANGER)
        assert await change(bench, b"x" * 20, 1) == 2
        assert await change(bench, b"x" * 80, 1, "other") == 2
        assert await change(bench, b"x" * TASK_END_BYTES, 2, ends=True) == 3, "a short end always has room"
        bench.clock.advance(TTL)
        await begin(bench, "third", b"x" * 100)
