"""Two servers on one Redis: ids and handles of one server are not valid at the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange
from limpet.errors import ParkedElsewhere, ParkedGone
from limpet.protocol.sessionless import RequestMeta
from limpet.stores.redis.store import RedisStore
from limpet.testing import ScriptedBack
from limpet.wire.jsonrpc import Request
from tests.redis_server import RedisServer
from tests.support import BOUND, async_test

META = RequestMeta("2026-07-28", {"sampling": {}}, {"name": "test"}, "")
ALICE = Caller("alice")


async def asks(exchange: Exchange) -> object:
    return await exchange.ask("sampling/createMessage", {})


@asynccontextmanager
async def engine(server: RedisServer, namespace: str) -> AsyncIterator[Engine]:
    back = ScriptedBack({"tools/call": asks})
    running = Engine(back, store=RedisStore(server.url, namespace=namespace))
    await running.ensure_started()
    try:
        yield running
    finally:
        await running.aclose()


async def parked(running: Engine) -> str:
    """Begin a call that asks; return the state its client is to bring back."""
    awaited = running.sessionless.start(META, ALICE, Request(1, "tools/call", {"name": "x"}))
    async with asyncio.timeout(BOUND):
        while awaited.outcome is None:
            awaited.wake.clear()
            await awaited.wake.wait(1)
    assert not awaited.leave()
    message: Any = msgspec.json.decode(awaited.outcome.message(1))
    state: str = message["result"]["requestState"]
    return state


@async_test
async def test_a_state_of_one_namespace_is_refused_in_another_and_known_to_every_replica_of_its_own(
    server: RedisServer,
) -> None:
    async with engine(server, "one") as one, engine(server, "one") as sister, engine(server, "two") as two:
        params = {"name": "x", "requestState": await parked(one), "inputResponses": {}}
        retry = Request(2, "tools/call", params)
        with pytest.raises(ParkedElsewhere) as elsewhere:
            sister.sessionless.go_on(META, ALICE, retry)
        assert elsewhere.value.replica == one.runtime.store.replica
        with pytest.raises(ParkedGone):
            two.sessionless.go_on(META, ALICE, retry)
        known = one.sessionless.go_on(META, ALICE, retry)
        known.leave()
        await one.sessionless.abandon(known.exchange)
