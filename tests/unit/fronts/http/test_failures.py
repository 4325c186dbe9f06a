"""Connections that fail: cut, stopped, closing underneath. And clients that try again."""

import asyncio
from typing import Any

import pytest

from limpet.config import Settings, Times
from limpet.errors import Cancelled
from tests.asgi import Peer
from tests.messages import LATEST, notification, request
from tests.stores import ScriptedStore
from tests.support import LoopClock
from tests.unit.fronts.http.bench import REVISIONS, Bench, bench, front_test

MODES = ("adaptive", "json", "sse")


async def opened(b: Bench, version: str = LATEST) -> Peer:
    """Return a client with a session."""
    peer = b.peer()
    assert (await peer.initialize(version)).status == 200
    return peer


# Readers that take nothing


@front_test
async def test_a_stalled_reader_is_detached_and_delays_no_other() -> None:
    async with bench(Settings(times=Times(write_stall=30.0))) as b:
        p = await opened(b)
        stalled, healthy = await p.call(1, "ticks").until(2), await p.call(2, "ticks").until(2)
        stalled.stop_reading()
        before = LoopClock().now()
        assert (await p.call(3).done()).json["id"] == 3
        assert LoopClock().now() == before
        await stalled.done()
        # A keep-alive was due after 15 seconds; it was not taken for 30.
        assert LoopClock().now() - before == pytest.approx(45)
        assert stalled.transport.aborted
        assert not healthy.task.done()
        assert "detached" not in b.back.events
        b.release.set()
        assert (await healthy.done()).messages[-1]["id"] == 2
        resumed = await p.get(stalled.ids[1]).done()
        assert resumed.progress == [2, "end"]


@front_test
async def test_a_slow_reader_that_takes_bytes_is_not_stalled() -> None:
    async with bench(Settings(times=Times(write_stall=30.0))) as b:
        p = await opened(b)
        slow = await p.call(1, "ticks").until(2)
        slow.stop_reading()
        # A keep-alive is written after 15 seconds and waits; the client takes a byte in each window of 30 seconds.
        before = LoopClock().now()
        for _ in range(10):
            await asyncio.sleep(20)
            slow.transport.taken_bytes += 1
        assert not slow.task.done()
        slow.read_on()
        await slow.until(2)
        slow.stop_reading()
        b.release.set()
        await slow.done()
        assert slow.transport.aborted, "it takes nothing now"
        # 15 + 30: the next keep-alive; or at once the answer, after 30.
        assert 30 <= LoopClock().now() - before - 200 <= 45


@front_test
async def test_the_last_reader_that_stalls_begins_the_grace() -> None:
    async with bench() as b:
        p = await opened(b)
        call = await p.call(1, "ticks").until(2)
        call.stop_reading()
        await call.done()
        await asyncio.sleep(0)
        assert b.back.events[-1] == "detached"
        assert (await p.call(2).done()).status == 200
        await asyncio.sleep(0)
        assert b.back.events[-1] == "reattached"


@front_test
async def test_a_reader_that_stalls_at_the_very_end_is_dropped_too() -> None:
    """Servers wait for earlier bytes when they get more: here, the end."""
    async with bench() as b:
        p = await opened(b)
        call = await p.call(1, "ticks").until(2)
        call.stops_after = 3
        b.release.set()
        await call.until(3)
        before = LoopClock().now()
        await call.done()
        assert LoopClock().now() - before == pytest.approx(30)
        assert call.transport.aborted
        assert (await p.get(call.ids[2]).done()).messages[0]["id"] == 1


@front_test
async def test_a_reader_that_never_takes_the_first_byte_is_dropped_too() -> None:
    async with bench() as b:
        p = await opened(b)
        call = p.call(1, "ticks")
        call.stop_reading()
        before = LoopClock().now()
        await call.done()
        assert LoopClock().now() - before == pytest.approx(30)
        await asyncio.sleep(0)
        assert b.back.events[-1] == "detached"


@front_test
async def test_an_answer_that_a_stalled_reader_did_not_take_is_kept_for_the_repeat() -> None:
    async with bench() as b:
        p = await opened(b)
        call = await p.call(1, "ticks").until(2)
        call.stop_reading()
        b.release.set()
        await call.done()
        again = await p.call(1, "ticks").done()
        assert again.progress == [1, 2, "end"]
        assert b.runs == ["ticks"]
        # Taken now: the id is free.
        await p.call(1, "ticks").done()
        assert b.runs == ["ticks", "ticks"]


# Writes that fail


