"""The jobs of the sweep: each runs by itself, its failures are noted, and it is tried again."""

import asyncio

from typing_extensions import override

from limpet.config import Limits
from limpet.stores.base import Orphan
from tests.simulation.cluster import Cluster
from tests.stores import ScriptedStore
from tests.support import LoopClock
from tests.unit.engine.harness import engine_harness, engine_test


@engine_test
async def test_a_job_that_fails_is_noted_and_tried_again_and_stops_no_other() -> None:
    store = ScriptedStore()
    store.fail("sweep", error=LookupError("on purpose"))
    async with engine_harness(store=store) as d:
        looks = 0

        async def look() -> None:
            nonlocal looks
            looks += 1

        for job in d.engine._sweeping:
            job.cancel()
        d.engine.tasks.sweep = look  # type: ignore[method-assign]
        d.engine._sweep()
        await asyncio.sleep(10)
        assert looks >= 9, "another job continues at its pace"
        failed = [noted["loop"] for noted in d.noted.named("loop.failed")]
        assert failed == ["sweep of sessions"] * store.log.count("sweep")
        assert store.log.count("sweep") >= 4


class Shelf(Cluster):
    """A shared store in which one orphan cannot be ended."""

    @override
    async def orphans(self) -> list[Orphan]:
        return [Orphan("bad", "a", 1, "x.1"), Orphan("good", "b", 2, "x.1")]

    @override
    async def reap(self, orphan: Orphan, terminal: bytes, *, tag: int) -> bool:
        if orphan.session == "bad":
            raise LookupError("on purpose")
        return True


@engine_test
async def test_an_orphan_that_cannot_be_ended_keeps_no_other_from_its_end() -> None:
    store = Shelf(Limits(), LoopClock())
    async with engine_harness(store=store.connect("one").store) as d:
        await asyncio.sleep(1.5)
        [left] = d.noted.named("orphan.left")
        assert isinstance(left["error"], LookupError)
        assert [noted["session"] for noted in d.noted.named("exchange.reaped")] == ["good"]


@engine_test
async def test_background_work_that_fails_is_logged() -> None:
    async def work() -> None:
        raise LookupError("on purpose")

    async with engine_harness() as d:
        d.engine.runtime.spawn(work())
        await asyncio.sleep(1)
        [failed] = d.noted.named("work.failed")
        assert isinstance(failed["error"], LookupError)


class Slow(Cluster):
    """A shared store that returns orphans one by one."""

    def __init__(self) -> None:
        super().__init__(Limits(), LoopClock())
        self.left = [Orphan(name, name, 1, "x.1") for name in ("first", "second", "third")]

    @override
    async def orphans(self) -> list[Orphan]:
        return self.left[:1]

    @override
    async def reap(self, orphan: Orphan, terminal: bytes, *, tag: int) -> bool:
        self.left.remove(orphan)
        return True


@engine_test
async def test_all_orphans_are_ended_in_one_sweep_although_the_store_returns_some_at_a_time() -> None:
    store = Slow()
    async with engine_harness(store=store.connect("one").store):
        await asyncio.sleep(1.5)
        assert not store.left
