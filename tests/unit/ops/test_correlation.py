"""Each error that an operator may be asked about has a correlation id; the log line and the ring have the same one."""

import asyncio
import sys
from contextlib import aclosing
from typing import Any

import pytest

from limpet import Client, Process, Remote, Server, Settings, Times
from limpet.config import RateLimits
from limpet.errors import McpError
from limpet.ops.figures import Figures
from limpet.ops.operated import Operated
from limpet.ops.ring import Happened, Ring
from limpet.server.served import Served
from limpet.testing.store.limits import tight
from tests.asgi import Peer
from tests.messages import request
from tests.spans import traced
from tests.stores import ScriptedStore
from tests.support import async_test, until, virtual_test
from tools.ports import free_port

ERAS = pytest.mark.parametrize("era", ["sessions", "sessionless"])


def operated(server: Served) -> Ring:
    ring = Ring()
    server.operate(Operated(ring=ring, figures=Figures()))
    return ring


def a_server(**options: Any) -> Server:
    server = Server("joined", **options)

    @server.tool
    async def hang() -> str:
        await asyncio.Event().wait()
        return ""

    @server.prompt
    async def crash() -> str:
        raise ValueError("a secret")

    @server.tool
    async def echo() -> str:
        return "x"

    return server


def found(ring: Ring, error: Any) -> Happened:
    """Return the only event of the correlation id that a client received."""
    data: Any = error.data if isinstance(error, McpError) else error["data"]
    (happened,) = ring.with_correlation(data["correlation"])
    return happened


@ERAS
@async_test
async def test_an_internal_error(era: str) -> None:
    server = a_server(settings=Settings(mask_errors=True))
    ring = operated(server)
    async with Client(server, protocol_version=era) as client:
        with pytest.raises(McpError) as caught:
            await client.get_prompt("crash")
    happened = found(ring, caught.value)
    assert happened.event == "handler.failed"
    assert happened.facts["correlation"] in str(caught.value)


@pytest.mark.parametrize("is_masked", [False, True])
@ERAS
@async_test
async def test_a_tool_that_raises(era: str, is_masked: bool) -> None:
    server = a_server(mask_errors=is_masked)
    ring = operated(server)

    @server.tool
    async def fall() -> str:
        raise ValueError("a secret")

    async with Client(server, protocol_version=era, raise_on_error=False) as client:
        answer = await client.call_tool("fall")
        wrong = await client.call_tool("echo", {"unknown": 1})
    (happened,) = ring.with_correlation((answer.meta or {})["limpet/correlation"])
    assert happened.event == "handler.failed"
    assert (happened.facts["correlation"] in answer.text) is is_masked
    assert "limpet/correlation" not in (wrong.meta or {}), "it has no line in the log"


@ERAS
@async_test
async def test_a_span_has_the_correlation_id_of_its_error(era: str) -> None:
    with traced() as spans:
        server = a_server()
        ring = operated(server)
        async with Client(server, protocol_version=era) as client:
            with pytest.raises(McpError) as caught:
                await client.get_prompt("crash")
    correlation = found(ring, caught.value).facts["correlation"]
    for kind in ("CLIENT", "SERVER"):
        assert (spans.one("prompts/get crash", kind).attributes or {})["limpet.correlation"] == correlation


@pytest.mark.parametrize("transport", ["pipe", "http"])
@ERAS
@async_test
async def test_a_busy_server(era: str, transport: str) -> None:
    server = a_server(
        settings=Settings(limits=tight(running=1, queued=0, sessionless_calls=1), times=Times(drain=0))
    )
    ring = operated(server)
    if transport == "pipe":
        async with Client(server, protocol_version=era) as client:
            hanging = asyncio.create_task(client.call_tool("hang"))
            await until(lambda: bool(server.engine.live_exchanges()))
            with pytest.raises(McpError, match="Busy") as caught:
                await client.request("tools/call", {"name": "echo"})
            hanging.cancel()
        refused: Any = caught.value
    else:
        peer = Peer(server.asgi())
        if era == "sessions":
            await peer.initialize()
        calls = [_call(peer, era, number, tool) for number, tool in enumerate(("hang", "echo"))]
        refused = (await calls[1].done()).json["error"]
        await calls[0].cut()
        await server.engine.aclose()
    happened = found(ring, refused)
    assert (happened.event, happened.facts["reason"]) == ("audit.refused", "busy")
    if era == "sessions" and transport == "http":
        assert happened.facts["session"] in {
            one.facts["session"] for one in ring.after() if one.event == "session.opened"
        }


