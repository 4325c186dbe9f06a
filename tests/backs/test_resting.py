"""Upstreams of sessions that rest: they end when they were not used for a time, and come back with the next call."""

import asyncio
import os
import sys
import textwrap
from pathlib import Path

import pytest

from limpet import Client, Context, Process, Server
from limpet.backs.proxy.options import ProxyOptions
from limpet.errors import ConfigError
from tests.backs.behind import Behind, in_front
from tests.support import async_test, until, virtual_test_within

RESTING = ProxyOptions(session_idle=100)


def notebook() -> Server:
    server = Server("notebook")

    @server.tool
    async def work(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "worked"

    @server.tool
    async def level(ctx: Context) -> str:
        await ctx.debug("detail")
        return "said"

    @server.resource("memo://one")
    def memo() -> str:
        return "one"

    return server


@pytest.mark.parametrize("shared", [False, True])
@virtual_test_within(3_000)
async def test_the_upstream_of_an_unused_session_ends_and_comes_back_with_the_next_call(shared: bool) -> None:
    behind, logs, changes = Behind(notebook()), list[object](), list[str]()
    options = ProxyOptions(session_idle=100, shared=shared)
    async with (
        in_front(behind, options) as front,
        front.client(
            "sessions",
            timeout=1_000,
            on_log=lambda message: logs.append(message["data"]),
            on_notification=lambda method, _params: changes.append(method),
        ) as client,
    ):
        await client.set_log_level("debug")
        assert (await client.call_tool("work", {"seconds": 200})).text == "worked"
        await asyncio.sleep(90)
        assert behind.living == 1
        await asyncio.sleep(20)
        assert (behind.living, len(front.back.upstreams)) == (0, 0)
        # The session is open, and has the settings that it had.
        await client.ping()
        assert behind.living == 0
        assert (await client.call_tool("level")).text == "said"
        assert behind.living == 1
        await until(lambda: "notifications/tools/list_changed" in changes)
        if not shared:
            await until(lambda: logs == ["detail"])


@virtual_test_within(3_000)
async def test_a_call_that_runs_longer_than_the_idle_time_keeps_the_upstream_for_the_next_call() -> None:
    behind = Behind(notebook())
    async with in_front(behind, RESTING) as front, front.client("sessions", timeout=1_000) as client:
        call = asyncio.create_task(client.call_tool("work", {"seconds": 280}))
        await asyncio.sleep(250)
        await client.call_tool("work", {"seconds": 0})
        assert len(behind.clients) == 1
        assert (await call).text == "worked"
        assert len(behind.clients) == 1


@virtual_test_within(3_000)
async def test_a_session_that_is_subscribed_to_a_resource_keeps_its_upstream() -> None:
    server = notebook()
    behind = Behind(server)
    async with in_front(behind, RESTING) as front, front.client("sessions") as client:
        async with client.listen(resources=["memo://one"]) as changes:
            await asyncio.sleep(500)
            assert behind.living == 1
            await server.resource_updated("memo://one")
            assert (await anext(changes)).uri == "memo://one"
        await asyncio.sleep(110)
        assert behind.living == 0


@async_test
async def test_the_child_of_an_unused_session_is_stopped_and_the_next_call_starts_another_one(
    tmp_path: Path,
) -> None:
    program = tmp_path / "pid.py"
    program.write_text(
        textwrap.dedent(
            """
            import json, os, sys

            for line in sys.stdin:
                message = json.loads(line)
                if "id" not in message:
                    continue
                described = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "pid", "version": "1"}}
                said = {"content": [{"type": "text", "text": str(os.getpid())}]}
                answers = {"initialize": {"result": described}, "tools/call": {"result": said}}
                answer = answers.get(message["method"], {"error": {"code": -32601, "message": "unknown"}})
                print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
            """
        )
    )
    server = Process([sys.executable, "-I", "-S", str(program)], child_idle=0.2)
    async with Client(server, protocol_version="sessions") as client:
        first = int((await client.call_tool("get")).text)
        await until(lambda: len(server.back.upstreams) == 0)
        await until(lambda: not is_alive(first))
        second = int((await client.call_tool("get")).text)
        assert second != first
    await server.engine.aclose()
    assert not is_alive(second)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_idle_time_that_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigError, match="above 0"):
        Process(["true"], child_idle=0)
    with pytest.raises(ConfigError, match="strict"):
        Process(["true"], child_idle=10, strict=True)
