"""A request that its host ends while another process holds the file's lock: its claim is given back."""

import asyncio
import sqlite3

from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange, SessionExchange
from limpet.stores.sqlite import SqliteStore
from limpet.testing import ScriptedBack
from limpet.wire.jsonrpc import Request
from tests.sqlite.support import store_path
from tests.support import async_test, stays, until

CALLER = Caller("")


@async_test
async def test_a_claim_that_waited_for_the_lock_when_its_request_was_cancelled_is_given_back() -> None:
    ran: list[Exchange] = []

    async def run(exchange: Exchange) -> object:
        ran.append(exchange)
        return {}

    with store_path() as path:
        store = SqliteStore(path)
        engine = Engine(ScriptedBack({"tools/call": run}), store=store)
        await engine.ensure_started()
        params = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "t"}, "capabilities": {}}
        opened = await engine.sessions.open(Caller(""), params)
        key, request = opened.session.record.key, Request(1, "tools/call", {})
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        first = asyncio.create_task(engine.exchanges.submit(key, CALLER, request, b"x"))
        await until(lambda: store._worker.waiting == 1)
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        second = asyncio.create_task(engine.exchanges.submit(key, CALLER, request, b"x"))
        await stays(lambda: not second.done(), 0.1)
        other.execute("ROLLBACK")
        exchange = await second
        assert isinstance(exchange, SessionExchange)
        assert exchange.task is not None
        await asyncio.wait([exchange.task])
        assert len(ran) == 1
        status = await store.look(key)
        other.close()
        await engine.aclose()
    assert status is not None
    assert (status.running, status.readers) == (0, 0)
