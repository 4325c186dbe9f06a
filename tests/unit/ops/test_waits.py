"""The reasons why a call waits: each is caused on purpose, with and without a session."""

import asyncio
import pkgutil
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from limpet import Context, Process, Server
from limpet.client import Client
from limpet.config import HttpSettings, Limits, Settings, Times
from limpet.engine.caller import Caller as EngineCaller
from limpet.engine.engine import Engine
from limpet.engine.exchange import SessionExchange
from limpet.ops.waits import _BY_PLACE, waits_for
from limpet.stores.base import Store
from tests.asgi import Call, Peer
from tests.duplex import DuplexClient
from tests.messages import LATEST, initialize, metadata, request
from tests.stores import ScriptedStore
from tests.support import async_test, until

ERAS: Final = pytest.mark.parametrize("era", ["sessions", "sessionless"])
ASKED: Final[dict[str, Any]] = {"elicitation": {}}


def shop(store: str | Store | None = None, may_write: asyncio.Event | None = None, **limits: int) -> Server:
    server = Server(
        "shop",
        store=store,
        namespace="default",
        settings=Settings(limits=Limits(**limits), times=Times(drain=0.0)),
    )

    @server.tool
    async def hang() -> str:
        await asyncio.Event().wait()
        return ""

    @server.tool
    async def thread(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.elicit("Well?", {"type": "object", "properties": {}}))
        return ""

    @server.tool
    async def question(ctx: Context) -> str:
        await ctx.elicit("Well?", {"type": "object", "properties": {}})
        return ""

    @server.tool
    async def remember(ctx: Context) -> str:
        if may_write is not None:
            await may_write.wait()
        return await ctx.new_handle()

    @server.tool
    async def chatter(ctx: Context) -> str:
        for number in range(100_000):
            await ctx.progress(number + 1, message="x" * 1_000)
        return ""

    server.tool(begins_to_speak)
    return server


async def begins_to_speak(ctx: Context) -> str:
    """Report progress in another task, without an end."""

    async def speak() -> None:
        for number in range(100_000):
            await ctx.progress(number + 1, message="x")
            await asyncio.sleep(0.005)  # The next message is another write.

    async with asyncio.TaskGroup() as group:
        group.create_task(speak())
        group.create_task(asyncio.Event().wait())
    return ""


class Caller:
    """A client of one era that begins calls over HTTP and answers nothing."""

    def __init__(self, server: Server | Process, era: str) -> None:
        self.engine = server.engine
        self._era = era
        self._peer = Peer(server.front(HttpSettings()))
        self._calls: list[Call] = []

    async def open(self) -> "Caller":
        if self._era == "sessions":
            params = initialize(LATEST, capabilities=ASKED)
            opened = await self._peer.post(request("init", "initialize", params)).done()
            self._peer.session, self._peer.version = opened.headers["mcp-session-id"], LATEST
        return self

    def begin(self, tool: str) -> Call:
        self._calls.append(self._begun(tool, len(self._calls)))
        return self._calls[-1]

    def _begun(self, tool: str, number: int) -> Call:
        token = {"progressToken": number}
        if self._era == "sessions":
            return self._peer.post(request(number, "tools/call", {"name": tool, "_meta": token}))
        meta = {**metadata(capabilities=ASKED), **token}
        return self._peer.sessionless("tools/call", {"name": tool}, id=number, meta=meta)

    async def answer(self, name: str) -> None:
        await self._peer.post({"jsonrpc": "2.0", "id": name, "result": {"action": "decline"}}).done()

    async def close(self) -> None:
        for call in self._calls:
            call.stops_after = 0
            call.read_on()
        async with aclosing(self.engine):
            for call in self._calls:
                await call.cut()


@asynccontextmanager
async def calling(server: Server | Process, era: str) -> AsyncIterator[Caller]:
    caller = await Caller(server, era).open()
    try:
        yield caller
    finally:
        await caller.close()


def waits(engine: Engine) -> list[str]:
    return sorted(waits_for(exchange) for exchange in engine.live_exchanges())


async def shows(engine: Engine, *expected: str) -> None:
    """Wait until the calls wait for this, and check that they continue to do so."""
    await until(lambda: waits(engine) == list(expected))
    for _ in range(20):
        await asyncio.sleep(0)
    assert waits(engine) == list(expected)


