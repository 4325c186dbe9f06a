"""Requests without a session (2026-07-28) on a connection that carries messages both ways, beside a session's."""

import asyncio
from typing import Any

import pytest

from limpet.config import Limits, Settings, Times
from limpet.core.lifecycle import SessionInput
from limpet.fronts.duplex import OWED
from limpet.protocol.idempotency import KEY
from limpet.protocol.subscriptions import Change
from limpet.testing import NotingObserver
from limpet.testing.store.limits import tight
from tests.duplex import META
from tests.schema import validate
from tests.support import async_test, until, virtual_test
from tests.unit.engine.harness import settle_down
from tests.unit.fronts.wire import Held, Wire

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TOOLS_CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def subscriptions(messages: list[Any]) -> list[int | str]:
    """Return the subscription of every message on one, in order."""
    found = []
    for message in messages:
        body = message.get("params") or message.get("result") or {}
        if SUBSCRIPTION in body.get("_meta", {}):
            found.append(body["_meta"][SUBSCRIPTION])
    return found


def settled(*, drain: float = 30.0) -> Settings:
    return Settings(times=Times(drain=drain))


@async_test
async def test_a_request_with_its_own_metadata_needs_no_initialize() -> None:
    wire = Wire(Held())
    await wire.sessionless("echo", 1, text="hi")
    assert (await wire.answer(1))["result"]["text"] == "hi"
    assert wire.duplex.session is None


@async_test
async def test_initialize_works_after_such_requests_and_both_work_inside_the_session() -> None:
    wire = Wire(Held())
    await wire.sessionless("echo", 1, era="without")
    await wire.open()
    await wire.say("echo", 2, era="with")
    await wire.sessionless("echo", 3, era="without")
    eras = [(await wire.answer(n))["result"]["era"] for n in (1, 2, 3)]
    assert eras == ["without", "with", "without"]


@async_test
async def test_another_version_is_refused_with_the_supported_ones_and_missing_metadata_is_named() -> None:
    wire = Wire(Held())
    await wire.say("echo", 1, _meta={**META, "io.modelcontextprotocol/protocolVersion": "1900-01-01"})
    error = (await wire.answer(1))["error"]
    assert error["code"] == -32022
    assert "2026-07-28" in error["data"]["supported"]
    await wire.say("echo", 2, _meta={"io.modelcontextprotocol/protocolVersion": "2026-07-28"})
    assert (await wire.answer(2))["error"]["code"] == -32602
    await wire.say("server/discover", 3)
    assert (await wire.answer(3))["error"]["code"] == -32602


@async_test
async def test_an_id_in_flight_is_refused_across_both_eras_and_the_first_completes() -> None:
    back = Held()
    wire = Wire(back)
    await wire.open()
    await wire.sessionless("hold", 1, n="sessionless")
    await wire.say("hold", 2, n="session")
    await asyncio.sleep(0)
    await wire.sessionless("echo", 1)
    await wire.say("echo", 1)
    await wire.sessionless("echo", 2)
    await wire.sessionless("echo", "1", text="another id")
    assert (await wire.answer("1"))["result"]["text"] == "another id"
    for request_id, count in ((1, 1), (1, 2), (2, 1)):
        assert (await wire.answer(request_id, count))["error"]["code"] == -32600
    back.gate.set()
    assert (await wire.answer(1, 3))["result"] == {"held": "sessionless"}
    assert (await wire.answer(2, 2))["result"] == {"held": "session"}
    await wire.sessionless("echo", 1, text="free again")
    assert (await wire.answer(1, 4))["result"]["text"] == "free again"
    assert len(back.handled) == 4


