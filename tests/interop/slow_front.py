"""Servers whose calls are all handed over, with output schemas of several kinds: functions, a program and a URL.

python slow_front.py native|child     on stdio
limpet serve slow_front.py:NAME       over HTTP: native, child, url or hosted

Both backs wait for a file before they return. It is written when a call was handed over, so no call ends before that.
"""

import asyncio
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from typing_extensions import override

from limpet import Context, Hosted, Process, Remote, Server, Settings, Times
from limpet.ops.log import LogObserver

ROOT = Path(__file__).parents[2]
FOLDER = os.environ["SLOW_FOLDER"]
RELEASE = Path(FOLDER) / "handed-over"
PEER = [str(ROOT / ".peers/mcp2/bin/python"), str(Path(__file__).with_name("slow_peer.py")), FOLDER]


class Releasing(LogObserver):
    """Lets the call end that was handed over."""

    @override
    def note(self, event: str, /, **facts: object) -> None:
        """Write the file."""
        if event == "call.handed_over":
            RELEASE.touch()
        super().note(event, **facts)


SHARED: Any = {
    "namespace": "slow",
    "settings": Settings(
        hand_over=0.2,
        hand_over_tools={"bump": "off", "order": "off"},
        affinity="meta:test/conversation",
        state="conversation",
        times=Times(lease=4.0, lease_renewal=0.4, sweep=0.2, task_poll=0.2, drain=8, drain_notice=0),
    ),
    "observer": Releasing(),
}
server = native = Server("slow", **SHARED)
child = Process(PEER, shared=True, **SHARED)
url = Remote(os.environ.get("SLOW_URL", "http://127.0.0.1:1/mcp"), **SHARED)
orders = 0


def _hosted() -> Hosted:
    """Return the object of `mcp` 1. Its package comes after ours on the path, because both run in this process."""
    sys.path += [str(found) for found in (ROOT / ".peers/mcp1/lib").glob("python3*/site-packages")]
    spec = importlib.util.spec_from_file_location("slow_peer", Path(__file__).with_name("slow_peer.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Hosted(module.mcp, forward_key=os.environ["SLOW_KEY"], **SHARED)


if "SLOW_KEY" in os.environ:
    hosted = _hosted()


class Branch(BaseModel):
    """A tree: its schema refers to itself."""

    name: str
    branches: list["Branch"] = []


async def _handed_over() -> None:
    """Work until this call was handed over."""
    while not RELEASE.exists():
        await asyncio.sleep(0.02)
    RELEASE.unlink()


@native.tool
async def tree() -> Branch:
    """Return a structure."""
    await _handed_over()
    return Branch(name="root", branches=[Branch(name="leaf")])


@native.tool
async def word() -> str:
    """Return a plain value, which is wrapped."""
    await _handed_over()
    return "done"


@native.tool
async def hang() -> str:
    """Work for longer than any test."""
    await asyncio.sleep(3600)
    return "never"


@native.tool
async def work(seconds: float) -> str:
    """Work for so long."""
    await asyncio.sleep(seconds)
    return f"worked {seconds:g} s"


@native.tool
async def order(dish: str) -> str:
    """Order a dish, and say how many were ordered."""
    global orders  # noqa: PLW0603 - the test asks how often the body ran
    orders += 1
    return f"{dish} {orders}"


@native.tool
async def bump(ctx: Context) -> int:
    """Count in the conversation."""
    return await ctx.state.incr("n")


if __name__ == "__main__":
    {"native": native, "child": child}[sys.argv[1]].run()
