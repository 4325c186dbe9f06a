"""Tasks end once in every failure: the store is unavailable, the owner dies, is paused and wakes, or stops."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from typing import Final

import pytest
from msgspec.structs import replace

from limpet import Context, Server
from limpet.config import Limits, Times
from limpet.core.tasks import task_key
from limpet.engine import task_ends
from limpet.engine.caller import Caller
from limpet.engine.task_ends import KEPT_SECONDS
from limpet.errors import OUTCOME_UNKNOWN, OutcomeUnknown
from limpet.stores.base import OrphanTask
from limpet.testing.store.limits import tight
from limpet.wire.jsonrpc import Request
from tests.simulation.cluster import Cluster
from tests.stores import ScriptedStore
from tests.support import LoopClock, virtual_test
from tests.unit.engine.harness import settle_down
from tests.unit.server.task_client import POLL, TaskClient, named, tasks_of
from tests.unit.server.test_tasks import NAME, client_of

SWEEP: Final = 1.0
# No lease ends by itself here: a test declares a replica dead.
TIMES: Final = Times(task_poll=POLL, sweep=SWEEP, lease=1e6, lease_renewal=1e5)
UNKNOWN: Final = {"code": OUTCOME_UNKNOWN, "message": OutcomeUnknown().message}


def make() -> Server:
    server = Server("tasks")

    @server.tool(task="required")
    async def work(seconds: float, ctx: Context) -> str:
        await asyncio.sleep(seconds)
        await ctx.progress(1, 2, "half-way")
        return "worked"

    @server.tool(task="required")
    async def ask(ctx: Context) -> str:
        await asyncio.sleep(1)
        answer = await ctx.elicit("who?", NAME, key="who")
        await asyncio.sleep(1)
        return str((answer.data or {})["name"])

    @server.tool(task="required")
    async def ask_and_work(ctx: Context) -> None:
        await ctx.elicit("who?", NAME, key="who")
        await asyncio.sleep(10_000)

    @server.tool(task="required")
    async def large() -> str:
        await asyncio.sleep(5)
        return "x" * 4_000

    return server


class Pair:
    """Two replicas over one store; each with a client."""

    def __init__(self, cluster: Cluster, one: TaskClient, two: TaskClient) -> None:
        self.cluster, self.one, self.two = cluster, one, two

    def declare_dead(self, replica: str) -> None:
        """Say of a replica that it is dead; its process does not know."""
        self.cluster._leases[self.cluster.connect(replica).owner] = 0.0


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    cluster = Cluster(Limits(), LoopClock())
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(tasks_of(make(), times=TIMES, store=cluster.connect(name).store))
            for name in ("one", "two")
        ]
        yield Pair(cluster, one, two)


# The store is unavailable


def leave(store: ScriptedStore) -> None:
    """Let the commands of tasks fail. One that opens a task is carried out, and its reply is lost."""
    store.fail("get_task", "set_task")
    store.lose_replies("open_task")


@virtual_test
async def test_a_result_that_comes_while_the_store_is_unavailable_is_there_when_it_is_back() -> None:
    store = ScriptedStore()
    async with tasks_of(make(), store=store) as client:
        task_id = await client.create("work", seconds=10)
        leave(store)
        await asyncio.sleep(60)
        store.recover()
        assert await client.text_of(task_id) == "worked"


@virtual_test
async def test_a_task_asks_and_takes_its_answer_although_the_store_is_unavailable_at_every_step() -> None:
    store = ScriptedStore()
    async with tasks_of(make(), store=store) as client:
        task_id = await client.create("ask")
        leave(store)
        await asyncio.sleep(20)
        store.recover()
        await client.until(task_id, "input_required")
        await client.update(task_id, who=named("ada"))
        await settle_down()
        leave(store)
        await asyncio.sleep(20)
        store.recover()
        assert await client.text_of(task_id) == "ada"


@virtual_test
async def test_a_task_whose_opening_has_no_reply_is_cancelled() -> None:
    store = ScriptedStore()
    async with tasks_of(make(), store=store) as client:
        leave(store)
        answered = await client.post("tools/call", {"name": "work", "arguments": {"seconds": 5}})
        assert "error" in answered.message
        store.recover()
        await asyncio.sleep(5)
        [task] = store._tasks._kept.values()
        assert b"cancelled" in task.value
        assert task.owner == ""


@virtual_test
async def test_a_server_that_stops_while_the_store_is_unavailable_writes_the_ends_when_it_is_back() -> None:
    store = ScriptedStore()
    async with tasks_of(make(), store=store) as client:
        await client.create("work", seconds=1_000)
        leave(store)
        # The handler has the drain time to return; its last writes then have a moment more.
        drain = client.server.engine.settings.times.drain
        asyncio.get_running_loop().call_later(drain + 2, store.recover)
        before = len(store.done["set_task"])
    assert len(store.done["set_task"]) == before + 1
    assert str(OUTCOME_UNKNOWN).encode() in store.done["set_task"][-1][2]


@virtual_test
async def test_a_server_that_stops_does_not_wait_for_the_store_beyond_its_drain_time() -> None:
    store = ScriptedStore()
    async with tasks_of(make(), times=Times(drain=20, task_poll=POLL), store=store) as client:
        await client.create("work", seconds=1_000)
        leave(store)
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 20 + 10


@virtual_test
async def test_a_server_that_stops_waits_for_the_answer_to_a_task_and_refuses_new_tasks() -> None:
    async with tasks_of(make(), times=Times(drain=60, task_poll=POLL)) as client:
        engine = client.server.engine
        task_id = await client.create("ask")
        await client.until(task_id, "input_required")
        drain = asyncio.ensure_future(engine.drain())
        await asyncio.sleep(30)
        assert await client.status(task_id) == "input_required"
        assert (await client.post("tools/call", {"name": "work", "arguments": {"seconds": 1}})).status == 503
        await client.update(task_id, who=named("ada"))
        await drain
        assert await client.text_of(task_id) == "ada"


# The owner is dead


@virtual_test
async def test_a_dead_owners_task_ends_with_one_error_and_its_late_result_loses() -> None:
    async with pair() as both:
        task_id = await both.one.create("work", seconds=SWEEP * 5)
        await asyncio.sleep(SWEEP * 2)
        assert await both.two.status(task_id) == "working", "its owner lives"
        both.declare_dead("one")
        await asyncio.sleep(SWEEP * 2)
        task = await both.two.get(task_id)
        assert (task["status"], task["error"]) == ("failed", UNKNOWN)
        await asyncio.sleep(SWEEP * 10)
        assert await both.one.get(task_id) == task, "its handler has returned meanwhile"


@virtual_test
async def test_an_owner_that_wakes_finds_its_task_ended_and_stops_its_handler() -> None:
    async with pair() as both:
        task_id = await both.one.create("work", seconds=10_000)
        connection = both.cluster.connect("one")
        on_wake, connection.on_wake = connection.on_wake, None
        both.declare_dead("one")
        await both.two.until(task_id, "failed")
        connection.on_wake = on_wake
        await asyncio.sleep(60)
        assert not both.one.server.engine.sessionless.live(), "the handler runs no longer"
        assert (await both.one.get(task_id))["error"] == UNKNOWN


@virtual_test
async def test_a_result_that_is_written_before_the_reaper_runs_is_kept() -> None:
    async with pair() as both:
        may_reap = asyncio.Event()
        for client in (both.one, both.two):
            slow_look(client, may_reap)
        task_id = await both.one.create("work", seconds=SWEEP * 5)
        both.declare_dead("one")
        await asyncio.sleep(SWEEP * 3)
        assert await both.two.status(task_id) == "working", "the reapers have seen it, and do not act yet"
        await both.one.until(task_id, "completed")
        may_reap.set()
        await asyncio.sleep(SWEEP * 3)
        assert await both.two.text_of(task_id) == "worked"


def slow_look(client: TaskClient, may_go: asyncio.Event) -> None:
    """Let the tasks that a replica finds of dead ones be old before it acts on them."""
    store = client.server.engine.runtime.store
    look = store.orphan_tasks

    async def slowly(known: Collection[str] | None = None) -> list[OrphanTask]:
        found = await look(known)
        if found:
            await may_go.wait()
        return found

    store.orphan_tasks = slowly  # type: ignore[method-assign]


@virtual_test
async def test_a_task_that_begins_while_its_owner_looks_for_lost_ones_is_not_taken_for_one() -> None:
    async with pair() as both:
        store = both.one.server.engine.runtime.store
        look, looking = store.orphan_tasks, asyncio.Event()

        async def far_away(known: Collection[str] | None = None) -> list[OrphanTask]:
            looking.set()
            await asyncio.sleep(SWEEP)
            return await look(known)

        store.orphan_tasks = far_away  # type: ignore[method-assign]
        await looking.wait()
        task_id = await both.one.create("work", seconds=SWEEP * 5)
        assert await both.one.text_of(task_id) == "worked"


@virtual_test
async def test_a_dead_owners_task_that_waits_for_input_ends_too_and_takes_no_answer() -> None:
    async with pair() as both:
        task_id = await both.one.create("ask")
        await both.two.until(task_id, "input_required")
        both.declare_dead("one")
        await both.two.until(task_id, "failed")
        await both.two.update(task_id, who=named("ada"))
        assert (await both.two.get(task_id))["error"] == UNKNOWN


@virtual_test
async def test_a_task_that_cannot_be_read_is_ended_and_does_not_hold_the_others_up() -> None:
    async with pair() as both:
        ids = [await both.one.create("work", seconds=10_000) for _ in range(30)]
        kept, damaged = both.cluster._tasks._kept, task_key(ids[0])
        kept[damaged] = replace(kept[damaged], value=b"damaged", version=7)
        both.declare_dead("one")
        for task_id in ids:
            assert (await both.two.until(task_id, "failed"))["error"] == UNKNOWN


@virtual_test
async def test_a_replica_that_stops_ends_its_tasks_and_leaves_none_to_others() -> None:
    cluster = Cluster(Limits(), LoopClock())
    async with tasks_of(make(), times=TIMES, store=cluster.connect("two").store) as two:
        async with tasks_of(make(), times=TIMES, store=cluster.connect("one").store) as one:
            task_id = await one.create("ask")
            await one.until(task_id, "input_required")
        assert (await two.get(task_id))["status"] == "failed", "at once, and not by the next sweep"


# The store has lost the last writes


class Failover:
    """A store that forgets every write to a task since `cut`, when it `happens`."""

    def __init__(self, cluster: Cluster) -> None:
        self._tasks = cluster._tasks
        self._then = deepcopy(cluster._tasks._kept)

    def happens(self) -> None:
        self._tasks._kept.clear()
        self._tasks._kept.update(self._then)


@virtual_test
async def test_a_task_that_ended_before_a_failover_lost_its_end_ends_again_as_before() -> None:
    async with pair() as both:
        task_id = await both.one.create("work", seconds=5)
        failover = Failover(both.cluster)
        task = await both.one.until(task_id, "completed")
        failover.happens()
        assert await both.two.status(task_id) == "working"
        await asyncio.sleep(SWEEP * 2)
        again = await both.two.get(task_id)
        assert (again["status"], again["result"]) == ("completed", task["result"])


@virtual_test
async def test_a_task_that_was_cancelled_before_a_failover_is_cancelled_after_it() -> None:
    async with pair() as both:
        task_id = await both.one.create("work", seconds=10_000)
        failover = Failover(both.cluster)
        await both.two.post("tasks/cancel", {"taskId": task_id})
        await both.two.until(task_id, "cancelled")
        await settle_down()
        failover.happens()
        await asyncio.sleep(SWEEP * 2)
        assert await both.two.status(task_id) == "cancelled"


@pytest.mark.parametrize("seconds", [0.0, KEPT_SECONDS + SWEEP])
@virtual_test
async def test_a_task_whose_end_is_not_known_after_a_failover_ends_as_unknown(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The end is forgotten because there are too many bytes of ends, or after its time.
    if not seconds:
        monkeypatch.setattr(task_ends, "KEPT_BYTES", 1)
    async with pair() as both:
        task_id = await both.one.create("work", seconds=5)
        failover = Failover(both.cluster)
        await both.one.until(task_id, "completed")
        await asyncio.sleep(seconds)
        failover.happens()
        await asyncio.sleep(SWEEP * 2)
        assert (await both.two.get(task_id))["error"] == UNKNOWN


@virtual_test
async def test_a_task_that_a_failover_brought_back_ends_as_unknown_if_its_owner_died() -> None:
    async with pair() as both:
        task_id = await both.one.create("work", seconds=5)
        failover = Failover(both.cluster)
        await both.one.until(task_id, "completed")
        await both.one.server.engine.aclose()
        failover.happens()
        await asyncio.sleep(SWEEP * 2)
        assert (await both.two.get(task_id))["error"] == UNKNOWN


@virtual_test
async def test_a_question_of_a_task_that_a_failover_lost_is_asked_again_and_an_answered_one_is_not() -> None:
    async with pair() as both:
        task_id = await both.one.create("ask")
        before, _ = Failover(both.cluster), await both.one.until(task_id, "input_required")
        before.happens()
        assert await both.two.status(task_id) == "working"
        await both.two.until(task_id, "input_required")
        asked = Failover(both.cluster)
        await both.two.update(task_id, who=named("ada"))
        await settle_down()
        asked.happens()
        assert await both.two.text_of(task_id) == "ada"
        assert both.one.server.engine.sessionless.live() == []


@virtual_test
async def test_a_question_that_a_failover_brings_back_is_withdrawn_while_its_task_works() -> None:
    async with pair() as both:
        task_id = await both.one.create("ask_and_work")
        await both.one.until(task_id, "input_required")
        failover = Failover(both.cluster)
        await both.two.update(task_id, who=named("ada"))
        await both.two.until(task_id, "working")
        failover.happens()
        assert await both.two.status(task_id) == "input_required"
        await both.two.until(task_id, "working")


@virtual_test
async def test_a_running_task_that_a_failover_lost_is_opened_again() -> None:
    async with pair() as both:
        failover = Failover(both.cluster)
        task_id = await both.one.create("work", seconds=60)
        failover.happens()
        await asyncio.sleep(30)
        assert await both.two.status(task_id) == "working"
        assert await both.two.text_of(task_id) == "worked"


@virtual_test
async def test_a_result_that_is_too_large_when_the_store_is_back_ends_its_task_with_an_error() -> None:
    store = ScriptedStore(tight(task_bytes=2_000))
    async with tasks_of(make(), store=store) as client:
        task_id = await client.create("large")
        leave(store)
        await asyncio.sleep(20)
        store.recover()
        task = await client.until(task_id, "failed")
        assert "cannot be kept" in task["error"]["message"]


# Wake-ups are lost


@pytest.mark.parametrize("is_lost", [False, True])
@virtual_test
async def test_subscriptions_receive_each_change_once_also_if_its_wake_up_was_lost(is_lost: bool) -> None:
    async with pair() as both:
        task_id = await both.one.create("work", seconds=10_000)
        listening = both.two.server.engine.listening
        wanted = Request(7, "subscriptions/listen", {"notifications": {"taskIds": [task_id]}})
        listener = await listening.open(client_of(""), wanted, Caller(""))
        await asyncio.sleep(20)
        listener.messages()
        connection = both.cluster.connect("two")
        on_wake, connection.on_wake = connection.on_wake, None if is_lost else connection.on_wake
        await both.one.cancel(task_id)
        await settle_down()
        connection.on_wake = on_wake
        await asyncio.sleep(60)
        told = [json.loads(message)["params"]["status"] for message in listener.messages()]
        assert told == ["cancelled"]
        listening.leave(listener)
