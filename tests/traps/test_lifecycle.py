"""Traps of the lifecycle (docs/traps.md, 31 to 46)."""

import asyncio
import time

import pytest

from limpet.config import Limits, Settings, Times
from limpet.core.lifecycle import SessionInput
from limpet.errors import ConfigError
from limpet.stores.base import Claim, Claimed, SessionRecord
from limpet.stores.memory import MemoryStore
from tests.http.back import Config
from tests.http.client import Client, Connection, http_test, text
from tests.http.serving import Served, in_loop, process
from tests.messages import request
from tests.support import BOUND, async_test, stays, until

SHORT = Config(settings=Settings(times=Times(idle=0.4, sweep=0.05, drain=0.2)))


def life(served: Served) -> list[str]:
    return next(iter(served.back.life.values()))


class Hand:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time


@http_test
async def test_trap_31_idle_time_counts_from_the_last_completion_not_from_a_start() -> None:
    clock = Hand()
    async with in_loop(SHORT, clock) as served:
        client = await Client.opened(served.port)
        working = asyncio.create_task(client.call("gated", key="long work"))
        await until(lambda: served.back.runs["long work"] == 1)
        clock.time = 1.0
        await stays(lambda: life(served) == ["opened"], 0.2)  # several sweeps pass
        served.back.gates["long work"].set()
        assert await working == "long work through"
        assert await client.call("echo", text="alive") == "alive"
        clock.time = 2.0
        await until(lambda: life(served) == ["opened", "closed: idle"])


@http_test
async def test_trap_32_an_open_get_keeps_a_session() -> None:
    clock = Hand()
    async with in_loop(SHORT, clock) as served:
        client = await Client.opened(served.port)
        stream = await client.get()
        clock.time = 1.0
        await stays(lambda: life(served) == ["opened"], 0.2)  # several sweeps pass
        assert await client.call("echo", text="alive") == "alive"
        stream.connection.cut()
        await until(lambda: life(served)[-1] == "detached")
        clock.time = 2.0
        await until(lambda: life(served)[-1].startswith("closed"))


@http_test
async def test_trap_33_sessions_without_delete_end_by_themselves() -> None:
    assert Times().idle == 1_800, "on by default"
    clock = Hand()
    async with in_loop(SHORT, clock) as served:
        for _ in range(20):
            await Client.opened(served.port)
        clock.time = 1.0
        await until(lambda: not served.engine.runtime.sessions)
        assert "0 sessions" in repr(served.engine.runtime.store)


@pytest.mark.parametrize("idle", [0.0, -1.0, float("inf"), float("nan")])
def test_trap_34_a_cap_without_a_way_to_get_below_it_again_is_no_configuration(idle: float) -> None:
    with pytest.raises(ConfigError, match="idle"):
        Times(idle=idle)


@http_test
async def test_trap_35_a_failed_initialize_leaves_no_session() -> None:
    async with in_loop() as served:
        client = Client(served.port)
        bad = [
            {},
            {"protocolVersion": 5, "clientInfo": {"name": "x"}, "capabilities": {}},
            {"protocolVersion": "2025-11-25", "capabilities": {}},
            {"protocolVersion": "2025-11-25", "clientInfo": {"name": "x"}},
        ]
        for params in bad:
            response = await client.post(request(1, "initialize", params))
            assert (response.status, (await response.json())["error"]["code"]) == (400, -32602)
            assert "mcp-session-id" not in response.headers
        probe = await client.post(request(1, "server/discover"))
        assert probe.status == 400
        assert not served.engine.runtime.sessions
        assert "0 sessions" in repr(served.engine.runtime.store)


@http_test
async def test_trap_36_a_second_initialize_is_refused_and_the_first_parameters_stay() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port, version="2025-06-18")
        params = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "other"}, "capabilities": {}}
        again = await client.post(request(9, "initialize", params))
        assert (again.status, (await again.json())["id"]) == (400, 9)
        (session,) = served.engine.runtime.sessions.values()
        assert session.record.version == "2025-06-18"
        assert session.record.client["name"] == "raw"


