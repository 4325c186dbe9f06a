"""Slow calls of a server behind are handed over too, in all combinations of eras; the connection behind stays until they end."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

from holdfast import Context, Server, Settings
from holdfast.backs.proxy.options import ProxyOptions
from holdfast.client import Task
from holdfast.config import Times
from tests.backs.behind import Behind, in_front
from tests.support import until, virtual_test_within

SETTINGS: Final = Settings(hand_over=45, times=Times(task_poll=5))
NAME: Final = {"type": "object", "properties": {"name": {"type": "string"}}}
SESSION, SESSIONLESS = "2025-11-25", "2026-07-28"
slow_test = virtual_test_within(10_000)


class Slow:
    def __init__(self) -> None:
        self.runs = 0
        self.stopped = 0
        self.server = Server("slow")

        @self.server.tool
        async def work(seconds: float, ctx: Context) -> dict[str, float]:
            """Work silently, and say once how far it is."""
            self.runs += 1
            await asyncio.sleep(40)
            await ctx.progress(4, 60)
            try:
                await asyncio.sleep(seconds - 40)
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
            assert 4 in seen
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
        ticket = answer["structuredContent"]["ticket"]
        async with front.client(SESSION, timeout=10_000) as second:
            arguments: dict[str, Any] = {"ticket": ticket}
            while "ticket" in answer["structuredContent"]:
                answer = await second.request("tools/call", {"name": "collect", "arguments": arguments})
            assert answer["structuredContent"] == {"seconds": 600.0}
        await until(_is(behind, 0))
        assert slow.stopped == 0


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
