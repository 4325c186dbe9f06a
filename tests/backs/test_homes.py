"""A session whose home changes: the settings of the new upstream, and the end of the old one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import pytest

from limpet import Context, Server, Settings
from limpet.backs.proxy import upstreams
from limpet.backs.proxy.back import ProxyBack
from limpet.backs.proxy.options import ProxyOptions
from limpet.config import Limits, Times
from limpet.core.lifecycle import SessionInput
from limpet.engine.claims import Repeat
from limpet.engine.engine import Engine
from limpet.errors import SessionGone
from limpet.ports import Ports, SystemRandom
from limpet.testing import NotingObserver
from tests.backs.behind import Behind
from tests.simulation.cluster import Cluster
from tests.support import LoopClock, async_test, until
from tests.unit.engine.harness import CALLER, PRINCIPAL, EngineHarness, Get

UPDATED = "notifications/resources/updated"


def a_server() -> Server:
    server = Server("the one behind")

    @server.resource("note://one")
    async def note() -> str:
        return "one"

    @server.tool
    async def count(ctx: Context) -> int:
        """Count the calls of this upstream."""
        return await ctx.state.incr("n")

    @server.tool
    async def hold() -> str:
        """Wait for the test."""
        await server.lifted.wait()  # type: ignore[attr-defined]
        return "held"

    server.lifted = asyncio.Event()  # type: ignore[attr-defined]

    @server.tool
    async def speak(ctx: Context) -> str:
        """Log on two levels."""
        await ctx.log("debug", "detail")
        await ctx.log("error", "trouble")
        return "said"

    return server


class Replica(EngineHarness):
    """A proxy over a shared store."""

    def __init__(
        self, cluster: Cluster, name: str, behind: Behind, options: ProxyOptions, sweep: float
    ) -> None:
        self.behind = behind
        self.noted = NotingObserver()
        self.proxy = ProxyBack(behind, options, Ports(LoopClock(), SystemRandom(), self.noted))
        self.ended_readers = []
        self.engine = Engine(
            self.proxy,
            Settings(times=Times(lease=60.0, lease_renewal=5.0, sweep=sweep)),
            store=cluster.connect(name).store,
            clock=LoopClock(),
            observer=self.noted,
        )

    async def tool(self, number: int, name: str) -> Any:
        answer = await self.call(number, params={"name": name, "arguments": {}})
        return answer["result"]["content"][0]["text"]


@asynccontextmanager
async def replicas(
    options: ProxyOptions | None = None, sweep: float = 60.0
) -> AsyncIterator[tuple[Replica, Replica]]:
    """Yield the home of a session, and another replica; each has a server of its own behind it."""
    cluster = Cluster(Limits(), LoopClock())
    async with AsyncExitStack() as stack:
        made = [
            Replica(cluster, name, Behind(a_server(), "sessions"), options or ProxyOptions(), sweep)
            for name in ("home", "other")
        ]
        for one in made:
            await one.engine.ensure_started()
            stack.push_async_callback(one.engine.aclose)
        made[0].session = made[1].session = await made[0].open()
        yield made[0], made[1]
    assert [one.behind.living for one in made] == [0, 0]


@async_test
async def test_one_upstream_serves_a_session_at_every_replica() -> None:
    async with replicas() as (home, other):
        assert [await one.tool(n, "count") for n, one in enumerate((home, other, home, other))] == list(
            "1234"
        )
        assert (len(home.behind.links), other.behind.links) == (1, [])


@async_test
async def test_the_upstream_of_a_new_home_gets_level_and_subscriptions_and_the_client_hears_of_its_lists() -> (
    None
):
    async with replicas() as (home, other):
        await other.call(1, "logging/setLevel", {"level": "error"})
        await other.call(2, "resources/subscribe", {"uri": "note://one"})
        standalone = await other.get()
        home.engine.draining = True
        post = await other.post(3, params={"name": "speak", "arguments": {}})
        messages = await post.whole()
        assert [message["params"]["data"] for message in messages[:-1]] == ["trouble"]
        assert other.behind.clients[0].info == {"name": "t", "version": "0"}
        # It may have changed while the session had no home.
        await until(lambda: standalone.methods.count(UPDATED) == 1)
        await other.behind.server.resource_updated("note://one")
        await until(lambda: standalone.methods.count(UPDATED) == 2)
        assert {"notifications/tools/list_changed", "notifications/resources/list_changed"} <= set(
            standalone.methods
        )
        assert len(other.behind.links) == 1


@pytest.mark.parametrize("shared", [False, True])
@async_test
async def test_a_client_that_only_listens_receives_updates_from_a_new_home_after_a_stop(shared: bool) -> None:
    async with replicas(ProxyOptions(shared=shared), sweep=0.05) as (home, other):
        await other.call(1, "resources/subscribe", {"uri": "note://one"})
        standalone = await other.get()
        await home.engine.aclose()
        await until(lambda: {"notifications/tools/list_changed", UPDATED} <= set(standalone.methods))
        await other.behind.server.resource_updated("note://one")
        await until(lambda: standalone.methods.count(UPDATED) == 2)
        assert len(other.noted.named("session.moved")) == 1
        assert len(other.behind.links) == 1


@async_test
async def test_a_former_home_ends_its_upstream_after_the_calls_that_run_on_it() -> None:
    async with replicas() as (home, other):
        await home.tool(1, "count")
        held = await other.submit(2, params={"name": "hold", "arguments": {}})
        assert isinstance(held, Repeat)
        home.engine.draining = True
        assert await other.tool(3, "count") == "1", "another upstream"
        home.engine.draining = False
        assert await home.tool(4, "count") == "2", "this replica learns that it is no longer the home"
        assert home.behind.living == 1
        home.behind.server.lifted.set()  # type: ignore[attr-defined]
        got = Get(other, await other.engine.readers.repeat(held.session, held.stream))
        await got.task
        assert got.messages[-1]["result"]["content"][0]["text"] == "held"
        await until(lambda: home.behind.living == 0)


@async_test
async def test_a_strict_session_is_closed_when_its_home_goes() -> None:
    async with replicas(ProxyOptions(strict=True)) as (home, other):
        home.engine.draining = True
        with pytest.raises(SessionGone):
            await other.tool(1, "count")
        await until(lambda: home.behind.living == 0)
        assert other.behind.links == []


@async_test
async def test_the_upstream_at_the_home_ends_when_another_replica_closes_the_session() -> None:
    async with replicas() as (home, other):
        await other.tool(1, "count")
        session = await other.engine.sessions.find(other.key, PRINCIPAL)
        assert await other.engine.sessions.close(session, SessionInput.DELETED)
        await until(lambda: home.behind.living == 0)


@async_test
async def test_an_upstream_ends_soon_even_if_the_wake_up_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstreams, "_HOME_SECONDS", 0.02)
    monkeypatch.setattr(upstreams, "_SWEEP_SECONDS", 0.02)
    async with replicas() as (home, other):
        await other.tool(1, "count")
        # Some looks pass, and the upstream of an open session stays.
        await asyncio.sleep(0.1)  # real time: the looks themselves are the subject
        assert home.behind.living == 1
        cast("Any", home.engine)._homes.closed = lambda _: None
        session = await other.engine.sessions.find(other.key, PRINCIPAL)
        assert await other.engine.sessions.close(session, SessionInput.DELETED)
        await until(lambda: home.behind.living == 0)


@async_test
async def test_an_upstream_can_close_a_session_of_which_this_process_has_nothing_else() -> None:
    async with replicas(ProxyOptions(strict=True)) as (home, other):
        await other.tool(1, "count")
        assert home.key not in home.engine.runtime.sessions or home.engine.runtime.sessions[home.key].is_quiet
        home.engine.runtime.sessions.clear()
        await home.behind.break_links()
        await until(lambda: "session.closed" in {name for name, _ in home.noted.notes})
        with pytest.raises(SessionGone):
            await other.engine.check_session(other.key, CALLER.key)
