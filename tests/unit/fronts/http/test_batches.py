"""Arrays of messages, which one revision demands and the others do not know."""

import asyncio
from typing import Any

import pytest

from limpet.config import Limits, Settings
from limpet.core.rules.streams import drop_finished
from tests.asgi import Call, Peer
from tests.messages import LATEST, notification, request
from tests.stores import ScriptedStore
from tests.unit.fronts.http.bench import MIDDLE, OLDEST, Bench, bench, front_test


async def opened(b: Bench, version: str = OLDEST) -> Peer:
    """Return a client with a session."""
    peer = b.peer()
    assert (await peer.initialize(version)).status == 200
    return peer


def call_of(request_id: int | str, tool: str) -> Any:
    """Return a tools/call."""
    return request(request_id, "tools/call", {"name": tool})


def answers(call: Call) -> dict[Any, Any]:
    """Return the answers by id, of a stream or of a JSON body."""
    messages: Any = [m for m in call.messages if "id" in m] if call.is_stream else call.json
    found = {message["id"]: message for message in messages}
    assert len(found) == len(messages)
    return found


@pytest.mark.parametrize("version", [MIDDLE, LATEST])
@front_test
async def test_other_revisions_refuse_arrays_and_run_nothing(version: str) -> None:
    async with bench() as b:
        p = await opened(b, version)
        refused = await p.post([call_of(1, "quick")]).done()
        assert (refused.status, refused.json["error"]["code"]) == (400, -32600)
        assert "id" not in refused.json
        assert b.runs == []


@front_test
async def test_quick_requests_are_answered_in_one_array() -> None:
    async with bench() as b:
        p = await opened(b)
        call = await p.post([call_of(1, "quick"), request("b", "ping"), request(3, "no/such")]).done()
        assert call.status == 200
        found = answers(call)
        assert not call.is_stream
        assert found[1]["result"] == {"tool": "quick", "id": 1}
        assert found["b"]["result"] == {}
        assert found[3]["error"]["code"] == -32601


@front_test
async def test_one_slow_request_makes_the_whole_answer_a_stream() -> None:
    async with bench() as b:
        p = await opened(b)
        call = p.post([call_of(1, "quick"), call_of(2, "held"), call_of(3, "ticks")])
        await call.until(3)
        assert call.headers["x-accel-buffering"] == "no"
        b.release.set()
        await call.done()
        assert set(answers(call)) == {1, 2, 3}
        assert [m["params"]["progress"] for m in call.messages if "method" in m] == [1, 2]


@front_test
async def test_only_notifications_and_answers_get_202() -> None:
    async with bench() as b:
        p = await opened(b)
        call = await p.post(
            [notification("notifications/initialized"), notification("notifications/x")]
        ).done()
        assert (call.status, call.body) == (202, b"")
        await asyncio.sleep(0)
        assert [method for method, _ in b.back.notified] == ["notifications/initialized", "notifications/x"]


@front_test
async def test_an_answer_to_an_ask_may_come_in_an_array() -> None:
    async with bench() as b:
        p = await opened(b)
        call = await p.call(1, "ask").until(1)
        answer = {"jsonrpc": "2.0", "id": call.messages[0]["id"], "result": {"roots": []}}
        mixed = await p.post([answer, request(2, "ping")]).done()
        assert answers(mixed)[2]["result"] == {}
        assert (await call.done()).messages[-1]["result"]["answer"] == {"roots": []}
        unknown, different = {**answer, "id": "never.asked"}, {**answer, "result": {"roots": [1]}}
        assert (await p.post([unknown, answer]).done()).status == 202, "dropped, and the same once more"
        assert (await p.post([different, unknown]).done()).status == 400
        mixed = await p.post([different, unknown, request(3, "ping")]).done()
        assert answers(mixed)[3]["result"] == {}, "the answer of a request has its own place"


@front_test
async def test_an_id_twice_in_one_array_runs_once() -> None:
    async with bench() as b:
        p = await opened(b)
        call = p.post([call_of(1, "held"), call_of(1, "held"), call_of(1, "quick")])
        await asyncio.sleep(1)
        b.release.set()
        await call.done()
        ends = [message for message in call.messages if "id" in message]
        assert [m["id"] for m in ends] == [1, 1, 1]
        assert [m.get("error", {}).get("code") for m in ends] == [-32600, -32600, None]
        assert b.runs == ["held"]


@front_test
async def test_initialize_may_not_be_part_of_a_batch() -> None:
    async with bench() as b:
        p = await opened(b)
        params = {"protocolVersion": OLDEST, "clientInfo": {"name": "x"}, "capabilities": {}}
        call = await p.post([request(1, "initialize", params), request(2, "ping")]).done()
        assert answers(call)[1]["error"]["code"] == -32600
        assert answers(call)[2]["result"] == {}
        assert len(await b.store.sessions()) == 1
        alone = b.peer()
        assert (await alone.post([request(1, "initialize", params)]).done()).status == 400


@pytest.mark.parametrize("body", [b"[]", b"[1]", b"[[]]", b'[{"jsonrpc":"2.0"}]', b"[null]"])
@front_test
async def test_malformed_arrays_get_400(body: bytes) -> None:
    async with bench() as b:
        p = await opened(b)
        assert (await p.send("POST", body).done()).status == 400


@front_test
async def test_always_json_waits_for_all_of_them() -> None:
    async with bench(response="json") as b:
        p = await opened(b)
        call = p.post([call_of(1, "quick"), call_of(2, "held")])
        await asyncio.sleep(100)
        assert call.writes == 0
        b.release.set()
        await call.done()
        assert set(answers(call)) == {1, 2}
        assert not call.is_stream