@ERAS
@async_test
async def test_a_function_that_waits_or_computes(era: str) -> None:
    async with calling(shop(), era) as caller:
        caller.begin("hang")
        await shows(caller.engine, "handler")


@ERAS
@pytest.mark.parametrize("tool", ["question", "thread"])
@async_test
async def test_an_unanswered_ask_also_one_of_another_task_of_the_handler(era: str, tool: str) -> None:
    async with calling(shop(), era) as caller:
        caller.begin(tool)
        await shows(caller.engine, "ask")


@ERAS
@async_test
async def test_a_store_that_does_not_answer(era: str, tmp_path: Path) -> None:
    path, may_write = tmp_path / "store.db", asyncio.Event()
    server = shop(f"sqlite:///{path}", may_write)
    async with calling(server, era) as caller:
        caller.begin("remember")
        await until(lambda: waits(caller.engine) == ["handler"])
        locked = sqlite3.connect(path, isolation_level=None)
        locked.execute("BEGIN IMMEDIATE")
        may_write.set()
        await shows(caller.engine, "store")
        locked.execute("ROLLBACK")
        locked.close()


@async_test
async def test_an_answer_that_the_store_does_not_give_yet() -> None:
    store = ScriptedStore()
    async with calling(shop(store), "sessions") as caller:
        caller.begin("question")
        await shows(caller.engine, "ask")
        [exchange] = caller.engine.live_exchanges()
        assert isinstance(exchange, SessionExchange)
        [name] = exchange.session.pending
        store.fail("take_answer")
        await caller.answer(name)
        await shows(caller.engine, "store")
        store.recover()
        await until(lambda: waits(caller.engine) == [])


def test_every_place_in_the_table_exists() -> None:
    for place in _BY_PLACE:
        pkgutil.resolve_name(place)


@ERAS
@async_test
async def test_a_client_that_does_not_read(era: str) -> None:
    async with calling(shop(), era) as caller:
        call = caller.begin("chatter")
        call.stops_after = 3
        await shows(caller.engine, "reader")


@ERAS
@async_test
async def test_a_client_that_does_not_read_is_shown_from_the_beginning(era: str) -> None:
    """Nothing is full yet, and the function itself waits elsewhere."""
    async with calling(shop(), era) as caller:
        call = caller.begin("begins_to_speak")
        call.stops_after = 1
        await shows(caller.engine, "reader")


@ERAS
@async_test
async def test_a_client_that_does_not_read_the_messages_of_a_server_behind(era: str) -> None:
    program = [sys.executable, str(Path(__file__).with_name("hangs.py"))]
    async with calling(Process(program, settings=Settings(times=Times(drain=0.0))), era) as caller:
        call = caller.begin("chatter")
        call.stops_after = 1
        await shows(caller.engine, "reader")


@pytest.mark.parametrize("kind", ["native", "behind"])
@async_test
async def test_a_client_on_one_connection_that_does_not_read(kind: str) -> None:
    program = [sys.executable, str(Path(__file__).with_name("hangs.py"))]
    settings = Settings(times=Times(drain=0.0))
    server = shop() if kind == "native" else Process(program, settings=settings)
    client = DuplexClient(server.engine, EngineCaller(""))
    async with aclosing(server.engine):
        await client.open()
        client.reading.clear()
        tool = "begins_to_speak" if kind == "native" else "chatter"
        await client.say("tools/call", 1, name=tool, _meta={"progressToken": 1})
        await shows(server.engine, "reader")
        client.reading.set()


@async_test
async def test_a_slot_of_the_session() -> None:
    async with calling(shop(running=1), "sessions") as caller:
        caller.begin("hang")
        await until(lambda: waits(caller.engine) == ["handler"])
        caller.begin("hang")
        await shows(caller.engine, "handler", "slot")


@ERAS
@async_test
async def test_a_server_behind_and_a_slot_at_it(era: str) -> None:
    program = [sys.executable, str(Path(__file__).with_name("hangs.py"))]
    server = Process(program, concurrency=1)
    async with Client(server, protocol_version=era) as client:
        calls = [asyncio.ensure_future(client.call_tool("hang")) for _ in range(2)]
        await shows(server.engine, "slot", "upstream")
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
