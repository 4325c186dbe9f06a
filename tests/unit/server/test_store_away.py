"""Each method of both eras, on HTTP and on a duplex connection, while one command of the store after another fails: busy, and never an internal error."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from limpet import Context, Server
from limpet.config import Settings, Times
from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.engine.sessions import ANONYMOUS
from limpet.errors import BUSY, StoreUnavailable
from limpet.protocol.idempotency import KEY
from limpet.protocol.methods import METHODS, From
from limpet.testing.seeded_random import SeededRandom
from tests.asgi import Peer
from tests.duplex import DuplexClient
from tests.messages import metadata, request
from tests.stores import ScriptedStore
from tests.support import LoopClock, virtual_test_within
from tests.unit.server.task_client import EXTENSION

Json = Any
AWAY: Final = 100.0
"""Longer than anything waits for the store."""
TASK: Final = "{task}"
"""Stands for the id of a task that runs."""
CLOCK: Final = {"uri": "data://clock"}
ASKED: Final[dict[str, Json]] = {
    "ping": {},
    "server/discover": {},
    "tools/list": {},
    "tools/call": {"name": "quick", "arguments": {}},
    "tools/call with a key": {"name": "quick", "arguments": {}, "_meta": {KEY: "key-of-this-call"}},
    "tools/call as a task": {"name": "work", "arguments": {}},
    "tools/call that is handed over": {"name": "slow", "arguments": {}},
    "tools/call that collects": {"name": "collect", "arguments": {"ticket": TASK}},
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": CLOCK,
    "resources/subscribe": CLOCK,
    "resources/unsubscribe": CLOCK,
    "prompts/list": {},
    "prompts/get": {"name": "greet"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "greet"},
        "argument": {"name": "who", "value": "a"},
    },
    "logging/setLevel": {"level": "error"},
    "subscriptions/listen": {"notifications": {"taskIds": [TASK]}},
    "tasks/get": {"taskId": TASK},
    "tasks/update": {"taskId": TASK, "inputResponses": {}},
    "tasks/cancel": {"taskId": TASK},
}
"""What clients ask. The first word is the method."""


def of(era: str) -> list[str]:
    """Return the requests that an era has."""

    def has(method: str) -> bool:
        return METHODS[method].sessionless if era == "2026" else METHODS[method].sessions

    return [one for one in ASKED if has(one.split(maxsplit=1)[0]) and not (era == "2025" and "key" in one)]


def test_no_method_of_a_client_is_forgotten() -> None:
    sent = {
        name
        for name, method in METHODS.items()
        if method.sender is not From.SERVER and not method.notification
    }
    assert {one.split(maxsplit=1)[0] for one in ASKED} == sent - {"initialize"}


def make() -> Server:
    server = Server("away", state="principal")

    @server.tool
    async def quick(ctx: Context) -> str:
        await ctx.progress(1, 2)
        return "done"

    @server.tool(task="optional")
    async def work() -> str:
        await asyncio.sleep(1_000)
        return "worked"

    @server.tool
    async def slow() -> str:
        await asyncio.sleep(50)
        return "late"

    @server.resource("data://clock")
    async def clock(ctx: Context) -> str:
        return str(await ctx.state.get("hour"))

    @server.prompt
    async def greet(ctx: Context, who: str = "") -> str:
        return f"{who} {await ctx.state.get('hour')}"

    @server.completion(prompt="greet", argument="who")
    async def whos(value: str) -> list[str]:
        return [value]

    return server


class Client:
    """One client of one server, on one kind of connection, in one era."""

    def __init__(self, server: Server, engine: Engine, era: str, front: str) -> None:
        self._era = era
        self._peer = Peer(server.asgi()) if front == "http" else None
        self._wire = DuplexClient(engine, Caller(ANONYMOUS)) if front == "duplex" else None
        self._ids = iter(range(1, 100))

    async def open(self) -> None:
        if self._era == "2026":
            return
        if self._peer is not None:
            await self._peer.initialize()
        else:
            assert self._wire is not None
            await self._wire.open()

    async def ask(self, method: str, params: Json) -> tuple[int, Json]:
        """Return the HTTP status, or 0, and the answer; for a listener, its first message."""
        number = next(self._ids)
        if self._era == "2026":
            params = {**params, "_meta": {**metadata(capabilities=EXTENSION), **params.get("_meta", {})}}
        if self._wire is not None:
            await self._wire.say(method, number, **params)
            listens = method == "subscriptions/listen"
            return 0, await (self._first() if listens else self._wire.answer(number))
        assert self._peer is not None
        if self._era == "2026":
            call = self._peer.sessionless(method, params, id=number, meta=params["_meta"])
        else:
            call = self._peer.post(request(number, method, params))
        async for message in call.arriving():
            if method == "subscriptions/listen" or message.get("id") == number:
                call.leave()
                return call.status, message
        return call.status, None

    async def _first(self) -> Json:
        assert self._wire is not None
        async with self._wire.arrived:
            await self._wire.arrived.wait_for(lambda: self._wire is not None and bool(self._wire.received))
        return self._wire.received[0]


@asynccontextmanager
async def fresh(era: str, front: str) -> AsyncIterator[tuple[Client, ScriptedStore, str]]:
    """Yield a client, its store, and the id of a task that runs."""
    server, store = make(), ScriptedStore(is_shared=True)
    settings = Settings(hand_over=2.0, times=Times(task_poll=0.5))
    engine = Engine(server.back, settings, store=store, clock=LoopClock(), random=SeededRandom(1))
    server._engine = engine
    await engine.ensure_started()
    try:
        helper = Client(server, engine, "2026", "http")
        _, made = await helper.ask("tools/call", ASKED["tools/call as a task"])
        client = Client(server, engine, era, front)
        await client.open()
        yield client, store, made["result"]["taskId"]
    finally:
        store.recover()
        await engine.aclose()


def with_task(value: Json, task: str) -> Json:
    """Return params that name a task in fact."""
    if isinstance(value, dict):
        return {name: with_task(one, task) for name, one in value.items()}
    if isinstance(value, list):
        return [with_task(one, task) for one in value]
    return task if value == TASK else value


async def asked(era: str, front: str, what: str, failing: str = "") -> tuple[int, Json, set[str]]:
    """Ask while a command fails; return status, answer, and the commands that were used meanwhile."""
    async with fresh(era, front) as (client, store, task):
        store.log.clear()
        if failing:
            store.fail(failing, error=StoreUnavailable("on purpose"))
            asyncio.get_running_loop().call_later(AWAY, store.recover)
        status, answer = await client.ask(what.split(maxsplit=1)[0], with_task(ASKED[what], task))
        return status, answer, {name for name in store.log if " " not in name}


@pytest.mark.parametrize("front", ["http", "duplex"])
@pytest.mark.parametrize(
    ("era", "what"), [(era, what) for era in ("2025", "2026") for what in of(era)], ids=str
)
@virtual_test_within(100_000)
async def test_if_one_command_of_the_store_fails_the_answer_is_right_or_busy(
    era: str, what: str, front: str
) -> None:
    _, usual, commands = await asked(era, front, what)
    assert "error" not in usual, usual
    for command in sorted(commands):
        status, answer, _ = await asked(era, front, what, command)
        error = (answer or {}).get("error")
        if error is None:
            assert answer is not None, (command, status)
            assert not answer.get("result", {}).get("isError"), (command, answer)
        else:
            assert (error["code"], status) in {(BUSY, 0), (BUSY, 200), (BUSY, 503)}, (command, status, answer)