@pytest.mark.parametrize("version", REVISIONS)
@front_test
async def test_a_write_that_fails_costs_only_its_reader(version: str) -> None:
    async with bench() as b:
        p = await opened(b, version)
        broken, healthy = await p.call(1, "ticks").until(2), await p.call(2, "ticks").until(2)
        broken.fails = True
        b.release.set()
        await broken.done()
        assert (await healthy.done()).messages[-1]["id"] == 2
        resumed = await p.get(broken.ids[-1]).done()
        assert [message["id"] for message in resumed.messages] == [1]


@front_test
async def test_a_server_that_raises_where_the_client_is_gone_is_no_error_of_ours() -> None:
    async with bench() as b:
        p = await opened(b)
        quick, refused, slow, listener = p.call(1), p.send("PUT"), p.call(2, "held"), p.get()
        for call in (quick, refused, slow, listener):
            call.fails = True
        await quick.done()
        await refused.done()
        await slow.done()
        await listener.done()
        assert b.runs == ["quick", "held"]


@front_test
async def test_a_client_that_leaves_while_sending_its_body_is_not_answered() -> None:
    async with bench() as b:
        p = b.peer()
        call = p.send("POST", b'{"jsonrpc"', 1_000.0, b"}")
        await asyncio.sleep(5)
        assert call.writes == 0
        await call.done()


# The same POST again


@pytest.mark.parametrize("response", MODES)
@front_test
async def test_a_repeat_of_a_cut_post_gets_the_one_result_of_the_one_execution(response: str) -> None:
    async with bench(response=response) as b:
        p = await opened(b)
        first = p.call(1, "held")
        await asyncio.sleep(1)
        await first.cut()
        again = p.call(1, "held")
        await asyncio.sleep(1)
        b.release.set()
        await again.done()
        [answer] = again.received
        assert again.is_stream == (response != "json")
        assert answer == {"jsonrpc": "2.0", "id": 1, "result": {"tool": "held", "id": 1}}
        assert b.runs == ["held"]


@pytest.mark.parametrize("response", MODES)
@front_test
async def test_a_result_that_came_without_a_connection_is_kept_for_one_repeat(response: str) -> None:
    async with bench(response=response) as b:
        p = await opened(b)
        first = p.call(1, "held")
        await asyncio.sleep(0.1)
        await first.cut()
        b.release.set()
        await asyncio.sleep(10)
        again = await p.call(1, "held").done()
        [answer] = again.received
        assert answer["result"] == {"tool": "held", "id": 1}
        assert b.runs == ["held"]
        await p.call(1, "held").done()
        assert b.runs == ["held", "held"]


@pytest.mark.parametrize("response", MODES)
@front_test
async def test_an_answer_written_to_a_closing_connection_is_kept_for_the_repeat(response: str) -> None:
    async with bench(response=response) as b:
        p = await opened(b)
        first = p.call(1)
        first.transport.closing = True
        await first.done()
        again = await p.call(1).done()
        [answer] = again.received
        assert answer["result"] == {"tool": "quick", "id": 1}
        assert b.runs == ["quick"]


@front_test
async def test_an_answer_whose_write_raised_is_kept_for_the_repeat() -> None:
    async with bench() as b:
        p = await opened(b)
        first = p.call(1)
        first.fails = True
        await first.done()
        assert (await p.call(1).done()).messages[0]["result"] == {"tool": "quick", "id": 1}
        assert b.runs == ["quick"]


@front_test
async def test_an_answer_that_was_taken_is_not_kept() -> None:
    async with bench() as b:
        p = await opened(b)
        await p.call(1).done()
        await p.call(1).done()
        assert b.runs == ["quick", "quick"]


@front_test
async def test_the_same_id_with_another_body_is_a_duplicate_and_the_first_does_not_notice() -> None:
    async with bench() as b:
        p = await opened(b)
        first = p.call(1, "held")
        await asyncio.sleep(0.1)
        refused = await p.call(1, "quick").done()
        assert (refused.status, refused.json["id"], refused.json["error"]["code"]) == (400, 1, -32600)
        same = await p.call(1, "held").done()
        assert (same.status, same.json["id"]) == (400, 1)
        assert (await p.call("1").done()).json["result"]["id"] == "1"
        b.release.set()
        assert (await first.done()).json["result"] if not first.is_stream else first.messages
        assert b.runs == ["held", "quick"]


@front_test
async def test_of_three_posts_in_plain_json_the_last_gets_the_answer_and_the_middle_one_is_refused() -> None:
    async with bench(response="json") as b:
        p = await opened(b)
        first = p.call(1, "held")
        await asyncio.sleep(0.1)
        await first.cut()
        second = p.call(1, "held")
        await asyncio.sleep(20)
        third = p.call(1, "held")
        await second.done()
        assert (second.status, second.json["id"], second.json["error"]["code"]) == (400, 1, -32600)
        b.release.set()
        assert (await third.done()).json["result"]["tool"] == "held"


