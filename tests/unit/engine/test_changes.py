"""Changes of lists and resources reach their clients: none is lost, and no client delays another one."""

import asyncio
from contextlib import aclosing

import pytest

from limpet.config import Limits, Settings, Times
from limpet.core.lifecycle import SessionInput
from limpet.protocol.subscriptions import Change
from limpet.testing import ScriptedBack
from tests.simulation.cluster import Cluster
from tests.stores import ScriptedStore
from tests.support import LoopClock
from tests.unit.engine.harness import EngineHarness, Get, Json, engine_harness, engine_test, settle_down

UPDATED = "notifications/resources/updated"
LOG = "notifications/message"


def updated(get: Get) -> list[str]:
    """Return the URIs of the updates that a client has received."""
    return [message["params"]["uri"] for message in get.messages if message["method"] == UPDATED]


async def subscribe(d: EngineHarness, count: int) -> list[str]:
    uris = [f"memo://{number}" for number in range(count)]
    for uri in uris:
        assert await d.engine.store.subscribe(d.key, uri)
    return uris


@pytest.mark.parametrize("is_shared", [False, True])
@engine_test
async def test_a_reader_that_stands_still_gets_each_of_a_thousand_resources_when_it_goes_on(
    is_shared: bool,
) -> None:
    store = ScriptedStore(is_shared=is_shared)
    async with engine_harness(store=store, times=Times(keep_alive=1.0)) as d:
        uris = await subscribe(d, 1_000)
        get = await d.get()
        get.may_read.clear()
        for _ in range(3):
            for uri in uris:
                d.engine.sessions.changes.for_session(d.key, Change("resource", uri))
            d.engine.sessions.changes.for_session(d.key, Change("tools"))
            await asyncio.sleep(1)
        get.may_read.set()
        await asyncio.sleep(10)
        assert set(updated(get)) == set(uris)
        # What was in the log when the reader stood still, and the set of those that had to wait.
        assert len(get.messages) < 2_000
        assert not d.noted.named("push.dropped")


@engine_test
async def test_a_change_that_comes_while_an_equal_one_is_being_sent_is_sent_too() -> None:
    store = ScriptedStore()
    async with engine_harness(store=store) as d:
        get = await d.get()
        store.delay("append", before=5.0)
        changes = d.engine.sessions.changes
        changes.for_session(d.key, Change("resource", "memo://one"))
        await asyncio.sleep(1)
        for _ in range(3):
            changes.for_session(d.key, Change("resource", "memo://one"))
        await asyncio.sleep(20)
        assert updated(get) == ["memo://one"] * 2
        assert repr(changes) == "<Changes of 0 sessions, 0 reports>"


@pytest.mark.parametrize("kind", ["resource", "tools"])
@engine_test
async def test_a_client_that_stands_still_does_not_delay_the_changes_of_others(kind: str) -> None:
    change = Change("tools") if kind == "tools" else Change("resource", "memo://one")
    async with engine_harness(limits=Limits(stream_events=10)) as d:
        slow_session, standing = d.session, await d.get()
        standing.may_read.clear()
        for number in range(6):
            d.engine.spawn(d.engine.sessions.push(d.key, LOG, {"n": number}))
        await settle_down()
        blocked = Blocked()
        others = [await d.open(duplex=blocked), await d.open()]
        for session in (slow_session, *others):
            await d.engine.store.subscribe(session.record.key, "memo://one")
        d.session = others[1]
        fast = await d.get()
        await d.engine.changed(change)
        await settle_down()
        assert len(fast.messages) == 1
        assert len(blocked.sent) == 1
        blocked.may_read.set()
        standing.may_read.set()
        await settle_down()
        assert len(standing.messages) == 7


class Blocked:
    """A connection whose client does not read."""

    is_gone: bool = False

    def __init__(self) -> None:
        self.may_read = asyncio.Event()
        self.is_gone = False
        self.sent: list[bytes] = []

    async def send(self, message: bytes) -> None:
        self.sent.append(message)
        await self.may_read.wait()


@pytest.mark.parametrize("command", ["append", "subscribers", "announce", "sessions"])
@engine_test
async def test_a_change_waits_for_an_unavailable_store_and_its_author_does_not_fail(command: str) -> None:
    store = ScriptedStore(is_shared=command == "announce")
    async with engine_harness(store=store, times=Times(keep_alive=1.0)) as d:
        await subscribe(d, 1)
        get = await d.get()
        store.fail(command, times=200)
        began = asyncio.get_running_loop().time()
        await d.engine.changed(Change("resource", "memo://0"))
        await d.engine.changed(Change("tools"))
        assert asyncio.get_running_loop().time() - began <= 61
        await d.engine.sessions.push(d.key, "notifications/prompts/list_changed")
        await asyncio.sleep(200)
        assert set(get.methods) == {
            UPDATED,
            "notifications/tools/list_changed",
            "notifications/prompts/list_changed",
        }