@async_test
async def test_a_call_that_asks_is_answered_in_rounds_and_its_body_runs_once() -> None:
    back = Held()
    wire = Wire(back)
    await wire.sessionless("tools/call", 1, name="x")
    first = (await wire.answer(1))["result"]
    assert first["resultType"] == "input_required"
    assert sorted(asked["params"]["n"] for asked in first["inputRequests"].values()) == [1, 2]
    answers = {key: {"roots": [asked["params"]["n"]]} for key, asked in first["inputRequests"].items()}
    await wire.sessionless(
        "tools/call", 2, name="x", requestState=first["requestState"], inputResponses=answers
    )
    second = (await wire.answer(2))["result"]
    (key,) = second["inputRequests"]
    await wire.sessionless(
        "tools/call", 3, name="x", requestState=second["requestState"], inputResponses={key: {"roots": [3]}}
    )
    assert (await wire.answer(3))["result"] == {"answers": [{"roots": [n]} for n in (1, 2, 3)]}
    assert len(back.handled) == 1
    assert not [message for message in wire.received if "method" in message and "id" in message]


@async_test
async def test_a_state_that_is_not_ours_is_refused_with_an_answer() -> None:
    wire = Wire(Held())
    await wire.sessionless("tools/call", 1, name="x", requestState="forged", inputResponses={})
    assert (await wire.answer(1))["error"]["code"] == -31003


@async_test
async def test_a_cancelled_request_stops_its_handler_and_sends_nothing_more() -> None:
    back = Held()
    wire = Wire(back)
    await wire.sessionless("hold", 1)
    while not back.handled:
        await asyncio.sleep(0)
    await wire.say("notifications/cancelled", requestId=1, reason="no longer wanted")
    await back.cancelled.wait()
    back.gate.set()
    await wire.sessionless("hold", 1, n="again")
    assert (await wire.answer(1))["result"] == {"held": "again"}
    assert len(wire.received) == 1


@async_test
async def test_a_request_cancelled_before_it_began_never_begins() -> None:
    back = Held()
    wire = Wire(back)
    await wire.sessionless("hold", 1)
    await wire.say("notifications/cancelled", requestId=1)
    await wire.sessionless("echo", 2)
    await wire.answer(2)
    assert [exchange.request.id for exchange in back.handled] == [2]
    assert len(wire.received) == 1


@async_test
async def test_a_message_that_waits_for_a_slow_client_is_not_sent_once_its_request_is_cancelled() -> None:
    back = Held()
    wire = Wire(back)
    wire.reading.clear()
    await wire.sessionless("tools/call", 1)
    await until(lambda: wire.writes_waiting == 1)
    await wire.say("notifications/cancelled", requestId=1)
    await wire.sessionless("echo", 2)
    wire.reading.set()
    await wire.answer(2)
    assert len(wire.received) == 1
    assert back.handled[0].has_ended


@pytest.mark.parametrize("request_id", [True, None, [1], {"a": 1}, 1.5, 9, "9"])
@async_test
async def test_a_cancellation_of_an_unknown_request_is_ignored(request_id: object) -> None:
    back = Held()
    wire = Wire(back)
    await wire.sessionless("hold", 1, n=1)
    await wire.say("notifications/cancelled", requestId=request_id)
    back.gate.set()
    assert (await wire.answer(1))["result"] == {"held": 1}


@async_test
async def test_subscriptions_share_the_connection_and_each_message_names_its_subscription() -> None:
    wire = Wire(Held())
    await wire.sessionless("subscriptions/listen", 1, notifications={"toolsListChanged": True})
    await wire.sessionless("subscriptions/listen", "1", notifications={"resourceSubscriptions": ["a://1"]})
    await wire.wait_for(ACKNOWLEDGED, 2)
    await wire.engine.changed(Change("resource", "a://1"))
    await wire.engine.changed(Change("tools"))
    await wire.engine.changed(Change("prompts"))
    (tools,), (updated,) = await wire.wait_for(TOOLS_CHANGED), await wire.wait_for(UPDATED)
    assert tools["_meta"][SUBSCRIPTION] == 1
    assert updated == {"_meta": {SUBSCRIPTION: "1"}, "uri": "a://1"}
    await wire.sessionless("echo", 2)
    await wire.answer(2)
    assert sorted(map(str, subscriptions(wire.received))) == ["1"] * 4
    for message in wire.received[:-1]:
        validate(message, "2026-07-28")


