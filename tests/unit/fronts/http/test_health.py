"""Probes, a store that cannot work, and requests that arrive when nothing may begin any more."""

import asyncio

from limpet.errors import BUSY, StoreUnavailable
from tests.stores import ScriptedStore
from tests.unit.fronts.http.bench import bench, front_test


@front_test
async def test_probes_are_answered_without_a_session_and_for_any_host() -> None:
    async with bench() as b:
        for path in ("/healthz", "/readyz"):
            probe = (
                await b.peer()
                .send("GET", path=path, headers={"host": "10.0.0.7:8000", "accept": None})
                .done()
            )
            assert (probe.status, probe.headers["cache-control"]) == (200, "no-store")
        assert b.engine.runtime.sessions == {}


@front_test
async def test_a_replica_without_its_store_is_alive_and_not_ready_until_the_store_returns() -> None:
    store = ScriptedStore(is_shared=True)
    async with bench(store=store) as b:
        peer = b.peer()
        await peer.initialize()
        store.fail("claim", "prove")
        assert (await peer.send("GET", path="/healthz").done()).status == 200
        probe = await peer.send("GET", path="/readyz").done()
        assert (probe.status, probe.body, "retry-after" in probe.headers) == (503, b"on purpose\n", True)
        refused = await peer.call(1).done()
        assert (refused.status, refused.json["error"]["code"], refused.json["id"]) == (503, BUSY, 1)
        assert "retry-after" in refused.headers
        store.recover()
        assert (await peer.call(1).done()).status == 200
        await asyncio.sleep(1)
        assert (await peer.send("GET", path="/readyz").done()).status == 200


@front_test
async def test_the_log_has_a_line_for_each_change_of_readiness_and_none_for_each_probe() -> None:
    store = ScriptedStore(is_shared=True)
    async with bench(store=store) as b:

        async def probe() -> bytes:
            await asyncio.sleep(1)
            return (await b.peer().send("GET", path="/readyz").done()).body

        assert await probe() == b"ready\n"
        for reason in ("the disk is full", "the lease has ended"):
            store.fail("prove", error=StoreUnavailable(reason))
            assert {await probe() for _ in range(5)} == {f"{reason}\n".encode()}
        store.recover()
        assert {await probe() for _ in range(5)} == {b"ready\n"}
        assert [facts["reason"] for facts in b.observer.named("process.not_ready")] == [
            "the disk is full",
            "the lease has ended",
        ]
        assert b.noted("process.ready") == 1


@front_test
async def test_readiness_is_proved_by_one_write_a_second_for_all_probes() -> None:
    store = ScriptedStore(is_shared=True)
    async with bench(store=store) as b:
        await b.peer().initialize()

        async def ask() -> int:
            return int((await b.peer().send("GET", path="/readyz").done()).status)

        assert await asyncio.gather(*(ask() for _ in range(20))) == [200] * 20
        assert store.log.count("prove") == 1
        store.fail("claim", "prove")
        await asyncio.sleep(1)
        assert await asyncio.gather(*(ask() for _ in range(20))) == [503] * 20
        assert store.log.count("prove") == 2


@front_test
async def test_a_replica_that_has_just_refused_a_request_for_its_store_does_not_say_ready() -> None:
    store = ScriptedStore(is_shared=True)
    async with bench(store=store) as b:
        peer = b.peer()
        await peer.initialize()
        assert (await peer.send("GET", path="/readyz").done()).status == 200
        store.fail("claim", "prove")
        assert (await peer.call(1).done()).status == 503
        for _ in range(5):
            assert (await peer.send("GET", path="/readyz").done()).status == 503
            assert (await peer.call(1).done()).status == 503
        assert store.log.count("prove") == 2, "one of before, and one after the first refusal"


@front_test
async def test_a_store_that_does_not_answer_is_not_ready_after_two_seconds() -> None:
    store = ScriptedStore(is_shared=True)
    async with bench(store=store) as b:
        await b.peer().initialize()
        store.delay("prove", before=3_600, outlives_caller=False)
        asked = asyncio.get_running_loop().time()
        assert (await b.peer().send("GET", path="/readyz").done()).status == 503
        assert asyncio.get_running_loop().time() - asked == 2


@front_test
async def test_a_request_that_arrives_while_the_engine_closes_is_refused_and_starts_nothing() -> None:
    async with bench() as b:
        peer = b.peer()
        await peer.initialize()
        reached, released = asyncio.Event(), asyncio.Event()
        stop = b.back.stop

        async def slow_stop() -> None:
            reached.set()
            await released.wait()
            await stop()

        b.back.stop = slow_stop  # type: ignore[method-assign]
        closing = asyncio.ensure_future(b.engine.aclose())
        await reached.wait()
        assert (await peer.call(1).done()).status == 503
        assert (await b.peer().initialize()).status == 503
        released.set()
        await closing
        assert b.back.events.count("start") == 1
        assert (await b.peer().initialize()).status == 200, "a host may start it again"
