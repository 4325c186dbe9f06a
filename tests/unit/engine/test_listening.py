"""Subscriptions: the changes they receive, their limits, and their end."""

import asyncio
import json
from typing import Any

import pytest

from limpet.config import Limits, Settings
from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.engine.listening import FLUSH_SECONDS, Listener, ListenerEnd
from limpet.engine.sessionless_client import SessionlessClient
from limpet.errors import Busy, InvalidParams, MissingCapability
from limpet.protocol.sessionless import TASKS, VERSION, RequestMeta
from limpet.protocol.subscriptions import Change, Filter
from limpet.testing import NotingObserver, ScriptedBack
from limpet.testing.store.limits import tight
from limpet.wire.jsonrpc import Request
from tests.support import LoopClock, virtual_test

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
COMPLETE = {"resultType": "complete", "_meta": {"io.modelcontextprotocol/subscriptionId": 1}}


def client_of(principal: str = "", **capabilities: Any) -> SessionlessClient:
    return SessionlessClient(RequestMeta(VERSION, capabilities, {}, ""), principal, Limits())


async def listen(
    engine: Engine,
    principal: str = "",
    request_id: int | str = 1,
    expires: float | None = None,
    **wanted: object,
) -> Listener:
    request = Request(request_id, "subscriptions/listen", {"notifications": wanted})
    return await engine.listening.open(client_of(principal), request, Caller(principal), expires)


def told(listener: Listener) -> list[Any]:
    """Take the messages: methods of notifications, results unchanged."""
    messages = [json.loads(message) for message in listener.messages()]
    return [message.get("method") or message["result"] for message in messages]


def make(back: ScriptedBack | None = None, **limits: int) -> Engine:
    return Engine(back or ScriptedBack(), Settings(limits=tight(**limits)))


@virtual_test
async def test_the_acknowledgement_is_first_even_if_a_change_comes_before_it_is_read() -> None:
    engine = make()
    listener = await listen(engine, toolsListChanged=True)
    await engine.changed(Change("tools"))
    assert told(listener) == [ACKNOWLEDGED, "notifications/tools/list_changed"]


@virtual_test
async def test_a_subscription_receives_only_the_changes_it_asked_for() -> None:
    engine = make()
    prompts = await listen(engine, promptsListChanged=True)
    one = await listen(engine, resourceSubscriptions=["a://1"])
    for change in (
        Change("tools"),
        Change("resources"),
        Change("resource", "a://1"),
        Change("resource", "a://2"),
        Change("task", "a://1"),
    ):
        await engine.changed(change)
    assert told(prompts) == [ACKNOWLEDGED]
    assert told(one) == [ACKNOWLEDGED, "notifications/resources/updated"]


@virtual_test
async def test_unsent_changes_of_one_name_are_merged_and_the_newest_detail_is_sent() -> None:
    engine = make(listener_changes=2)
    request = Request(1, "subscriptions/listen", {"notifications": {"taskIds": ["t"]}})
    listener = await engine.listening.open(client_of(extensions={TASKS: {}}), request, Caller(""))
    for step in range(10):
        await engine.changed(Change("task", "t", {"status": "working", "step": step}))
    messages = [json.loads(message) for message in listener.messages()]
    assert [message["params"].get("step") for message in messages] == [None, 9]
    await engine.changed(Change("task", "t", {"status": "completed"}))
    assert json.loads(listener.messages()[0])["params"]["status"] == "completed"


@virtual_test
async def test_a_listener_too_far_behind_is_dropped_without_a_message_and_its_place_is_free_at_once() -> None:
    engine = make(listeners=1, listener_changes=2)
    uris = ["a://1", "a://2", "a://3"]
    slow = await listen(engine, resourceSubscriptions=uris)
    aborted: list[bool] = []
    slow.on_slow = lambda: aborted.append(True)
    told(slow)
    for uri in uris:
        await engine.changed(Change("resource", uri))
    assert slow.end is ListenerEnd.SLOW
    assert aborted == [True]
    assert told(slow) == []
    quick = await listen(engine, resourceSubscriptions=uris)
    for uri in uris:
        await engine.changed(Change("resource", uri))
        told(quick)
    assert quick.end is None


@virtual_test
async def test_too_many_listeners_are_refused_and_a_place_given_back_is_free() -> None:
    engine = make(listeners=3, listeners_per_principal=1)
    mine = await listen(engine, "me", toolsListChanged=True)
    with pytest.raises(Busy, match="too many listeners"):
        await listen(engine, "me", toolsListChanged=True)
    await listen(engine, toolsListChanged=True)
    await listen(engine, toolsListChanged=True)
    with pytest.raises(Busy):
        await listen(engine, "you", toolsListChanged=True)
    engine.listening.leave(mine)
    engine.listening.leave(mine)
    assert len(engine.listening) == 2
    await listen(engine, "me", toolsListChanged=True)


@virtual_test
async def test_the_limit_holds_for_subscriptions_that_arrive_while_the_back_checks_one() -> None:
    class Slow(ScriptedBack):
        async def honoured(self, client: SessionlessClient, wanted: Filter, caller: Caller) -> Filter:
            await asyncio.sleep(1)
            return wanted

    engine = make(Slow(), listeners=1)
    opened = await asyncio.gather(
        *(listen(engine, toolsListChanged=True) for _ in range(5)), return_exceptions=True
    )
    assert [type(item) for item in opened] == [Listener, Busy, Busy, Busy, Busy]


