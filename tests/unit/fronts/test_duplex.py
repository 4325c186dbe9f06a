"""The core that stdio and the pair in memory share, on a wire that is a list."""

import asyncio
import json
from contextlib import aclosing

from limpet.auth import Principal
from limpet.config import Limits, Settings, Times
from limpet.core.ledger import Ledger
from limpet.core.lifecycle import SessionInput
from limpet.engine.caller import Caller
from limpet.fronts.duplex import OWED, Gathering
from limpet.testing.store.limits import tight
from tests.duplex import META
from tests.support import LoopClock, async_test, until, virtual_test
from tests.unit.fronts.wire import Held, Wire


@async_test
async def test_before_initialize_only_ping_is_answered() -> None:
    wire = Wire(Held())
    await wire.say("echo", 1)
    await wire.say("ping", 2)
    await wire.say("notifications/initialized")
    refused = (await wire.answer(1))["error"]
    assert (refused["code"], "initialize first" in refused["message"]) == (-32600, True)
    assert (await wire.answer(2))["result"] == {}


@async_test
async def test_a_malformed_initialize_is_refused_and_a_right_one_may_follow() -> None:
    wire = Wire(Held())
    await wire.say("initialize", "a", protocolVersion="2025-11-25")
    assert (await wire.answer("a"))["error"]["code"] == -32602
    await wire.open()


@async_test
async def test_a_second_initialize_is_refused_and_the_first_session_stays() -> None:
    wire = Wire(Held())
    await wire.open("2025-06-18")
    session = wire.duplex.session
    await wire.say("initialize", 1, protocolVersion="2025-11-25", clientInfo={"name": "x"}, capabilities={})
    assert (await wire.answer(1))["error"]["code"] == -32600
    await wire.say("echo", 2, text="still here")
    assert (await wire.answer(2))["result"] == {"text": "still here"}
    assert wire.duplex.session is session
    assert session is not None
    assert session.revision.name == "2025-06-18"


@async_test
async def test_a_cancelled_call_cancels_its_ask_and_a_late_answer_is_dropped() -> None:
    wire = Wire(Held())
    await wire.open()
    await wire.say("ask", 1)
    await wire.wait_for("sampling/createMessage")
    ask = wire.received[-1]
    await wire.say("notifications/cancelled", requestId=1)
    assert (await wire.answer(1))["error"]["code"] == -32800
    *_, cancelled, _ = wire.received
    assert (cancelled["method"], cancelled["params"]["requestId"]) == ("notifications/cancelled", ask["id"])
    await wire.duplex.take(json.dumps({"jsonrpc": "2.0", "id": ask["id"], "result": {}}).encode())
    await wire.duplex.take(json.dumps({"jsonrpc": "2.0", "id": "never asked", "result": {}}).encode())
    await wire.say("echo", 2, text="still here")
    assert (await wire.answer(2))["result"] == {"text": "still here"}
    assert wire.received[-1]["id"] == 2


@async_test
async def test_an_id_in_flight_is_refused_and_the_first_request_completes() -> None:
    back = Held()
    wire = Wire(back, Settings(duplicates="isolate"))
    await wire.open()
    await wire.say("hold", 7, n="first")
    await wire.say("hold", 7, n="second")
    assert (await wire.answer(7))["error"]["code"] == -32600
    await wire.say("echo", "7", text="another id")
    assert (await wire.answer("7"))["result"] == {"text": "another id"}
    back.gate.set()
    assert (await wire.answer(7, 2))["result"] == {"held": "first"}
    await wire.say("echo", 7, text="free again")
    assert (await wire.answer(7, 3))["result"] == {"text": "free again"}


@async_test
async def test_pings_answers_and_cancellations_pass_while_every_slot_is_taken() -> None:
    back = Held()
    wire = Wire(back, Settings(limits=Limits(running=1)))
    await wire.open()
    await wire.say("hold", 1)
    await wire.say("echo", 2, text="queued")
    await wire.say("ping", 3)
    assert (await wire.answer(3))["result"] == {}
    assert not [m for m in wire.received if m.get("id") == 2]
    await wire.say("notifications/cancelled", requestId=1)
    assert (await wire.answer(1))["error"]["code"] == -32800
    assert (await wire.answer(2))["result"] == {"text": "queued"}


