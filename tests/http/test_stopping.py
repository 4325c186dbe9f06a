"""Ctrl+C and SIGTERM while calls run: the process prints the calls that it waits for, and ends in time."""

import asyncio
import signal
import time
from pathlib import Path
from typing import Final

import pytest

from limpet import Client as OurClient
from limpet import McpError
from tests.http.client import Client, http_test
from tests.http.serving import Process, limpet_serve
from tests.support import BOUND, async_test, wait_until

SERVER: Final = """
import asyncio, time
from limpet import Server

server = Server("stopping")

@server.tool
def block(seconds: float) -> str:
    time.sleep(seconds)
    return "never"

@server.tool
async def wait(seconds: float) -> str:
    print("the call has begun", flush=True)
    await asyncio.sleep(seconds)
    return "waited"
"""


def says(process: Process, text: str) -> bool:
    return text in process.output()


@pytest.fixture
def target(tmp_path: Path) -> str:
    (tmp_path / "stopping.py").write_text(SERVER)
    return f"{tmp_path / 'stopping.py'}:server"


@http_test
async def test_a_blocked_function_does_not_outlast_the_drain_time(target: str) -> None:
    with limpet_serve(target, "--drain", "1") as process:
        await (await Client.opened(process.port)).start("block", seconds=60.0)
        began = time.monotonic()
        assert await asyncio.to_thread(process.terminate, BOUND) == 0
        assert time.monotonic() - began < 40


def _stop_at_once(process: Process) -> None:
    """Press Ctrl+C twice."""
    process.tell(signal.SIGINT)
    wait_until(
        lambda: says(process, "Stopping: 1 call is running (wait); waiting up to 30 s. Press Ctrl+C again")
    )
    process.tell(signal.SIGINT)
    assert process.ended(BOUND) == 0


@http_test
async def test_ctrl_c_prints_the_running_calls_and_a_second_ctrl_c_ends_them_with_an_answer(
    target: str,
) -> None:
    with limpet_serve(target) as process:
        client = await Client.opened(process.port)
        running = await client.start("wait", seconds=60.0)
        await asyncio.to_thread(_stop_at_once, process)
        assert (await running.answer())["error"]["code"] == -32800


@async_test
async def test_a_second_ctrl_c_answers_calls_of_2026_07_28_too(target: str) -> None:
    with limpet_serve(target) as process:
        async with OurClient(f"http://127.0.0.1:{process.port}/mcp", protocol_version="2026-07-28") as client:
            running = asyncio.create_task(client.call_tool("wait", {"seconds": 60.0}))
            await asyncio.to_thread(wait_until, lambda: says(process, "the call has begun"))
            stopping = asyncio.create_task(asyncio.to_thread(_stop_at_once, process))
            with pytest.raises(McpError, match="the server is stopping"):
                await running
            await stopping