@virtual_test
async def test_a_change_for_one_principal_reaches_its_listeners_only() -> None:
    engine = make()
    mine, yours, anybody = [await listen(engine, name, toolsListChanged=True) for name in ("me", "you", "")]
    await engine.changed(Change("tools"), "me")
    assert [len(told(listener)) for listener in (mine, yours, anybody)] == [2, 1, 1]


@virtual_test
async def test_a_closed_subscription_receives_nothing_more() -> None:
    engine = make()
    listener = await listen(engine, toolsListChanged=True)
    engine.listening.leave(listener)
    await engine.changed(Change("tools"))
    assert listener.end is ListenerEnd.LEFT
    assert told(listener) == []


@virtual_test
async def test_an_expired_token_ends_it_with_the_completion_result() -> None:
    engine = Engine(ScriptedBack(), clock=LoopClock())
    expires = engine.clock.wall() + 60
    listener = await listen(engine, "me", expires=expires, toolsListChanged=True)
    forever = await listen(engine, "me", toolsListChanged=True)
    await asyncio.sleep(59)
    await engine.listening.sweep()
    assert told(listener) == [ACKNOWLEDGED]
    await asyncio.sleep(1)
    await engine.listening.sweep()
    assert listener.end is ListenerEnd.EXPIRED
    assert forever.end is None
    await engine.changed(Change("tools"))
    assert told(listener) == [COMPLETE]
    assert told(listener) == []


@virtual_test
async def test_stopping_sends_pending_changes_completes_and_does_not_wait_longer() -> None:
    engine = make()
    await engine.ensure_started()
    loop = asyncio.get_running_loop()
    listeners = [await listen(engine, toolsListChanged=True) for _ in range(100)]
    await engine.changed(Change("tools"))

    async def serve(listener: Listener) -> list[Any]:
        await listener.wake.wait()
        while listener.end is None:
            await asyncio.sleep(0)
        taken = told(listener)
        engine.listening.leave(listener)
        return taken

    serving = [loop.create_task(serve(listener)) for listener in listeners]
    before = loop.time()
    await engine.aclose()
    assert loop.time() == before
    for taken in await asyncio.gather(*serving):
        assert taken == [ACKNOWLEDGED, "notifications/tools/list_changed", COMPLETE]


@virtual_test
async def test_a_listener_that_never_leaves_holds_the_end_up_for_a_moment_only() -> None:
    engine = make()
    await engine.ensure_started()
    await listen(engine, toolsListChanged=True)
    before = asyncio.get_running_loop().time()
    await engine.aclose()
    assert asyncio.get_running_loop().time() - before <= FLUSH_SECONDS


@virtual_test
async def test_a_stopping_server_refuses_subscriptions_until_it_starts_again() -> None:
    engine = make()
    await engine.ensure_started()
    await engine.drain()
    with pytest.raises(Busy, match="stopping"):
        await listen(engine, toolsListChanged=True)
    await engine.aclose()
    await engine.ensure_started()
    await listen(engine, toolsListChanged=True)


@virtual_test
async def test_task_changes_go_only_to_clients_that_declare_the_extension() -> None:
    engine = make()
    odd: list[Any] = [{}, None, [TASKS], 5]
    for extensions in odd:
        request = Request(1, "subscriptions/listen", {"notifications": {"taskIds": ["t"]}})
        with pytest.raises(MissingCapability):
            await engine.listening.open(client_of(extensions=extensions), request, Caller(""))


@virtual_test
async def test_a_malformed_filter_takes_no_place() -> None:
    engine = make(listeners=1)
    with pytest.raises(InvalidParams):
        await listen(engine, toolsListChanged="yes")
    assert len(engine.listening) == 0


@virtual_test
async def test_a_listener_that_is_dropped_or_refused_is_noted() -> None:
    observer = NotingObserver()
    limits = tight(listeners=1, listener_changes=1)
    engine = Engine(ScriptedBack(), Settings(limits=limits), observer=observer)
    await listen(engine, resourceSubscriptions=["a://1", "a://2"])
    with pytest.raises(Busy):
        await listen(engine, toolsListChanged=True)
    await engine.changed(Change("resource", "a://1"))
    await engine.changed(Change("resource", "a://2"))
    assert len(observer.named("listen.refused")) == len(observer.named("listen.dropped")) == 1


@virtual_test
async def test_the_filters_of_subscriptions_have_a_limit_in_bytes() -> None:
    engine = make(memory=3_100)
    first = await listen(engine, "ann", resourceSubscriptions=["x" * 1_000])
    with pytest.raises(Busy, match="too much"):
        await listen(engine, "ann", resourceSubscriptions=["y" * 100])
    second = await listen(engine, "bob", resourceSubscriptions=["x" * 1_000])
    with pytest.raises(Busy, match="too much"):
        await listen(engine, resourceSubscriptions=["z" * 500])
    assert len(engine.listening) == 2
    engine.listening.leave(first)
    third = await listen(engine, "ann", resourceSubscriptions=["y" * 100])
    assert engine.runtime.load.ledger.used == 1_256 + 356
    for listener in (second, third):
        engine.listening.leave(listener)
    assert engine.runtime.load.ledger.used == 0


@virtual_test
async def test_many_short_names_are_charged_for_their_entries() -> None:
    engine = make(memory=10_000)
    listeners = [await listen(engine, resourceSubscriptions=[str(n) for n in range(20)])]
    with pytest.raises(Busy, match="too much"):
        listeners += [await listen(engine, resourceSubscriptions=[str(n) for n in range(20)])]
