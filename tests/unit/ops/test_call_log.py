"""The watch: one log line for each call, with bounds, and the figures."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from limpet import Context, Server
from limpet.client import Client
from limpet.config import HttpSettings
from limpet.errors import ConfigError, McpError, ToolError
from limpet.ops.figures import NAMES, Figures
from limpet.ops.log import LINES
from limpet.ops.operated import Operated
from limpet.ops.ring import Ring
from limpet.stores.base import NoState, NoTasks
from limpet.stores.memory import MemoryStore
from limpet.testing import VirtualClock
from tests.asgi import Peer
from tests.messages import metadata
from tests.support import async_test, until
from tests.unit.server.peer import connected


def watched(ring: Ring, figures: Figures | None = None, clock: VirtualClock | None = None) -> Server:
    server = Server("watched")
    server.operate(Operated(clock, ring=ring, figures=figures))

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def refuse() -> str:
        raise ToolError("no")

    @server.tool
    async def crash() -> str:
        raise ValueError("secret detail")

    @server.tool
    async def hang(ctx: Context) -> str:
        await asyncio.Event().wait()
        return ""

    return server


def calls(ring: Ring) -> list[dict[str, Any]]:
    return [dict(happened.facts) for happened in ring.after() if happened.event.startswith("call.")]


@pytest.mark.parametrize("mode", ["sessions", "sessionless"])
@async_test
async def test_each_call_is_one_line_with_its_tool_client_era_and_outcome(mode: str) -> None:
    ring, figures = Ring(), Figures()
    async with Client(watched(ring, figures), protocol_version=mode, raise_on_error=False) as client:
        await client.call_tool("echo", {"text": "private words"})
        for tool in ("refuse", "crash"):
            await client.call_tool(tool)
        with pytest.raises(McpError):
            await client.call_tool("absent")
    lines = [line for line in calls(ring) if "tool" in line]
    assert [(line["tool"], line["outcome"]) for line in lines] == [
        ("echo", "ok"),
        ("refuse", "tool_error"),
        ("crash", "tool_error"),
        ("absent", "error"),
    ]
    era = "session" if mode == "sessions" else "sessionless"
    assert {(line["client"], line["era"], "session" in line) for line in lines} == {
        ("limpet", era, mode == "sessions")
    }
    assert "private words" not in str(ring.after())
    counted = {
        labels[1:]: durations.count for labels, durations in figures.calls() if labels[0] == "tools/call"
    }
    # Tools that the server has listed have rows of their own. The client has read the list before its first call.
    assert counted == {
        ("echo", era, "ok"): 1,
        ("refuse", era, "tool_error"): 1,
        ("crash", era, "tool_error"): 1,
        ("other", era, "error"): 1,
    }


@async_test
async def test_a_tool_that_was_never_listed_and_only_fails_has_a_row_of_its_own() -> None:
    figures = Figures()
    server = watched(Ring(), figures)
    peer = Peer(server.front(HttpSettings()))
    async with aclosing(server.engine):
        for tool in ("crash", "absent"):
            await peer.sessionless("tools/call", {"name": tool}, meta=metadata()).done()
        assert {labels[1] for labels, _ in figures.calls()} == {"crash", "other"}


@async_test
async def test_a_call_that_is_cancelled_has_a_line_and_is_no_longer_running() -> None:
    ring = Ring()
    server = watched(ring)
    async with Client(server) as client:
        hanging = asyncio.ensure_future(client.call_tool("hang"))

        def tools() -> list[str]:
            running = (exchange for exchange in server.engine.live_exchanges() if exchange.began is not None)
            return [exchange.request.params["name"] for exchange in running]

        await until(lambda: tools() == ["hang"])
        hanging.cancel()
        await until(lambda: not tools())
    assert [(line["tool"], line["outcome"]) for line in calls(ring)[-1:]] == [("hang", "cancelled")]


@async_test
async def test_failures_are_logged_while_the_lines_of_successes_are_left_out() -> None:
    ring, clock = Ring(), VirtualClock()
    async with Client(
        watched(ring, clock=clock), protocol_version="sessionless", raise_on_error=False
    ) as client:
        for _ in range(LINES + 5):
            await client.call_tool("echo", {"text": ""})
        for _ in range(LINES + 5):
            await client.call_tool("refuse")
        clock.advance(1)
        await client.call_tool("echo", {"text": ""})
    lines = [line for line in calls(ring) if "tool" in line]
    failures = [line for line in lines if line["outcome"] == "tool_error"]
    assert len(failures) == LINES + 5
    assert len(lines) - len(failures) <= LINES + 1
    assert int(lines[-1]["left_out"]) >= 5


def test_names_that_clients_choose_do_not_make_the_figures_grow() -> None:
    figures = Figures()
    for number in range(NAMES + 50):
        figures.call("tools/call", f"failing {number}", "session", "error", 0.1)
        figures.call(f"method/{number}", "", "session", "error", 0.1)
        figures.call("tools/call", f"tool {number}", "session", "ok", 0.1)
    rows = [labels for labels, _ in figures.calls()]
    assert len(rows) == NAMES + 3
    assert ("tools/call", "other", "session", "error") in rows
    assert ("other", "", "session", "error") in rows


class Bare(NoState, NoTasks, MemoryStore):
    """A store that keeps neither state nor tasks."""


@pytest.mark.parametrize(
    ("options", "part"),
    [({"state": "principal"}, "state"), ({"hand_over": 5.0}, "tasks")],
    ids=["state", "hand-over"],
)
@async_test
async def test_a_watched_server_does_not_start_on_a_store_without_the_parts_that_it_needs(
    options: dict[str, Any], part: str
) -> None:
    server = Server("app", store=Bare(), **options)
    server.operate(Operated(figures=Figures()))
    with pytest.raises(ConfigError, match=f"Bare keeps no {part}"):
        await server.engine.ensure_started()


@async_test
async def test_a_call_that_is_handed_over_has_one_line_when_its_handler_ends() -> None:
    ring, finish = Ring(), asyncio.Event()
    server = Server("slow", hand_over=0.05)
    server.operate(Operated(ring=ring))

    @server.tool
    async def wait() -> str:
        await finish.wait()
        return "finished"

    async with connected(server) as peer:
        result = await peer.request("tools/call", {"name": "wait", "arguments": {}})
        assert not [line for line in calls(ring) if "outcome" in line]
        finish.set()
        ticket = result["structuredContent"]["ticket"]
        collected = await peer.request("tools/call", {"name": "collect", "arguments": {"ticket": ticket}})
        assert collected["content"][0]["text"] == "finished"
    assert [(line["tool"], line["outcome"]) for line in calls(ring) if "outcome" in line] == [("wait", "ok")]