@virtual_test
async def test_a_call_that_waited_too_long_for_its_slot_is_refused_with_its_session() -> None:
    server = a_server(settings=Settings(in_order=True))
    ring = operated(server)
    async with Client(server, protocol_version="sessions") as client:
        hanging = asyncio.create_task(client.call_tool("hang"))
        await until(lambda: bool(server.engine.live_exchanges()))
        with pytest.raises(McpError, match="Busy") as caught:
            await client.request("tools/call", {"name": "echo"}, timeout=100)
        hanging.cancel()
    (opened,) = (one for one in ring.after() if one.event == "session.opened")
    assert found(ring, caught.value).facts["session"] == opened.facts["session"]


@ERAS
@async_test
async def test_a_rate_that_is_reached(era: str) -> None:
    server = a_server(settings=Settings(rates=RateLimits(principal="1/h")))
    ring = operated(server)
    peer = Peer(server.asgi())
    async with aclosing(server.engine):
        if era == "sessions":
            await peer.initialize()
        answers = [await _call(peer, era, number, "echo").done() for number in range(2)]
        happened = found(ring, answers[1].json["error"])
        assert (happened.event, happened.facts["reason"]) == ("audit.refused", "rate_principal")


@async_test
async def test_a_store_that_is_unavailable() -> None:
    store = ScriptedStore(is_shared=True)
    server = a_server(store=store)
    ring = operated(server)
    peer = Peer(server.asgi())
    await peer.initialize()
    store.fail("claim", times=1)
    answer = await _call(peer, "sessions", 1, "echo").done()
    assert answer.status == 503
    happened = found(ring, answer.json["error"])
    assert (happened.event, happened.facts["reason"]) == ("audit.refused", "store")


@pytest.mark.parametrize("back", ["process", "remote"])
@ERAS
@async_test
async def test_a_server_behind_that_cannot_be_used(era: str, back: str) -> None:
    behind: Served
    if back == "process":
        behind = Process([sys.executable, "-c", "import sys; sys.exit(3)"])
    else:
        behind = Remote(f"http://127.0.0.1:{free_port()}/mcp")
    ring = operated(behind)
    peer = Peer(behind.asgi())
    call = (
        peer.sessionless("tools/call", {"name": "echo"})
        if era == "sessionless"
        else peer.post(
            request(
                1,
                "initialize",
                {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "c", "version": "1"},
                },
            )
        )
    )
    async with aclosing(behind.engine):
        answered = await call.done()
        error = (answered.messages[-1] if answered.is_stream else answered.json)["error"]
        assert found(ring, error).event in {"call.unserved", "session.unserved"}


@ERAS
@async_test
async def test_a_server_behind_that_is_silent_leaves_the_outcome_unknown(era: str) -> None:
    program = "\n".join(  # noqa: FLY002 - a program, line by line
        [
            "import json, sys",
            "for line in sys.stdin:",
            "    asked = json.loads(line)",
            "    if asked.get('method') == 'initialize':",
            "        result = {'protocolVersion': '2025-11-25', 'capabilities': {'tools': {}}, 'serverInfo': {'name': 's', 'version': '1'}}",
            "        print(json.dumps({'jsonrpc': '2.0', 'id': asked['id'], 'result': result}), flush=True)",
            "    elif asked.get('method') == 'tools/call':",
            "        sys.exit(1)",
            "    elif 'id' in asked:",
            "        print(json.dumps({'jsonrpc': '2.0', 'id': asked['id'], 'error': {'code': -32601, 'message': 'no'}}), flush=True)",
        ]
    )
    behind = Process([sys.executable, "-c", program])
    ring = operated(behind)
    async with Client(behind, protocol_version=era) as client:
        with pytest.raises(McpError) as caught:
            await client.request("tools/call", {"name": "echo"}, idempotent=False)
    assert caught.value.code == -31002
    happened = found(ring, caught.value)
    assert (happened.event, happened.facts["tool"]) == ("call.unknown", "echo")


def _call(peer: Peer, era: str, number: int, tool: str) -> Any:
    if era == "sessionless":
        return peer.sessionless("tools/call", {"name": tool}, id=number)
    return peer.call(number, tool)
