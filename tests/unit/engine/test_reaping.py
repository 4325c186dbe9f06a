"""Engines that share a store: another one ends the calls of a dead one with outcome unknown."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final
from unittest.mock import patch

from limpet.config import Settings, Times
from limpet.engine.claims import Repeat
from limpet.engine.exchange import Exchange
from limpet.stores.base import Answered
from limpet.testing import ScriptedBack, SeededRandom
from tests.simulation.cluster import Cluster
from tests.simulation.world import SimKeeper
from tests.support import LoopClock
from tests.unit.engine.harness import CALL, EngineHarness, Json, echo, engine_test, gate

LEASE: Final = 3.0
NOTICED: Final = LEASE + 2.0
"""Seconds after which the calls of a dead replica were handled."""
SETTINGS: Final = Settings(times=Times(lease=LEASE, lease_renewal=1.0))
LOST: Final = -31002

Script = Callable[[Exchange], Awaitable[object]]


@asynccontextmanager
async def fleet(*scripts: Script, settings: Settings = SETTINGS) -> AsyncIterator[list[EngineHarness]]:
    """Run an engine for each script, over one store, with one session."""
    cluster = Cluster(settings.limits, LoopClock())
    harnesses: list[EngineHarness] = []
    with patch("limpet.engine.replica.LeaseKeeper", SimKeeper):
        for number, script in enumerate(scripts):
            harness = EngineHarness(
                ScriptedBack({CALL: script}), settings, cluster.connect(f"r{number}").store
            )
            harness.engine.runtime.random = SeededRandom(number)
            await harness.engine.ensure_started()
            harnesses.append(harness)
        session = await harnesses[0].open()
        for harness in harnesses:
            harness.session = session
        try:
            yield harnesses
        finally:
            for harness in harnesses:
                await harness.engine.aclose()


def die(harness: EngineHarness) -> None:
    """Let an engine be taken for dead: it renews nothing and sweeps nothing more. Its handlers hang on."""
    replica = harness.engine.replica
    assert replica._keeper is not None
    assert harness.engine._sweeping
    replica._keeper.stop()
    for job in harness.engine._sweeping:
        job.cancel()


async def end_of(harness: EngineHarness, stream: str) -> Json:
    """Return the terminal message of a stream."""
    get = await harness.get(stream)
    await get.task
    return get.messages[-1]


async def lost(harness: EngineHarness, stream: str) -> bool:
    return bool((await end_of(harness, stream)).get("error", {}).get("code") == LOST)


@engine_test
async def test_the_calls_of_a_dead_replica_end_with_outcome_unknown_and_do_not_run_again() -> None:
    stuck, going_on = gate()
    async with fleet(stuck, echo) as (one, two):
        posts = [await one.post(number, params={"name": "once"}) for number in (1, 2)]
        die(one)
        await asyncio.sleep(NOTICED)
        repeat = await two.submit(1, params={"name": "once"})
        assert isinstance(repeat, Repeat), (
            "a client that was cut and repeats its request gets the same answer"
        )
        assert [await lost(two, post.exchange.claim.stream) for post in posts] == [True, True]
        assert two.back.handled == []
        assert len(two.noted.named("exchange.reaped")) == 2
        going_on.set()
        await asyncio.sleep(1)
        assert len(one.noted.named("exchange.fenced")) == 2, "a replica that wakes up writes nothing"


@engine_test
async def test_a_call_that_still_runs_here_continues_after_the_lease_ended() -> None:
    stuck, going_on = gate()
    async with fleet(stuck) as (one,):
        post = await one.post(1)
        assert one.engine.replica._keeper is not None
        one.engine.replica._keeper.stop()
        await asyncio.sleep(LEASE)
        await one.engine.replica._retake_lease()
        await asyncio.sleep(NOTICED)
        assert len(one.back.handled) == 1
        going_on.set()
        assert (await post.whole())[-1]["result"] == {"id": 1}
        assert one.noted.named("exchange.fenced") == []


@engine_test
async def test_two_replicas_that_ask_on_one_stream_get_an_answer_each() -> None:
    async with fleet(echo, echo) as harnesses:
        asking = [asyncio.create_task(_roots(harness)) for harness in harnesses]
        get = await harnesses[0].get()
        await asyncio.sleep(1)
        for number, ask in enumerate(get.messages):
            assert await harnesses[0].answer(ask, {"n": number}) is Answered.FIRST
        assert sorted([(await asked)["n"] for asked in asking]) == [0, 1]


async def _roots(harness: EngineHarness) -> Json:
    session = harness.engine.runtime.local_session(harness.session.record)
    answer: Json = await harness.engine.sessions.ask(session, "roots/list", {})
    return answer