@http_test
async def test_trap_37_closing_does_not_wait_for_work_that_waits_for_the_close() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port)
        asking = await client.start("ask", message="never answered")
        standalone = await client.get()
        began = time.monotonic()
        assert await client.delete() == 204
        assert time.monotonic() - began < 20
        assert [message.get("error", {}).get("code") async for message in asking.messages()][-1] == -32800
        await standalone.body()


def test_trap_38_a_server_with_open_streams_and_running_calls_stops_in_time() -> None:
    with process(Config(settings=Settings(times=Times(drain=0.5)))) as running:

        @http_test
        async def busy() -> None:
            client = await Client.opened(running.port)
            await client.get()
            stalled = await Connection.open(running.port, receive_buffer=4_096)
            await client.start("flood", on=stalled, key="f", n=1_000_000, size=1_000)
            stalled.stop_reading()
            answering = await client.start("slow", seconds=60, text="x")
            began = time.monotonic()
            code = await asyncio.to_thread(running.terminate, BOUND)
            assert code == 0
            assert time.monotonic() - began < 40
            assert (await answering.answer())["error"]["code"] == -32800

        busy()


@async_test
async def test_trap_39_deadlines_follow_the_clock_that_was_passed_in() -> None:
    clock = Hand()
    store = MemoryStore(Limits(), clock)
    record = SessionRecord(
        key="k", principal="", version="2025-11-25", standalone="s", client={}, capabilities={},
        grace=100.0, idle=1_800.0, lifetime=86_400.0,
    )  # fmt: skip
    assert await store.open(record, evict=False) == []
    claimed = await store.claim("k", "", Claim(1, "stream", b"", False))
    assert isinstance(claimed, Claimed)
    clock.time = 10_000.0
    assert await store.sweep() == [], "work in flight"
    await store.settle("k", "stream", claimed.fence, None)
    clock.time = 11_799.0
    assert await store.sweep() == [], "idle counts from the completion"
    clock.time = 11_801.0
    assert [(closed.record.key, closed.reason) for closed in await store.sweep()] == [
        ("k", SessionInput.IDLE)
    ]
    assert await store.sweep() == []


@http_test
async def test_trap_40_a_handler_that_outlives_its_session_does_not_bring_it_back() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port)
        working = asyncio.create_task(client.call("late", key="late"))
        await until(lambda: served.back.runs["late"] == 1)
        assert await client.delete() == 204
        await until(lambda: served.back.runs["late SessionGone"] == 1)
        assert (await working)["code"] == -32800
        for response in (await client.start("echo", text="x"), await client.get()):
            assert response.status == 404, "an unknown id is never adopted"
        assert await client.tell("notifications/roots/list_changed") == 404


@http_test
async def test_trap_42_a_stale_session_is_404_and_a_missing_one_400() -> None:
    async with in_loop() as served:
        client = await Client.opened(served.port)
        await client.delete()
        stale = await client.start("echo", text="x")
        assert (stale.status, (await stale.json())["error"]["code"]) == (404, -32001)
        assert (await client.get()).status == 404
        assert await client.delete() == 404
        client.session_id = ""
        assert (await client.start("echo", text="x")).status == 400
        assert (await client.get()).status == 400
        assert await client.delete() == 400


@http_test
async def test_trap_43_a_session_answers_its_owner_only_on_post_get_and_delete() -> None:
    async with in_loop(Config(tokens={"a": "alice", "b": "bob"})) as served:
        alice = await Client.opened(served.port, token="a")
        bob = Client(served.port, token="b")
        bob.session_id = alice.session_id
        assert (await bob.start("echo", text="x")).status == 404
        assert (await bob.get()).status == 404
        assert await bob.delete() == 404
        assert await alice.call("echo", text="mine") == "mine"
        response = await alice.start("slow", seconds=0.3, text="x")
        assert text(await response.answer()) == "x"