@async_test
async def test_a_subscription_is_in_flight_until_it_is_cancelled_and_then_receives_nothing() -> None:
    wire = Wire(Held())
    await wire.sessionless("subscriptions/listen", 1, notifications={"toolsListChanged": True})
    await wire.wait_for(ACKNOWLEDGED)
    await wire.sessionless("echo", 1)
    assert (await wire.answer(1))["error"]["code"] == -32600
    await wire.say("notifications/cancelled", requestId=1)
    await wire.engine.changed(Change("tools"))
    await wire.sessionless("echo", 1, text="free")
    assert (await wire.answer(1, 2))["result"]["text"] == "free"
    assert len(wire.engine.listening) == 0
    assert [message.get("method") for message in wire.received] == [ACKNOWLEDGED, None, None]


@virtual_test
async def test_a_listener_that_is_refused_gets_an_answer() -> None:
    wire = Wire(Held(), Settings(limits=tight(listeners=1)))
    await wire.sessionless("subscriptions/listen", 1, notifications={"toolsListChanged": True})
    await wire.sessionless("subscriptions/listen", 2, notifications={"toolsListChanged": True})
    await wire.sessionless("subscriptions/listen", 3, notifications=[])
    assert (await wire.answer(2))["error"]["code"] == -31001
    assert (await wire.answer(3))["error"]["code"] == -32602


@virtual_test
async def test_a_subscription_that_falls_behind_is_cancelled_and_others_continue() -> None:
    wire = Wire(Held(), Settings(limits=tight(listener_changes=2)))
    uris = [f"a://{n}" for n in range(4)]
    await wire.sessionless("subscriptions/listen", 1, notifications={"resourceSubscriptions": uris})
    await wire.sessionless("subscriptions/listen", 2, notifications={"toolsListChanged": True})
    await wire.wait_for(ACKNOWLEDGED, 2)
    wire.reading.clear()
    for uri in uris:
        await wire.engine.changed(Change("resource", uri))
    assert len(wire.engine.listening) == 1
    await wire.engine.changed(Change("tools"))
    wire.reading.set()
    (dropped,) = await wire.wait_for("notifications/cancelled")
    assert dropped["requestId"] == 1
    await wire.wait_for(TOOLS_CHANGED)
    for message in wire.received:
        validate(message, "2026-07-28")


@virtual_test
async def test_hanging_up_completes_listeners_and_lets_calls_finish() -> None:
    back = Held()
    wire = Wire(back)
    await wire.open()
    await wire.sessionless("subscriptions/listen", 1, notifications={"toolsListChanged": True})
    await wire.sessionless("hold", 2, n=2)
    await wire.say("hold", 3, n=3)
    await wire.wait_for(ACKNOWLEDGED)
    hanging_up = asyncio.ensure_future(wire.duplex.hang_up(SessionInput.DELETED))
    last = await wire.answer(1)
    validate(last, "2026-07-28", answers="subscriptions/listen")
    assert last["result"] == {"resultType": "complete", "_meta": {SUBSCRIPTION: 1}}
    await asyncio.sleep(29)
    back.gate.set()
    await hanging_up
    assert (await wire.answer(2))["result"] == {"held": 2}
    assert (await wire.answer(3))["result"] == {"held": 3}
    before = len(wire.received)
    await wire.engine.changed(Change("tools"))
    await asyncio.sleep(1)
    assert len(wire.received) == before


@virtual_test
async def test_a_call_that_outlasts_the_drain_time_is_ended_with_an_answer() -> None:
    back = Held()
    wire = Wire(back, settled(drain=5))
    await wire.sessionless("hold", 1)
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0)
    before = loop.time()
    await wire.duplex.hang_up(SessionInput.DELETED)
    assert loop.time() - before == 5
    assert (await wire.answer(1))["error"]["code"] == -32800
    assert back.cancelled.is_set()