@async_test
async def test_an_invalid_message_is_answered_and_the_connection_continues() -> None:
    wire = Wire(Held())
    await wire.open()
    await wire.duplex.take(b"{garbage")
    assert (await wire.answer(None))["error"]["code"] == -32700
    await wire.duplex.take(b'{"jsonrpc":"2.0","id":5,"method":7}')
    assert (await wire.answer(5))["error"]["code"] == -32600
    await wire.duplex.take(b'{"jsonrpc":"2.0","id":"unknown.1","result":{}}')
    await wire.say("echo", 6, text="on")
    assert (await wire.answer(6))["result"] == {"text": "on"}


@async_test
async def test_a_batch_of_2025_03_26_is_answered_by_one_array() -> None:
    back = Held()
    wire = Wire(back)
    await wire.open("2025-03-26")
    calls = [{"jsonrpc": "2.0", "id": n, "method": "echo", "params": {"n": n}} for n in (1, 2)]
    hold = {"jsonrpc": "2.0", "id": 3, "method": "hold", "params": {"n": 3}}
    again = {"jsonrpc": "2.0", "id": 3, "method": "echo", "params": {}}
    note = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
    late = {"jsonrpc": "2.0", "id": 4, "method": "initialize", "params": {}}
    await wire.duplex.take(json.dumps([*calls, note, hold, again, late]).encode())
    back.gate.set()
    answers = await wire.batch()
    results = {m["id"]: m["result"] for m in answers if "result" in m}
    assert results == {1: {"n": 1}, 2: {"n": 2}, 3: {"held": 3}}
    assert sorted((m["id"], m["error"]["code"]) for m in answers if "error" in m) == [
        (3, -32600),
        (4, -32600),
    ]


@virtual_test
async def test_the_answers_of_a_batch_are_charged_until_they_are_written() -> None:
    ledger, written, room = Ledger(1_000_000), bytearray(), asyncio.Event()

    async def write(message: bytes) -> None:
        await room.wait()
        written.extend(message)

    batch = Gathering(2, write, ledger.account("local").open())
    await batch.add(b"1" * 50_000)
    assert ledger.used == 100_000
    last = asyncio.create_task(batch.add(b"2"))
    await asyncio.sleep(1)
    assert ledger.used == 100_002
    room.set()
    await last
    assert (len(written), ledger.used) == (50_004, 0)


@async_test
async def test_a_batch_has_at_most_100_messages() -> None:
    wire = Wire(Held())
    await wire.open("2025-03-26")
    pings = [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(101)]
    await wire.duplex.take(json.dumps(pings).encode())
    assert "at most 100" in (await wire.answer(None))["error"]["message"]
    await wire.duplex.take(json.dumps(pings[1:]).encode())
    assert len(await wire.batch()) == 100


@async_test
async def test_batches_are_refused_in_later_revisions_and_before_initialize() -> None:
    wire = Wire(Held())
    batch = b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]'
    await wire.duplex.take(batch)
    assert "initialize first" in (await wire.answer(None))["error"]["message"]
    await wire.open()
    await wire.duplex.take(batch)
    assert "2025-03-26" in (await wire.answer(None, 2))["error"]["message"]


@virtual_test
async def test_a_peer_that_writes_and_never_reads_is_no_longer_read_from() -> None:
    wire = Wire(Held())
    await wire.open()
    wire.reading.clear()

    async def flood() -> None:
        for n in range(10 * OWED):
            await wire.say("ping", n + 1)

    flooding = asyncio.ensure_future(flood())
    await asyncio.sleep(60)
    assert not flooding.done()
    assert len(wire.duplex._replies) == OWED
    wire.reading.set()
    await flooding
    await wire.answer(10 * OWED)


@virtual_test
async def test_hanging_up_lets_running_and_queued_calls_finish_and_gives_the_reason() -> None:
    back = Held()
    wire = Wire(back, Settings(limits=Limits(running=1)))
    await wire.open()
    await wire.say("hold", 1, n=1)
    await wire.say("echo", 2, text="queued")
    asyncio.get_running_loop().call_later(5, back.gate.set)
    await wire.duplex.hang_up(SessionInput.DELETED)
    assert (await wire.answer(1))["result"] == {"held": 1}
    assert (await wire.answer(2))["result"] == {"text": "queued"}
    assert back.events[-1] == "closed: deleted"


@virtual_test
async def test_a_call_of_a_session_that_outlasts_the_drain_time_is_ended_with_an_answer() -> None:
    back = Held()
    wire = Wire(back, Settings(times=Times(drain=3)))
    await wire.open()
    await wire.say("hold", 1)
    before = asyncio.get_running_loop().time()
    await wire.duplex.hang_up(SessionInput.SHUTDOWN)
    assert asyncio.get_running_loop().time() - before == 3
    assert (await wire.answer(1))["error"]["code"] == -32800
    assert back.events[-1] == "closed: shutdown"


