"""The view of an operator on a server behind: whether it can be used, and how often it was started again."""

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Final

import pytest

from limpet import Client, Process
from limpet.errors import McpError
from limpet.ops.figures import Figures
from limpet.ops.fleet import FleetView
from limpet.ops.operated import Operated
from limpet.ops.ring import Ring
from limpet.ops.served_process import Part
from limpet.ops.views import UpstreamView
from tests.support import async_test, until

PROGRAM: Final = """
import json, pathlib, sys, time
here = pathlib.Path(sys.argv[1])
(here / "began").touch()
while not (here / "gate").exists():
    time.sleep(0.01)
if (here / "broken").exists():
    sys.exit(1)
for line in sys.stdin:
    asked = json.loads(line)
    result = {"tools": []}
    if asked["method"] == "initialize":
        info = {"name": "s", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if asked["method"] == "tools/call":
        sys.exit(1)
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
"""It starts when a file is there, and ends with each call."""


@async_test
async def test_a_start_is_no_failure_and_an_end_is_no_restart(tmp_path: Path) -> None:
    behind, ring = Process([sys.executable, "-c", PROGRAM, str(tmp_path)]), Ring()
    operated = Operated(ring=ring, figures=Figures())
    behind.operate(operated)
    fleet = FleetView([Part("behind", "1", "memory", behind.engine, operated)], ring)

    async def shown() -> UpstreamView:
        fleet._round = None
        (view,) = (await fleet.state("", 0)).upstreams
        return view

    client = Client(behind, protocol_version="sessions")
    async with aclosing(client):
        opening = asyncio.ensure_future(client.__aenter__())
        async with aclosing(behind.engine):
            await until((tmp_path / "began").exists)
            assert (await shown()).state == "starting"
            (tmp_path / "gate").touch()
            await opening
            for restarts in (0, 1):
                with pytest.raises(McpError):
                    await client.request("tools/call", {"name": "end"}, idempotent=False)
                assert (await shown()).restarts == restarts, "it has ended, and the next request starts it"
                if not restarts:
                    await client.list_tools()
            (tmp_path / "broken").touch()
            with pytest.raises(McpError):
                await Client(behind, protocol_version="sessions").__aenter__()
            assert (await shown()).state == "failing"
