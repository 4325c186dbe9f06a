"""Slow calls of a server behind are handed over too, in all combinations of eras; the connection behind stays until they end."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final

import pytest

from limpet import Context, Server, Settings
from limpet.auth import Principal
from limpet.backs.proxy.back import ProxyBack
from limpet.backs.proxy.options import ProxyOptions
from limpet.backs.proxy.scopes import ScopeTable
from limpet.backs.shown import shown_back
from limpet.client import Task
from limpet.config import HttpSettings, Times
from limpet.engine.engine import Engine
from limpet.errors import INSUFFICIENT_SCOPE
from limpet.fronts.http.front import HttpFront
from limpet.ops.waits import waits_for
from limpet.ports import Ports, SystemRandom
from limpet.testing import NotingObserver
from tests.asgi import Call, Peer
from tests.backs.behind import Behind, in_front
from tests.messages import metadata
from tests.support import LoopClock, until, virtual_test_within
from tests.unit.server.task_client import TASKS

SETTINGS: Final = Settings(hand_over=45, times=Times(task_poll=5))
NAME: Final = {"type": "object", "properties": {"name": {"type": "string"}}}
SESSION, SESSIONLESS = "2025-11-25", "2026-07-28"
slow_test = virtual_test_within(10_000)


class Slow:
    def __init__(self, settings: Settings | None = None) -> None:
        self.runs = 0
        self.stopped = 0
        self.server = Server("slow", settings=settings or Settings())

        @self.server.tool
        async def work(seconds: float, ctx: Context) -> dict[str, float]:
            """Work silently, and say before and after the hand-over how far it is."""
            self.runs += 1
            await asyncio.sleep(40)
            await ctx.progress(4, 60)
            try:
                await asyncio.sleep((seconds - 40) / 2)
                await ctx.progress(30, 60)
                await asyncio.sleep((seconds - 40) / 2)
            except asyncio.CancelledError:
                self.stopped += 1
                raise
            return {"seconds": seconds}

        @self.server.tool
        async def ask(ctx: Context) -> str:
            await asyncio.sleep(100)
            answer = await ctx.elicit("who?", NAME)
            return f"{answer.action} {(answer.data or {}).get('name')}"

        @self.server.tool
        def collect() -> str:
            return "theirs"


def user(_asked: object) -> dict[str, str]:
    return {"name": "Ada"}


@pytest.mark.parametrize("behind", [SESSION, SESSIONLESS])
@pytest.mark.parametrize("client", [SESSION, SESSIONLESS, "tasks"])
@slow_test
async def test_a_tool_of_ten_minutes_behind_is_collected(client: str, behind: str) -> None:
    slow = Slow()
    async with in_front(Behind(slow.server, behind), settings=SETTINGS) as front:
        version = SESSIONLESS if client == "tasks" else client
        declared: dict[str, Any] = {"capabilities": {"extensions": {}}} if client == "tasks" else {}
        async with front.client(version, timeout=10_000, elicitation=user, **declared) as caller:
            if version == SESSIONLESS:
                assert TASKS in (await caller.request("server/discover"))["capabilities"]["extensions"]
            if client == "tasks":
                caller.declare_tasks()
                assert isinstance(await caller.start_tool("work", {"seconds": 50}), Task)
            tools = [tool.name for tool in await caller.list_tools()]
            assert tools.count("collect") == 1
            seen: list[float] = []
            result = await caller.call_tool(
                "work", {"seconds": 600}, progress=lambda done, _total, _message: seen.append(done)
            )
            assert result.structured_content == {"seconds": 600.0}
            assert {4, 30} <= set(seen)
            assert (await caller.call_tool("ask")).text == "accept Ada"
        assert slow.runs == (2 if client == "tasks" else 1)
    assert len(front.notes.named("tool.hidden")) == 1


@slow_test
async def test_the_connection_behind_stays_until_a_call_of_a_closed_session_ends() -> None:
    slow = Slow()
    behind = Behind(slow.server, SESSION)
    async with in_front(behind, settings=SETTINGS) as front:
        async with front.client(SESSION, timeout=10_000) as first:
            answer = await first.request("tools/call", {"name": "work", "arguments": {"seconds": 600}})
        assert behind.living == 1
        assert "4 of 60" in answer["content"][0]["text"], "also to a client that wants no progress"
        ticket = answer["structuredContent"]["ticket"]
        async with front.client(SESSION, timeout=10_000) as second:
            arguments: dict[str, Any] = {"ticket": ticket}
            while "ticket" in answer["structuredContent"]:
                answer = await second.request("tools/call", {"name": "collect", "arguments": arguments})
            assert answer["structuredContent"] == {"seconds": 600.0}
        await until(_is(behind, 0))
        assert slow.stopped == 0


@slow_test
async def test_the_connection_behind_stays_at_most_for_the_time_of_a_task() -> None:
    slow = Slow()
    behind = Behind(slow.server, SESSION)
    settings = Settings(hand_over=45, times=Times(task=1_000, task_poll=5))
    async with in_front(behind, settings=settings) as front:
        async with front.client(SESSION, timeout=10_000) as first:
            await first.request("tools/call", {"name": "work", "arguments": {"seconds": 100_000}})
        await asyncio.sleep(900)
        assert (behind.living, slow.stopped) == (1, 0)
        assert [waits_for(exchange) for exchange in front.engine.live_exchanges()] == ["upstream"]
        await asyncio.sleep(200)
        assert (behind.living, slow.stopped) == (0, 1)


@slow_test
async def test_a_cancelled_call_is_cancelled_behind_and_its_connection_ends() -> None:
    slow = Slow()
    behind = Behind(slow.server, SESSION)
    async with in_front(behind, ProxyOptions(call_seconds=100), SETTINGS) as front:
        async with front.client(SESSION, timeout=10_000) as first:
            answer = await first.request("tools/call", {"name": "work", "arguments": {"seconds": 600}})
        ticket = answer["structuredContent"]["ticket"]
        await asyncio.sleep(200)
        assert slow.stopped == 0
        async with front.client(SESSION) as second:
            await second.request(
                "tools/call", {"name": "collect", "arguments": {"ticket": ticket, "cancel": True}}
            )
        await until(_is(behind, 0))
        assert slow.stopped == 1


def _is(behind: Behind, living: int) -> Callable[[], bool]:
    return lambda: behind.living == living


@slow_test
async def test_the_scopes_of_a_tool_behind_apply_to_its_task_and_its_ticket() -> None:
    async def verifier(token: str) -> Principal:
        return Principal(subject="ada", scopes=frozenset(token.split("+")))

    slow, clock, notes = Slow(), LoopClock(), NotingObserver()
    table = ScopeTable(tools={"work": ["deep"]})
    ports = Ports(clock, SystemRandom(), notes)
    back = ProxyBack(Behind(slow.server, SESSIONLESS), ProxyOptions(), ports, table)
    engine = Engine(shown_back(back, None, back.is_hidden, notes), SETTINGS, clock=clock, observer=notes)
    app = HttpFront(engine, HttpSettings(), verifier=verifier)
    meta = metadata(capabilities={"extensions": {TASKS: {}}})

    async def ask(token: str, method: str, **params: Any) -> Call:
        return await Peer(app, token=token).sessionless(method, params, meta=meta).done()

    async with aclosing(engine):
        created = await ask("deep", "tools/call", name="work", arguments={"seconds": 100})
        task_id = created.received[-1]["result"]["taskId"]
        for method in ("tasks/get", "tasks/cancel"):
            refused = await ask("none", method, taskId=task_id)
            assert (refused.status, refused.json["error"]["code"]) == (403, INSUFFICIENT_SCOPE), method
        refused = await ask("none", "tools/call", name="collect", arguments={"ticket": task_id})
        assert (refused.status, refused.received[-1]["error"]["code"]) == (403, INSUFFICIENT_SCOPE)
        await asyncio.sleep(100)
        got = await ask("deep", "tasks/get", taskId=task_id)
        assert got.json["result"]["result"]["structuredContent"] == {"seconds": 100.0}


@pytest.mark.parametrize("collect_tool", ["collect", "fetch"])
@pytest.mark.parametrize("version", [SESSION, SESSIONLESS])
@slow_test
async def test_a_server_behind_that_hands_over_itself_loses_no_result(
    version: str, collect_tool: str
) -> None:
    slow = Slow(Settings(hand_over=20, collect_tool="fetch"))
    settings = Settings(hand_over=45, times=Times(task_poll=5), collect_tool=collect_tool)
    async with in_front(Behind(slow.server, version), settings=settings) as front:
        async with front.client(version, timeout=10_000, elicitation=user) as caller:
            assert [tool.name for tool in await caller.list_tools()].count(collect_tool) == 1
            seen: list[float] = []
            result = await caller.call_tool(
                "work", {"seconds": 600}, progress=lambda done, _total, _message: seen.append(done)
            )
            assert result.structured_content == {"seconds": 600.0}
            assert {4, 30} <= set(seen)
            assert (await caller.call_tool("ask")).text == "accept Ada"
        assert slow.runs == 1


@pytest.mark.parametrize("wait", [43, 100])
@slow_test
async def test_a_cancellation_reaches_the_call_that_a_server_behind_has_handed_over(wait: int) -> None:
    """Before and after the server in front has handed it over too."""
    slow = Slow(Settings(hand_over=20, collect_tool="fetch"))
    async with in_front(Behind(slow.server, SESSION), settings=SETTINGS) as front:
        async with front.client(SESSION, timeout=10_000) as caller:
            params: dict[str, Any] = {"name": "work", "arguments": {"seconds": 600}}
            calling = asyncio.ensure_future(caller.request("tools/call", params))
            await asyncio.sleep(wait)
            if calling.done():
                ticket = calling.result()["structuredContent"]["ticket"]
                arguments = {"ticket": ticket, "cancel": True}
                await caller.request("tools/call", {"name": "collect", "arguments": arguments})
            else:
                calling.cancel()
            await until(lambda: slow.stopped == 1)
        assert slow.runs == 1
