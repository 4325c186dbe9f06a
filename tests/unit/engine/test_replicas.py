"""Two engines over one store: a client has connections at both."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Final

import pytest

from limpet.config import Limits, Settings, Times
from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange
from limpet.engine.reader import End
from limpet.engine.sessionless_client import SessionlessClient
from limpet.errors import OUTCOME_UNKNOWN, StoreUnavailable
from limpet.protocol.subscriptions import Change
from limpet.stores.base import Announced, Store, WakeUp
from limpet.testing import ScriptedBack
from limpet.wire.jsonrpc import Request
from tests.simulation.cluster import Cluster
from tests.support import LoopClock
from tests.unit.engine.harness import (
    CALL,
    CALLER,
    PRINCIPAL,
    EngineHarness,
    engine_harness,
    engine_test,
    settle_down,
)
from tests.unit.engine.test_releases import META

KEEP_ALIVE: Final = 15.0
# No lease ends here: that is another test's subject.
TIMES: Final = Times(lease=1e6, lease_renewal=1e5, stream_age=(1e5, 2e5))


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[EngineHarness, EngineHarness]]:
    """Two replicas that serve the same session."""
    cluster = Cluster(Limits(), LoopClock())
    async with engine_harness(times=TIMES, store=cluster.connect("one").store) as one:
        two = EngineHarness(ScriptedBack({}), Settings(times=TIMES), cluster.connect("two").store)
        await two.engine.ensure_started()
        two.session = await two.engine.sessions.find(one.key, one.session.record.principal)
        async with aclosing(two.engine):
            yield one, two


async def push(engine: Engine, key: str, method: str) -> None:
    await engine.sessions.push(key, method)
    await settle_down()


@engine_test
async def test_a_reader_superseded_at_another_replica_takes_over_when_the_newer_one_breaks() -> None:
    async with pair() as (one, two):
        old, new = await one.get(), await two.get()
        await settle_down()
        await push(one.engine, one.key, "notifications/one")
        assert (old.methods, new.methods) == ([], ["notifications/one"])
        await new.cut()
        await push(two.engine, one.key, "notifications/two")
        await asyncio.sleep(KEEP_ALIVE)
        await settle_down()
        assert old.methods == ["notifications/two"], "nothing is lost, and nothing that was taken comes again"
        await push(one.engine, one.key, "notifications/three")
        assert old.methods == ["notifications/two", "notifications/three"]
        assert one.noted.named("session.resumed")
        await old.cut()
        assert len(one.noted.named("session.detached")) == 1


@engine_test
async def test_a_superseded_reader_stays_idle_while_the_newer_one_lives() -> None:
    async with pair() as (one, two):
        old, new = await one.get(), await two.get()
        await asyncio.sleep(KEEP_ALIVE * 5)
        await push(one.engine, one.key, "notifications/one")
        assert (old.methods, new.methods) == ([], ["notifications/one"])


@engine_test
async def test_of_several_superseded_readers_the_newest_takes_over() -> None:
    async with pair() as (one, two):
        oldest, old, new = await one.get(), await one.get(), await two.get()
        await new.cut()
        await asyncio.sleep(KEEP_ALIVE * 2)
        await push(two.engine, one.key, "notifications/one")
        assert (oldest.methods, old.methods) == ([], ["notifications/one"])


@engine_test
async def test_an_idle_reader_beside_a_busy_stream_is_kept_alive_and_takes_over() -> None:
    async with pair() as (one, two):
        old, new = await one.get(), await two.get()
        await settle_down()
        for _ in range(10):
            await push(one.engine, one.key, "notifications/busy")
            await asyncio.sleep(KEEP_ALIVE / 3)
        await new.cut()
        for _ in range(10):
            await push(one.engine, one.key, "notifications/late")
            await asyncio.sleep(KEEP_ALIVE / 3)
        assert new.methods == ["notifications/busy"] * 10
        assert old.methods == ["notifications/late"] * 10


@engine_test
async def test_a_reader_that_leaves_while_it_takes_over_gives_the_place_back() -> None:
    async with pair() as (one, two):
        old, new = await one.get(), await two.get()
        await new.cut()
        store = one.engine.runtime.store
        attach, arrived, may_go = store.attach, asyncio.Event(), asyncio.Event()

        async def slowly(*args: object, **more: object) -> object:
            found = await attach(*args, **more)  # type: ignore[arg-type]
            arrived.set()
            await may_go.wait()
            return found

        store.attach = slowly  # type: ignore[method-assign,assignment]
        await arrived.wait()
        await old.cut()
        may_go.set()
        await settle_down()
        await asyncio.sleep(TIMES.grace_seconds + TIMES.sweep)
        assert await store.sessions() == [], "it has no reader: the grace has begun"


@engine_test
async def test_an_idle_reader_whose_takeover_lost_its_reply_takes_over_later() -> None:
    async with pair() as (one, two):
        old, new = await one.get(), await two.get()
        await new.cut()
        store = one.engine.runtime.store
        attach, lost = store.attach, asyncio.Event()

        async def without_reply(*args: object, **more: object) -> object:
            await attach(*args, **more)  # type: ignore[arg-type]
            lost.set()
            store.attach = attach  # type: ignore[method-assign]
            raise StoreUnavailable("the reply is lost, on purpose")

        store.attach = without_reply  # type: ignore[method-assign,assignment]
        await lost.wait()
        await asyncio.sleep(2 * KEEP_ALIVE)
        await push(two.engine, one.key, "notifications/late")
        assert old.methods == ["notifications/late"]
        await old.cut()
        await asyncio.sleep(TIMES.grace_seconds + TIMES.sweep)
        assert await store.sessions() == []


@engine_test
async def test_a_reader_of_the_store_that_is_not_here_is_detached_and_one_that_is_here_stays() -> None:
    async with pair() as (one, _):
        store, stream = one.engine.runtime.store, one.session.record.standalone

        async def readers() -> int:
            # As after a failover that has lost the end of a reader.
            one.engine._wake(WakeUp.HELD, one.key, stream)
            await asyncio.sleep(1)
            status = await store.look(one.key)
            assert status is not None
            return status.readers

        await store.attach(one.key, PRINCIPAL, None, None)
        assert await readers() == 0
        get = await one.get()
        assert await readers() == 1
        detach = store.detach

        async def slowly(*args: object, **more: object) -> bool:
            store.detach = detach  # type: ignore[method-assign]
            await asyncio.sleep(5)
            return await detach(*args, **more)  # type: ignore[arg-type]

        # Nor does it hurry an end that is on its way, and is no break.
        store.detach = slowly  # type: ignore[method-assign]
        before = len(one.noted.named("session.detached"))
        get.reader.stop(End.AGED)
        await asyncio.sleep(1)
        await readers()
        await asyncio.sleep(10)
        assert await readers() == 0
        assert len(one.noted.named("session.detached")) == before


@engine_test
async def test_a_lost_attach_gives_its_place_back_to_the_reader_that_is_alive() -> None:
    async with pair() as (one, _):
        old = await one.get()
        await settle_down()
        store = one.engine.runtime.store
        attach = store.attach

        async def without_reply(*args: object, **more: object) -> object:
            store.attach = attach  # type: ignore[method-assign]
            await attach(*args, **more)  # type: ignore[arg-type]
            raise StoreUnavailable("the reply is lost, on purpose")

        store.attach = without_reply  # type: ignore[method-assign,assignment]
        with pytest.raises(StoreUnavailable):
            await one.get()
        await asyncio.sleep(5)
        status = await store.look(one.key)
        assert status is not None
        assert status.readers == 1
        assert one.noted.named("session.detached") == []
        await push(one.engine, one.key, "notifications/one")
        assert old.methods == ["notifications/one"]
        await old.cut()
        await asyncio.sleep(TIMES.grace_seconds + 2 * TIMES.sweep)
        assert await store.sessions() == []


@engine_test
async def test_an_idle_reader_whose_takeover_lost_its_reply_sends_nothing_twice() -> None:
    async with pair() as (one, two):
        old, new = await one.get(), await two.get()
        await settle_down()
        await push(two.engine, one.key, "notifications/one")
        assert (old.methods, new.methods) == ([], ["notifications/one"])
        store = one.engine.runtime.store
        attach, lost = store.attach, asyncio.Event()

        async def without_reply(*args: object, **more: object) -> object:
            store.attach = attach  # type: ignore[method-assign]
            await attach(*args, **more)  # type: ignore[arg-type]
            lost.set()
            raise StoreUnavailable("the reply is lost, on purpose")

        await new.cut()
        store.attach = without_reply  # type: ignore[method-assign,assignment]
        await lost.wait()
        await asyncio.sleep(2 * KEEP_ALIVE)
        await push(two.engine, one.key, "notifications/two")
        assert old.methods == ["notifications/two"]


@engine_test
async def test_an_end_that_is_sent_again_is_not_overtaken_by_a_check_of_its_place() -> None:
    async with pair() as (one, _):
        store, stream = one.engine.runtime.store, one.session.record.standalone
        get = await one.get()
        await push(one.engine, one.key, "notifications/one")
        detach, attempts = store.detach, 0

        async def failing(*args: object, **more: object) -> bool:
            nonlocal attempts
            attempts += 1
            if attempts <= 2:
                raise StoreUnavailable("down")
            return await detach(*args, **more)  # type: ignore[arg-type]

        store.detach = failing  # type: ignore[method-assign]
        get.reader.stop(End.AGED)
        await asyncio.sleep(0.1)
        one.engine._wake(WakeUp.HELD, one.key, stream)
        await asyncio.sleep(5)
        again = await one.get()
        await settle_down()
        assert again.methods == []
        assert one.noted.named("session.detached") == []


@engine_test
async def test_attaches_that_fail_while_the_store_is_unavailable_leave_a_bounded_number_of_tasks() -> None:
    async with pair() as (one, _):
        store = one.engine.runtime.store

        async def down(*_args: object, **_more: object) -> object:
            raise StoreUnavailable("down")

        before = len(one.engine.runtime.tasks)
        attach, look = store.attach, store.look
        store.attach = store.look = down  # type: ignore[method-assign,assignment]
        for number in range(1_500):
            with pytest.raises(StoreUnavailable):
                await one.engine.readers.attach(f"unknown{number}", PRINCIPAL)
        assert len(one.engine.runtime.tasks) <= before + 1_000
        store.attach, store.look = attach, look  # type: ignore[method-assign]
        await asyncio.sleep(2)
        assert len(one.engine.runtime.tasks) <= before


@engine_test
async def test_a_handler_whose_exchange_was_reaped_has_not_failed() -> None:
    goes_on = asyncio.Event()

    async def work(exchange: Exchange) -> object:
        await exchange.notify("notifications/progress", {"n": 0})
        await goes_on.wait()
        await exchange.notify("notifications/progress", {"n": 1})
        return {}

    async with pair() as (one, two):
        one.back.on(CALL)(work)
        post = await one.post(1)
        await settle_down()
        # One is taken for dead, and is not.
        await one.engine.runtime.store.release()
        await two.engine.replica.sweep()
        goes_on.set()
        messages = await post.whole()
        assert [message.get("method", "end") for message in messages] == ["notifications/progress", "end"]
        assert messages[-1]["error"]["code"] == OUTCOME_UNKNOWN
        await settle_down()
        assert len(one.noted.named("exchange.fenced")) == 1
        assert not one.noted.named("handler.failed")


@engine_test
async def test_a_change_for_one_principal_reaches_its_quiet_sessions() -> None:
    async with pair() as (one, two):
        principal = one.session.record.principal
        for replica in (one, two):
            replica.engine.runtime.release(replica.session)
            assert not replica.engine.runtime.sessions, "the session lives in no process"
        await two.engine.changed(Change("tools"), "another principal")
        await two.engine.changed(Change("tools"), principal)
        reader = await one.get()
        await settle_down()
        assert reader.methods == ["notifications/tools/list_changed"]


def tell_of(harness: EngineHarness) -> list[Change]:
    """Return the list that collects the changes which a replica sends to subscriptions."""
    told: list[Change] = []
    harness.engine.listening.send = lambda change, principal=None: told.append(change)  # type: ignore[method-assign] # noqa: ARG005
    return told


def flaky(store: Store, name: str, *, failures: int = 1) -> None:
    """Let the next calls of a store's method fail."""
    method, left = getattr(store, name), [failures]

    async def tried(*args: object) -> object:
        if left[0]:
            left[0] -= 1
            raise StoreUnavailable("on purpose")
        return await method(*args)

    setattr(store, name, tried)