@virtual_test
async def test_a_peer_that_is_gone_ends_its_calls_at_once() -> None:
    back = Held()
    wire = Wire(back)
    await wire.sessionless("hold", 1)
    await asyncio.sleep(0)
    wire.duplex.gone.set()
    before = asyncio.get_running_loop().time()
    await wire.duplex.hang_up(SessionInput.DELETED)
    assert asyncio.get_running_loop().time() == before
    await asyncio.sleep(0)
    assert back.cancelled.is_set()


@virtual_test
async def test_an_engine_that_stops_completes_the_listeners_of_its_connections() -> None:
    wire = Wire(Held())
    for n in range(100):
        await wire.sessionless("subscriptions/listen", n, notifications={"toolsListChanged": True})
    await wire.wait_for(ACKNOWLEDGED, 100)
    before = asyncio.get_running_loop().time()
    await wire.engine.aclose()
    assert asyncio.get_running_loop().time() - before < 1
    for n in range(100):
        assert (await wire.answer(n))["result"]["_meta"] == {SUBSCRIPTION: n}


@async_test
async def test_a_peer_that_writes_requests_and_never_reads_is_no_longer_read_from() -> None:
    wire = Wire(Held(), Settings(limits=Limits(running=8, queued=8)))
    wire.reading.clear()

    async def flood() -> None:
        for n in range(1_000):
            await wire.sessionless("echo", n)

    flooding = asyncio.ensure_future(flood())
    await until(lambda: len(wire.duplex._replies) == OWED)
    await settle_down()
    assert not flooding.done()
    assert len(wire.duplex._replies) <= OWED
    wire.reading.set()
    await flooding
    await wire.answer(999)
    assert len(wire.received) <= 1_000


@async_test
async def test_one_era_can_be_turned_off_here_too() -> None:
    wire = Wire(Held(), Settings(eras="sessions"))
    await wire.sessionless("echo", 1)
    refused = (await wire.answer(1))["error"]
    assert (refused["code"], "2026-07-28" in refused["data"]["supported"]) == (-32022, False)
    await wire.open()

    wire = Wire(Held(), Settings(eras="sessionless"))
    await wire.say("initialize", 1, protocolVersion="2025-11-25", clientInfo={"name": "x"}, capabilities={})
    refused = (await wire.answer(1))["error"]
    assert (refused["code"], refused["data"]["supported"]) == (-32022, ["2026-07-28"])
    await wire.say("echo", 2)
    assert (await wire.answer(2))["error"]["code"] == -32602
    await wire.sessionless("echo", 3)
    assert "result" in await wire.answer(3)


@async_test
async def test_a_key_attaches_a_second_request_to_the_running_call_and_a_cancellation_ends_it_at_once() -> (
    None
):
    back = Held()
    back.on("tools/call")(back.hold)
    wire = Wire(back)
    meta = {**META, KEY: "k"}
    for number in (1, 2):
        await wire.say("tools/call", number, name="hold", n="once", _meta=meta)
    await until(lambda: len(wire.duplex._sessionless._waiters) == 2)
    await wire.say("tools/call", 3, name="hold", n="other", _meta=meta)
    assert (await wire.answer(3))["error"]["code"] == -32600
    back.gate.set()
    answers = [(await wire.answer(number))["result"] for number in (1, 2)]
    assert answers[0] == answers[1]
    assert len(back.handled) == 1
    back.gate.clear()
    await wire.say("tools/call", 4, name="hold", _meta={**META, KEY: "other"})
    await until(lambda: len(back.handled) == 2)
    await wire.say("notifications/cancelled", requestId=4)
    await back.cancelled.wait()


@async_test
async def test_the_reason_of_a_cancellation_is_noted_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    back = Held()
    wire = Wire(back)
    notes = NotingObserver()
    monkeypatch.setattr(wire.engine.observer, "note", notes.note)
    await wire.sessionless("hold", 1)
    await until(lambda: bool(back.handled))
    await wire.say("notifications/cancelled", requestId=1, reason="no longer wanted")
    await wire.say("notifications/cancelled", requestId=1, reason="a second time")
    await back.cancelled.wait()
    assert [note["reason"] for note in notes.named("call.cancelled")] == ["no longer wanted"]
