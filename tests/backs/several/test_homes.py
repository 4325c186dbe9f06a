"""A session with several servers behind it, whose home changes: all its connections go with it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from limpet import Server, Settings
from limpet.config import Limits, Times
from limpet.core.lifecycle import SessionInput
from limpet.testing import NotingObserver
from tests.backs.several.parts import Part, server_of
from tests.simulation.cluster import Cluster
from tests.support import LoopClock, until, virtual_test
from tests.unit.engine.harness import PRINCIPAL, EngineHarness

UPDATED = "notifications/resources/updated"


class Replica(EngineHarness):
    """A replica with two servers behind it, over a shared store."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.ended_readers = []
        self.parts = {one: Part(server_of(one, "say"), "sessions") for one in ("a", "b")}
        times = Times(lease=60.0, lease_renewal=5.0, sweep=0.05)
        server = Server(
            "all",
            settings=Settings(times=times),
            store=cluster.connect(name).store,
            observer=NotingObserver(),
        )
        for one, part in self.parts.items():
            server.include(part, one)
        self.engine = server.engine

    @property
    def living(self) -> list[int]:
        return [part.place.living for part in self.parts.values()]

    async def tool(self, number: int, name: str) -> Any:
        answer = await self.call(number, params={"name": name, "arguments": {}})
        return answer["result"]["content"][0]["text"]


@asynccontextmanager
async def replicas() -> AsyncIterator[tuple[Replica, Replica]]:
    """Yield the home of a session, and another replica."""
    cluster = Cluster(Limits(), LoopClock())
    async with AsyncExitStack() as stack:
        made = [Replica(cluster, name) for name in ("home", "other")]
        for one in made:
            await one.engine.ensure_started()
            stack.push_async_callback(one.engine.aclose)
        made[0].session = made[1].session = await made[0].open()
        yield made[0], made[1]
    assert [one.living for one in made] == [[0, 0], [0, 0]]


@virtual_test
async def test_all_connections_of_a_session_are_at_its_one_home() -> None:
    async with replicas() as (home, other):
        assert [await other.tool(n, f"{name}_say") for n, name in enumerate("ab")] == ["a.say", "b.say"]
        assert (home.living, other.living) == ([1, 1], [0, 0])
        session = await other.engine.sessions.find(other.key, PRINCIPAL)
        assert await other.engine.sessions.close(session, SessionInput.DELETED)
        await until(lambda: home.living == [0, 0])


@virtual_test
async def test_a_call_of_one_part_at_a_new_home_connects_the_others_too_with_level_and_subscriptions() -> (
    None
):
    async with replicas() as (home, other):
        await other.call(1, "logging/setLevel", {"level": "error"})
        await other.call(2, "resources/subscribe", {"uri": "note://b/b"})
        standalone = await other.get()
        home.engine.draining = True
        assert await other.tool(3, "a_say") == "a.say"
        await until(lambda: other.living == [1, 1])
        # It may have changed while the session had no home.
        await until(lambda: standalone.methods.count(UPDATED) >= 1)
        before = standalone.methods.count(UPDATED)
        await other.parts["b"].server.resource_updated("note://b")
        await until(lambda: standalone.methods.count(UPDATED) > before)
        assert {
            message["params"]["uri"] for message in standalone.messages if message.get("method") == UPDATED
        } == {"note://b/b"}
        assert "notifications/tools/list_changed" in standalone.methods


@virtual_test
async def test_a_client_that_only_listens_gets_all_its_connections_at_a_new_home() -> None:
    async with replicas() as (home, other):
        await other.call(1, "resources/subscribe", {"uri": "note://b/b"})
        standalone = await other.get()
        await home.engine.aclose()
        await until(lambda: UPDATED in standalone.methods and other.living == [1, 1])