@engine_test
async def test_news_whose_wake_up_found_the_store_unavailable_are_read_later() -> None:
    async with pair() as (one, two):
        told = tell_of(two)
        flaky(two.engine.runtime.store, "announced")
        await one.engine.changed(Change("tools"), None)
        await asyncio.sleep(2)
        assert told == [Change("tools")]


@engine_test
async def test_news_whose_wake_up_came_during_a_read_are_read() -> None:
    async with pair() as (one, two):
        told = tell_of(two)
        store = two.engine.runtime.store
        announced, may_go = store.announced, asyncio.Event()

        async def slowly(after: str) -> Announced:
            found = await announced(after)
            await may_go.wait()
            return found

        store.announced = slowly  # type: ignore[method-assign]
        await one.engine.changed(Change("tools"), None)
        await settle_down()
        await one.engine.changed(Change("prompts"), None)
        may_go.set()
        await settle_down()
        assert told == [Change("tools"), Change("prompts")]


@engine_test
async def test_a_request_whose_wake_up_found_the_store_unavailable_is_taken_later() -> None:
    async with pair() as (one, two):
        flaky(two.engine.runtime.store, "inbox")
        assert await one.engine.runtime.store.forward("two", "name", b"of a later release", seconds=60)
        await asyncio.sleep(2)
        assert two.noted.named("forward.dropped")
        assert await two.engine.runtime.store.inbox() == []


@engine_test
async def test_listeners_of_a_replica_that_missed_news_receive_every_change_that_they_asked_for() -> None:
    async with pair() as (one, two):
        wanted = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["a:1"]}}
        client = SessionlessClient(META, PRINCIPAL, two.engine.settings.limits)
        listener = await two.engine.listening.open(client, Request(1, "subscriptions/listen", wanted), CALLER)
        assert len(listener.messages()) == 1
        store = two.engine.runtime.store
        announced = store.announced

        async def trimmed(after: str) -> Announced:
            store.announced = announced  # type: ignore[method-assign]
            return Announced((await announced(after)).cursor, [], missed=True)

        store.announced = trimmed  # type: ignore[method-assign]
        await one.engine.changed(Change("prompts"), None)
        await settle_down()
        methods = [json.loads(message)["method"] for message in listener.messages()]
        assert methods == ["notifications/tools/list_changed", "notifications/resources/updated"]
        assert len(two.noted.named("news.missed")) == 1