@engine_test
async def test_a_gap_is_followed_by_a_change_of_every_list_and_of_every_subscribed_resource() -> None:
    async with engine_harness(limits=Limits(stream_events=50)) as d:
        uris = await subscribe(d, 30)
        for uri in uris:
            await d.engine.changed(Change("resource", uri))
        for number in range(60):
            await d.engine.sessions.push(d.key, LOG, {"n": number})
        get = await d.get()
        await settle_down()
        assert set(updated(get)) == set(uris)
        assert "notifications/tools/list_changed" in get.methods
        # A client that has all of it receives no more.
        seen = len(get.messages)
        await asyncio.sleep(100)
        assert len(get.messages) == seen


@engine_test
async def test_more_changes_than_a_log_holds_reach_a_client_that_reads() -> None:
    async with engine_harness(limits=Limits(stream_events=4, stream_bytes=500)) as d:
        uris = await subscribe(d, 300)
        get = await d.get()
        d.engine.sessions.changes.missed(d.key)
        await asyncio.sleep(1)
        assert sorted(updated(get)) == sorted(uris)


@engine_test
async def test_a_set_that_is_full_still_reports_every_resource_that_the_session_subscribed_to() -> None:
    store = ScriptedStore(Limits(subscriptions=20))
    async with engine_harness(store=store, limits=Limits(subscriptions=20)) as d:
        uris = await subscribe(d, 20)
        get = await d.get()
        store.delay("append", before=1.0)
        for uri in [*(f"unknown://{number}" for number in range(100)), *uris]:
            d.engine.sessions.changes.for_session(d.key, Change("resource", uri))
        await asyncio.sleep(60)
        assert set(uris) <= set(updated(get))
        assert len(d.noted.named("changes.merged")) == 1


@engine_test
async def test_the_changes_of_a_closed_session_are_forgotten() -> None:
    async with engine_harness() as d:
        await d.engine.store.close(d.key, SessionInput.DELETED)
        for _ in range(3):
            d.engine.sessions.changes.for_session(d.key, Change("tools"))
            await settle_down()
        assert repr(d.engine.sessions.changes) == "<Changes of 0 sessions, 0 reports>"


# Messages that belong to no request


async def pushed(d: EngineHarness, count: int, size: int = 0) -> asyncio.Task[None]:
    key = d.key

    async def push() -> None:
        for number in range(count):
            await d.engine.sessions.push(key, LOG, {"n": number, "pad": "x" * size})

    return asyncio.create_task(push())


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("size", [0, 50_000])
@engine_test
async def test_a_reader_that_reads_gets_all_messages_of_a_writer_that_never_waits(
    is_shared: bool, size: int
) -> None:
    async with engine_harness(store=ScriptedStore(is_shared=is_shared)) as d:
        get = await d.get()
        count = 200 if size else 5_000
        await (await pushed(d, count, size))
        await settle_down()
        assert [message["params"]["n"] for message in get.messages] == list(range(count))


@pytest.mark.parametrize("end", ["cut", "superseded", "closed"])
@engine_test
async def test_a_writer_stops_waiting_for_a_reader_that_ends(end: str) -> None:
    async with engine_harness() as d:
        standing = await d.get()
        standing.may_read.clear()
        writing = await pushed(d, 2_000)
        await settle_down()
        assert not writing.done()
        if end == "cut":
            standing.may_read.set()
            await standing.cut()
            await writing
        elif end == "superseded":
            new = await d.get()
            await writing
            await settle_down()
            # It began where the first reader stands, and has lost nothing.
            assert [message["params"]["n"] for message in new.messages] == list(range(2_000))
            standing.may_read.set()
        else:
            standing.may_read.set()
            await d.engine.sessions.close_key(d.key, SessionInput.DELETED)
            await writing


@engine_test
async def test_a_writer_waits_for_a_slow_reader_of_its_own_session_only() -> None:
    async with engine_harness() as d:
        standing = await d.get()
        standing.may_read.clear()
        writing = await pushed(d, 2_000)
        await settle_down()
        slow, d.session = d.session, await d.open()
        fast = await d.get()
        await (await pushed(d, 2_000))
        await settle_down()
        assert len(fast.messages) == 2_000
        assert not writing.done()
        standing.may_read.set()
        await writing
        await settle_down()
        assert len(standing.messages) == 2_000
        assert slow is not d.session


@engine_test
async def test_no_writer_waits_for_a_reader_at_another_replica_which_receives_every_change_after_its_gap() -> (
    None
):
    cluster = Cluster(Limits(), LoopClock())
    times = Times(keep_alive=1.0)
    async with engine_harness(times=times, store=cluster.connect("one").store) as one:
        two = EngineHarness(ScriptedBack({}), Settings(times=times), cluster.connect("two").store)
        await two.engine.ensure_started()
        two.session = await two.engine.sessions.find(one.key, one.session.record.principal)
        async with aclosing(two.engine):
            uris = await subscribe(one, 10)
            standing = await two.get()
            standing.may_read.clear()
            await one.engine.changed(Change("resource", uris[3]))
            await (await pushed(one, 3_000))
            standing.may_read.set()
            await asyncio.sleep(10)
            heard: list[Json] = standing.messages
            assert heard[-1]["method"] == UPDATED
            assert set(updated(standing)) == set(uris)
