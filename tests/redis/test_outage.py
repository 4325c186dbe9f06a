"""A Redis that goes away while handlers work: they wait for it, and their clients get every message once."""

import asyncio
from contextlib import aclosing
from typing import Any, Final

from typing_extensions import override

from limpet.config import Settings, Times
from limpet.core.stream import Position
from limpet.engine.exchange import Exchange
from limpet.errors import StoreUnavailable
from limpet.stores.base import OnWake
from limpet.stores.redis.store import RedisStore
from limpet.testing import ScriptedBack
from tests.redis_server import needs_redis, redis_server
from tests.support import async_test
from tests.unit.engine.harness import CALL, EngineHarness

pytestmark = needs_redis

PROGRESS = "notifications/progress"


class Watched(RedisStore):
    """Says when it could not append."""

    @override
    def bind(self, on_wake: OnWake) -> None:
        self.failed = asyncio.Event()
        super().bind(on_wake)

    @override
    async def append(self, *args: Any) -> Position:
        try:
            return await super().append(*args)
        except StoreUnavailable:
            self.failed.set()
            raise


@async_test
async def test_a_handler_that_sends_progress_survives_a_restart_of_redis() -> None:
    said, goes_on = asyncio.Event(), asyncio.Event()

    async def work(exchange: Exchange) -> object:
        await exchange.notify(PROGRESS, {"n": 0})
        said.set()
        await goes_on.wait()
        for number in range(1, 4):
            await exchange.notify(PROGRESS, {"n": number})
        return {"done": True}

    with redis_server("--appendonly", "yes", "--appendfsync", "always") as server:
        store = Watched(server.url)
        d = EngineHarness(ScriptedBack({CALL: work}), Settings(times=Times(lease=60.0)), store)
        await d.engine.ensure_started()
        d.session = await d.open()
        async with aclosing(d.engine):
            post = await d.post(1)
            await said.wait()
            server.stop()
            goes_on.set()
            await store.failed.wait()
            server.start()
            messages = await post.whole()
            assert [message["params"]["n"] for message in messages[:-1]] == [0, 1, 2, 3]
            assert messages[-1]["result"] == {"done": True}
            assert not d.noted.named("handler.failed")


SHORT: Final = Times(lease=2.0, lease_renewal=0.4, sweep=0.1)


@async_test
async def test_a_redis_that_is_unavailable_for_longer_than_the_lease_costs_no_call() -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    async def work(exchange: Exchange) -> object:
        await exchange.notify(PROGRESS, {"n": 0})
        started.set()
        await may_end.wait()
        return {"done": True}

    with redis_server("--appendonly", "yes", "--appendfsync", "always") as server:
        one, two = (
            EngineHarness(ScriptedBack({CALL: work}), Settings(times=SHORT), RedisStore(server.url))
            for _ in range(2)
        )
        async with aclosing(one.engine), aclosing(two.engine):
            for harness in (one, two):
                await harness.engine.ensure_started()
            one.session = await one.open()
            post = await one.post(1)
            await started.wait()
            # Real time is the subject: leases end by the clock of Redis.
            await asyncio.sleep(SHORT.lease)
            server.stop()
            # Longer than the lease.
            await asyncio.sleep(2 * SHORT.lease)
            server.start()
            # Both see it again, and for longer than it takes to declare a replica dead.
            await asyncio.sleep(2 * SHORT.lease + 1)
            may_end.set()
            assert (await post.whole())[-1]["result"] == {"done": True}
            for harness in (one, two):
                assert harness.noted.named("lease.not_renewed")
                assert harness.engine.replica._inbox.recovery._outage_at > 0
                assert not harness.noted.named("exchange.reaped")
                assert not harness.noted.named("replica.lease_lost")