@virtual_test
async def test_an_ask_fails_at_once_when_the_connection_no_longer_reads_answers() -> None:
    back = Held()
    wire = Wire(back, Settings(limits=Limits(running=1)))
    await wire.open()
    await wire.say("ask", 1)
    await wire.say("ask", 2)
    await asyncio.sleep(0)
    before = asyncio.get_running_loop().time()
    await wire.duplex.hang_up(SessionInput.DELETED)
    assert asyncio.get_running_loop().time() == before
    assert [(await wire.answer(n))["result"] for n in (1, 2)] == [{"answer": "none came"}] * 2


@virtual_test
async def test_no_clock_ends_a_session_whose_connection_lives() -> None:
    back = Held()
    wire = Wire(back)
    await wire.open()
    assert wire.duplex.session is not None
    record = wire.duplex.session.record
    assert min(record.idle, record.lifetime) > 10 * 365 * 86_400


@async_test
async def test_a_message_of_too_many_values_is_refused_and_the_next_one_works() -> None:
    wire = Wire(Held(), Settings(limits=tight(values=1_000, client_bytes=500)))
    await wire.say(
        "initialize", 1, protocolVersion="2025-11-25", clientInfo={"name": "x" * 500}, capabilities={}
    )
    assert (await wire.answer(1))["error"]["code"] == -32602
    await wire.open()
    await wire.say("echo", 2, text=[[]] * 600)
    await wire.say("echo", 3, text="fine")
    assert (await wire.answer(3))["result"] == {"text": "fine"}
    assert any(
        "at most 1000 values" in message.get("error", {}).get("message", "") for message in wire.received
    )


LOAD = Settings(limits=Limits(memory=5_200_000))


@async_test
async def test_large_calls_beyond_the_budget_are_refused_and_answers_pass() -> None:
    back = Held()
    wire = Wire(back, LOAD)
    await wire.open()
    text = "x" * 400_000
    await wire.say("hold", 1, n=text)
    await wire.say("hold", 2, n=text)
    await wire.say("hold", 3, n=text)
    assert (await wire.answer(3))["error"]["code"] == -31001
    await wire.say("echo", 4, text="small")
    assert (await wire.answer(4))["result"] == {"text": "small"}
    await wire.say("ping", 5, text=text)
    assert "result" in await wire.answer(5)
    await wire.say("hold", 6, _meta=META, n=text)
    assert (await wire.answer(6))["error"]["code"] == -31001
    await wire.say("notifications/cancelled", requestId=1, reason=text)
    assert (await wire.answer(1))["error"]["code"] == -32800
    back.gate.set()
    await wire.answer(2)
    ledger = wire.engine.runtime.load.ledger
    back.handled.clear()
    await until(lambda: ledger.used < 50_000)
    await wire.say("echo", 7, text=text)
    assert (await wire.answer(7))["result"] == {"text": text}


@async_test
async def test_a_batch_beyond_the_budget_is_refused_whole() -> None:
    back = Held()
    wire = Wire(back, LOAD)
    await wire.open("2025-03-26")
    text = "x" * 400_000
    await wire.say("hold", 1, n=text)
    await wire.say("hold", 2, n=text)
    batch = [
        {"jsonrpc": "2.0", "id": 3, "method": "echo", "params": {"text": text}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
    ]
    await wire.duplex.take(json.dumps(batch).encode())
    async with wire.arrived:
        await wire.arrived.wait_for(lambda: isinstance(wire.received[-1], list))
    [refused] = wire.received[-1]
    assert (refused["id"], refused["error"]["code"]) == (3, -31001)
    assert not any(isinstance(one, dict) and one.get("id") == 1 for one in wire.received), (
        "nothing of it was done"
    )
    back.gate.set()
    assert (await wire.answer(1))["result"] == {"held": text}


@virtual_test
async def test_a_client_whose_token_has_expired_is_not_served_any_more() -> None:
    principal = Principal(subject="ann", expires=LoopClock().wall() + 60)
    wire = Wire(Held(), clock=LoopClock(), caller=Caller(principal.key, principal))
    async with aclosing(wire.engine):
        await wire.open()
        await wire.say("echo", 1, text="in time")
        assert (await wire.answer(1))["result"] == {"text": "in time"}
        await asyncio.sleep(60)
        await wire.say("echo", 2, text="late")
        assert "expired" in (await wire.answer(2))["error"]["message"]