@front_test
async def test_a_repeat_in_plain_json_ends_with_its_session() -> None:
    async with bench(response="json") as b:
        p = await opened(b)
        first = p.call(1, "held")
        await asyncio.sleep(0.1)
        await first.cut()
        again = p.call(1, "held")
        await asyncio.sleep(1)
        assert (await p.delete()).status == 204
        await again.done()
        assert (again.status, again.json["id"], again.json["error"]["code"]) == (200, 1, -32800)


@front_test
async def test_a_repeat_in_plain_json_that_is_cut_too_leaves_the_answer_for_the_next() -> None:
    async with bench(response="json") as b:
        p = await opened(b)
        for _ in range(2):
            call = p.call(1, "held")
            await asyncio.sleep(0.5)
            await call.cut()
            assert call.writes == 0
        b.release.set()
        await asyncio.sleep(1)
        assert (await p.call(1, "held").done()).json["result"]["tool"] == "held"
        assert b.runs == ["held"]


@front_test
async def test_a_server_that_cancels_the_request_of_a_client_that_left_is_a_break() -> None:
    async with bench() as b:
        p = await opened(b)
        call = p.call(1, "held")
        await asyncio.sleep(0.1)
        call.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call.done()
        await asyncio.sleep(0)
        assert b.back.events[-1] == "detached"
        b.release.set()
        await asyncio.sleep(0)
        assert (await p.call(1, "held").done()).messages[0]["result"]["tool"] == "held"
        assert b.runs == ["held"]


# Ending twice


@front_test
async def test_ending_an_exchange_twice_does_nothing_and_logs_nothing() -> None:
    async with bench() as b:
        p = await opened(b)
        call = await p.call(1, "ticks").until(2)
        handled: list[Any] = list(b.back.handled)
        [exchange] = handled
        b.release.set()
        await call.done()
        notes = len(b.observer.notes)
        await b.engine.exchanges.end(exchange, Cancelled())
        await p.post(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        ).done()
        await exchange.notify("notifications/progress", {})
        await exchange.close_stream()
        assert len(b.observer.notes) == notes
        assert (await p.get(call.ids[-1]).done()).status == 204


@front_test
async def test_a_cancelled_request_ends_its_stream_and_frees_its_id() -> None:
    async with bench() as b:
        p = await opened(b)
        call = await p.call(1, "ticks").until(2)
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        assert (await p.post(cancel).done()).status == 202
        await call.done()
        assert call.messages[-1]["error"]["code"] == -32800
        assert (await p.call(1).done()).json["result"]["id"] == 1


# A store that takes its time


@pytest.mark.parametrize("ended_after", [0.3, 0.7, 0.9, 1.3])
@front_test
async def test_an_answer_that_comes_while_its_stream_begins_is_delivered(ended_after: float) -> None:
    store = ScriptedStore()
    store.delay("open_stream", before=0.5, after=0.5)
    async with bench(store=store) as b:
        p = await opened(b)
        call = p.call(1, "held")
        await asyncio.sleep(ended_after)
        b.release.set()
        await call.done()
        answers: list[Any] = call.received
        assert [answer["result"]["tool"] for answer in answers] == ["held"]
        assert b.noted("exchange.fenced") == 0
        assert (await p.post(request(2, "ping")).done()).status == 200


# Cancellations


@pytest.mark.parametrize("named", [99, "1", "", None, True, 1.5, {}, [1], ...])
@front_test
async def test_cancellations_that_name_nothing_are_ignored(named: Any) -> None:
    async with bench() as b:
        p = await opened(b)
        assert (await p.call(5).done()).status == 200
        call = p.call(1, "held")
        await asyncio.sleep(0.1)
        for wrong in (named, 5):
            params = {} if wrong is ... else {"requestId": wrong, "reason": 7}
            sent = await p.post(notification("notifications/cancelled", params)).done()
            assert (sent.status, sent.body) == (202, b"")
        await asyncio.sleep(1)
        b.release.set()
        assert (await call.done()).messages[-1]["result"]["tool"] == "held"


@front_test
async def test_the_reason_of_a_cancellation_is_in_the_log() -> None:
    async with bench() as b:
        p = await opened(b)
        call = p.call(1, "held")
        await asyncio.sleep(0.1)
        params = {"requestId": 1, "reason": "the user left" + "!" * 1_000}
        await p.post(notification("notifications/cancelled", params)).done()
        await call.done()
        (note,) = b.observer.named("call.cancelled")
        assert str(note["reason"]).startswith("the user left!")
        assert len(str(note["reason"])) == 200
