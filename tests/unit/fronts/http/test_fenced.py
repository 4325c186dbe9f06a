"""A POST that waits at a replica which was taken for dead: others have ended its call, and it gets the end they wrote."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, get_args

import pytest

from limpet.config import Limits, ResponseMode, Settings, Times
from limpet.errors import OUTCOME_UNKNOWN, Unbegun
from tests.asgi import Call, Peer
from tests.messages import LATEST, request
from tests.simulation.cluster import Cluster
from tests.support import LoopClock
from tests.unit.engine.harness import settle_down
from tests.unit.fronts.http.bench import OLDEST, Bench, bench, front_test

# No lease ends here by itself, and no answer becomes a stream before it is there.
SETTINGS = Settings(times=Times(lease=1e6, lease_renewal=1e5, stream_after=1e4, stream_age=(1e5, 2e5)))
HELD = {"name": "held", "arguments": {}}


@asynccontextmanager
async def reaped(mode: str, version: str, post: Any) -> AsyncIterator[tuple[Bench, Peer, Call]]:
    """Post at one replica, and let another take it for dead and end the call while its handler runs."""
    cluster = Cluster(Limits(), LoopClock())
    async with (
        bench(SETTINGS, store=cluster.connect("one").store, response=mode) as one,
        bench(SETTINGS, store=cluster.connect("two").store) as two,
    ):
        await two.engine.ensure_started()
        p = one.peer()
        assert (await p.initialize(version)).status == 200
        call = p.post(post)
        await settle_down()
        assert one.runs
        await one.store.release()
        await two.engine.replica.sweep()
        # It wakes: the next renewal makes it another incarnation, which may attach readers again.
        await one.store.renew(SETTINGS.times.lease)
        yield one, p, call


@pytest.mark.parametrize("mode", get_args(ResponseMode))
@front_test
async def test_a_result_that_came_too_late_is_not_the_answer_and_the_end_in_the_log_is(
    mode: ResponseMode,
) -> None:
    async with reaped(mode, LATEST, request(1, "tools/call", HELD)) as (one, _, call):
        one.release.set()
        await call.done()
        assert call.is_stream is (mode != "json")
        [answer] = call.received
        assert (answer["id"], answer["error"]["code"]) == (1, OUTCOME_UNKNOWN)
        assert one.noted("exchange.fenced") == 1


@pytest.mark.parametrize("mode", get_args(ResponseMode))
@front_test
async def test_each_call_of_a_batch_gets_the_end_in_its_log(mode: ResponseMode) -> None:
    batch = [request(number, "tools/call", HELD) for number in (1, 2)]
    async with reaped(mode, OLDEST, batch) as (one, _, call):
        one.release.set()
        await call.done()
        answers: list[Any] = call.messages if call.is_stream else call.json  # type: ignore[assignment]
        found = sorted((answer["id"], answer["error"]["code"]) for answer in answers)
        assert found == [(1, OUTCOME_UNKNOWN), (2, OUTCOME_UNKNOWN)]


@front_test
async def test_the_store_is_not_asked_for_an_end_after_the_client_left() -> None:
    async with reaped("adaptive", LATEST, request(1, "tools/call", HELD)) as (one, _, call):
        looks = 0

        async def nothing_yet(*_: object) -> Any:
            nonlocal looks
            looks += 1
            raise Unbegun

        one.engine.readers.attach = nothing_yet  # type: ignore[method-assign,assignment]
        one.release.set()
        await asyncio.sleep(1)
        assert looks > 1
        await call.cut()
        looks = 0
        await asyncio.sleep(10)
        assert looks == 0


@front_test
async def test_a_handler_that_asks_ends_when_others_have_ended_its_call() -> None:
    async with reaped("adaptive", LATEST, request(1, "tools/call", {"name": "ask"})) as (one, _, call):
        await call.done()
        assert [message["error"]["code"] for message in call.messages if "error" in message] == [
            OUTCOME_UNKNOWN
        ]
        await settle_down()
        [exchange] = one.back.handled
        assert exchange.task is not None
        assert exchange.task.done(), "no client can answer it any more"
        assert not one.noted("handler.failed")


@pytest.mark.parametrize("mode", get_args(ResponseMode))
@front_test
async def test_a_repeat_at_the_replica_whose_handler_still_runs_gets_the_end_in_the_log(
    mode: ResponseMode,
) -> None:
    post = request(1, "tools/call", HELD)
    async with reaped(mode, LATEST, post) as (_, p, call):
        await call.cut()
        repeat = await p.post(post).done()
        assert repeat.status == 200
        answer = repeat.messages[-1] if repeat.is_stream else repeat.json
        assert (answer["id"], answer["error"]["code"]) == (1, OUTCOME_UNKNOWN)