@pytest.mark.parametrize("response", ["adaptive", "json"])
@front_test
async def test_a_repeat_of_a_cut_batch_gets_the_results_of_the_one_execution(response: str) -> None:
    async with bench(response=response) as b:
        p = await opened(b)
        batch = [call_of(1, "held"), call_of(2, "held")]
        first = p.post(batch)
        await asyncio.sleep(1)
        await first.cut()
        other = await p.post([call_of(1, "quick")]).done()
        assert answers(other)[1]["error"]["code"] == -32600
        again = p.post(batch)
        await asyncio.sleep(1)
        b.release.set()
        await again.done()
        assert again.is_stream == (response == "adaptive")
        assert {number: m["result"]["tool"] for number, m in answers(again).items()} == {1: "held", 2: "held"}
        assert b.runs == ["held", "held"]


@front_test
async def test_an_array_that_could_not_be_written_is_kept_for_the_repeat() -> None:
    async with bench() as b:
        p = await opened(b)
        first = p.post([call_of(1, "quick")])
        first.transport.closing = True
        await first.done()
        again = await p.post([call_of(1, "quick")]).done()
        assert answers(again)[1]["result"]["tool"] == "quick"
        assert b.runs == ["quick"]


@front_test
async def test_a_batch_that_is_cut_is_resumed_stream_by_stream() -> None:
    async with bench() as b:
        p = await opened(b)
        call = await p.post([call_of(1, "ticks"), call_of(2, "ticks")]).until(4)
        await call.cut()
        b.release.set()
        streams = {event.id.split(".")[0]: event.id for event in call.events if event.id}
        assert len(streams) == 2
        found = [(await p.get(last).done()).messages for last in streams.values()]
        assert sorted(m["id"] for messages in found for m in messages) == [1, 2]


@front_test
async def test_requests_beyond_the_limits_are_refused_one_by_one() -> None:
    async with bench(Settings(limits=Limits(running=1, queued=1))) as b:
        p = await opened(b)
        call = p.post([call_of(1, "held"), call_of(2, "held"), call_of(3, "held"), request(4, "ping")])
        await asyncio.sleep(1)
        b.release.set()
        await call.done()
        found = answers(call)
        assert found[3]["error"]["code"] == -31001
        assert [found[n]["result"] != {} for n in (1, 2, 4)] == [True, True, False]


@front_test
async def test_the_answers_of_a_batch_are_taken_together() -> None:
    """The client repeats the whole batch, also the requests whose answers it has seen."""
    async with bench() as b:
        p = await opened(b)
        batch = [call_of(1, "quick"), call_of(2, "ticks"), call_of(3, "held")]
        for _ in range(2):
            call = await p.post(batch).until(3)
            assert set(answers(call)) == {1}
            await call.cut()
        b.release.set()
        assert set(answers(await p.post(batch).done())) == {1, 2, 3}
        assert sorted(b.runs) == ["held", "quick", "ticks"]
        await p.post(batch).done()
        assert len(b.runs) == 6, "the answers were taken: these are new requests"


@front_test
async def test_a_batch_with_equal_requests_ends_if_its_client_leaves_while_one_of_them_waits() -> None:
    async with bench() as b:
        p = await opened(b)
        call = p.post([call_of(1, "quick")] * 3)
        # The first request has ended, and the third one waits to see whether its answer is taken.
        await asyncio.sleep(0.05)
        await call.cut()
        assert answers(await p.post([call_of(1, "quick")]).done())[1]["result"]["tool"] == "quick"
        assert b.runs == ["quick"]


@front_test
async def test_a_repeat_that_cannot_be_read_when_the_batch_becomes_a_stream_is_answered_by_itself() -> None:
    store = ScriptedStore()
    async with bench(store=store) as b:
        p = await opened(b)
        first = p.post([call_of(1, "quick"), call_of(2, "held")])
        await asyncio.sleep(1)
        await first.cut()
        [session] = store._sessions.values()
        after = b.engine.settings.times.stream_after
        store.delay("attach", before=after + 0.5)
        store.delay("open_stream", before=1)
        again = p.post([call_of(3, "held"), call_of(1, "quick")])
        await asyncio.sleep(after / 2)
        assert drop_finished(session)
        await asyncio.sleep(2)
        b.release.set()
        found = answers(await again.done())
        assert found[1]["error"]["code"] == -31002
        assert found[3]["result"]["tool"] == "held"


@front_test
async def test_a_batch_has_at_most_100_messages_and_nothing_of_a_longer_one_runs() -> None:
    async with bench() as b:
        p = await opened(b)
        refused = await p.post([call_of(number, "quick") for number in range(101)]).done()
        assert (refused.status, refused.json["error"]["code"]) == (400, -32600)
        assert "at most 100 messages" in refused.json["error"]["message"]
        assert b.runs == []
        call = await p.post([call_of(number, "quick") for number in range(100)]).done()
        assert len(answers(call)) == len(b.runs) == 100


@pytest.mark.parametrize(
    "member",
    [notification("notifications/cancelled", {"requestId": 7}), notification("x"), request(1, "ping")],
)
@front_test
async def test_a_batch_lets_other_clients_have_their_turns(member: Any) -> None:
    """A batch kept the loop until its last message was taken."""
    async with bench() as b:
        p = await opened(b)
        turns = 0

        async def beside() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        messages = [{**member, "id": number} if "id" in member else member for number in range(100)]
        other = asyncio.create_task(beside())
        call = p.post(messages)
        await call.done()
        other.cancel()
        assert turns >= 100 / 10
