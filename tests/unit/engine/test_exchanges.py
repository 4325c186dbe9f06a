"""Exchanges: claimed once, run once, ended once (laws 1, 2, 3, 10, 13)."""

import asyncio
import sys
from typing import Any

import pytest

from limpet.config import Limits, Settings, Times
from limpet.core.lifecycle import SessionInput
from limpet.engine.back import Outside
from limpet.engine.caller import Caller
from limpet.engine.claims import Repeat
from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange, SessionExchange
from limpet.errors import BUSY, INTERNAL_ERROR, REQUEST_CANCELLED, Busy, DuplicateId, McpError, SessionGone
from limpet.stores.base import Claim, Claimed, Duplicate, Refusal
from limpet.stores.memory import MemoryStore
from limpet.testing import ScriptedBack
from limpet.wire.jsonrpc import Request
from tests.unit.engine.harness import (
    CALL,
    CALLER,
    EngineHarness,
    Get,
    engine_harness,
    engine_test,
    gate,
    settle_down,
)


@engine_test
async def test_a_call_runs_once_and_is_answered_without_a_stream() -> None:
    async with engine_harness() as d:
        post = await d.post(7, params={"x": 1})
        assert await post.whole() == [{"jsonrpc": "2.0", "id": 7, "result": {"id": 7, "x": 1}}]
        assert post.exchange.writer.position is None
        assert len(d.back.handled) == 1
        assert d.session.exchanges == {}


@engine_test
async def test_one_and_the_text_one_are_two_exchanges_at_once() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait})) as d:
        posts = [await d.post(1), await d.post("1")]
        event.set()
        assert [(await post.whole())[-1]["id"] for post in posts] == [1, "1"]


@engine_test
async def test_a_duplicate_is_refused_before_any_side_effect_and_the_first_does_not_notice() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait})) as d:
        first = await d.post(1, digest=b"one")
        for digest in (b"other", b"one"):
            with pytest.raises(DuplicateId) as refused:
                await d.submit(1, digest=digest)
            assert refused.value.code == -32600
        event.set()
        assert await first.whole() == [{"jsonrpc": "2.0", "id": 1, "result": {"id": 1}}]
        assert len(d.back.handled) == 1
        assert len(d.noted.named("exchange.duplicate")) == 2


@engine_test
async def test_an_id_is_free_again_once_answered() -> None:
    async with engine_harness() as d:
        assert [(await d.call(1))["result"]["id"] for _ in range(3)] == [1, 1, 1]


@engine_test
async def test_an_idle_session_keeps_no_memory_for_the_calls_that_it_had() -> None:
    async with engine_harness() as d:
        assert [(await d.call(number))["result"]["id"] for number in range(8)] == list(range(8))
        post = await d.post(8)
        d.engine.readers.hold(post.exchange)
        await post.whole()
        await d.engine.readers.close(post.exchange)
        stored = d.engine.runtime.store._sessions[d.key]  # type: ignore[attr-defined]
        for table in (d.session.exchanges, d.session.answering, stored.ids):
            assert sys.getsizeof(table) == sys.getsizeof({})


@engine_test
async def test_the_same_id_in_two_sessions_is_two_exchanges() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait})) as d:
        other = await d.open()
        posts = [await d.post(1), await d.post(1, session=other)]
        event.set()
        assert [len(await post.whole()) for post in posts] == [1, 1]


@engine_test
async def test_a_strangers_request_finds_no_session() -> None:
    async with engine_harness() as d:
        for key, caller in ((d.key, Caller("stranger")), ("unknown", CALLER)):
            with pytest.raises(SessionGone):
                await d.engine.exchanges.submit(key, caller, Request(1, CALL, {}))
        assert d.back.handled == []


@engine_test
async def test_isolated_duplicates_run_apart_and_each_gets_its_own_answer() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait}), Settings(duplicates="isolate")) as d:
        posts = [await d.post(1, digest=b"same") for _ in range(3)]
        event.set()
        assert [len(await post.whole()) for post in posts] == [1, 1, 1]
        assert len(d.back.handled) == 3


# Repeats of a POST that was cut


async def cut_post(d: EngineHarness) -> None:
    """Start a call and cut its connection while it runs."""
    first = await d.post(1, digest=b"body")
    await settle_down()
    await first.cut()


async def repeated(d: EngineHarness, event: asyncio.Event) -> list[Any]:
    """Send the cut call again, let the handler end, and return the messages that the repeat receives."""
    repeat = await d.submit(1, digest=b"body")
    assert isinstance(repeat, Repeat)
    reading = Get(d, await d.engine.readers.repeat(repeat.session, repeat.stream))
    event.set()
    await reading.task
    return reading.messages


@engine_test
async def test_a_repeat_of_a_cut_post_attaches_to_the_one_execution() -> None:
    event = asyncio.Event()

    async def work(exchange: Exchange) -> object:
        await exchange.notify("notifications/progress", {"n": 1})
        await event.wait()
        return {}

    async with engine_harness(ScriptedBack({CALL: work})) as d:
        await cut_post(d)
        messages = await repeated(d, event)
        assert [message.get("method", "result") for message in messages] == [
            "notifications/progress",
            "result",
        ]
        assert len(d.back.handled) == 1


@engine_test
async def test_another_body_under_the_id_of_a_cut_post_that_still_runs_is_a_duplicate() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait})) as d:
        await cut_post(d)
        with pytest.raises(DuplicateId):
            await d.submit(1, digest=b"other")
        event.set()


@engine_test
async def test_a_repeat_before_any_stream_existed_gets_the_answer_too() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait})) as d:
        await cut_post(d)
        messages = await repeated(d, event)
        assert [message["id"] for message in messages] == [1]


@engine_test
async def test_an_answer_that_no_connection_took_is_kept_for_one_repeat() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait})) as d:
        await cut_post(d)
        event.set()
        await settle_down()
        messages = await repeated(d, event)
        assert [message["id"] for message in messages] == [1]
        assert (await d.call(1, digest=b"body"))["id"] == 1
        assert len(d.back.handled) == 2


@engine_test
async def test_another_request_under_a_kept_answers_id_just_runs() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait})) as d:
        await cut_post(d)
        event.set()
        await settle_down()
        assert (await d.call(1, digest=b"other"))["id"] == 1
        assert len(d.back.handled) == 2


# Cancellation


@engine_test
async def test_a_cancellation_settles_at_once_and_frees_the_id() -> None:
    async with engine_harness(ScriptedBack({CALL: gate()[0]})) as d:
        post = await d.post(1)
        await settle_down()
        await d.cancel(1)
        [terminal] = await post.whole()
        assert (terminal["id"], terminal["error"]["code"]) == (1, REQUEST_CANCELLED)
        assert isinstance(await d.submit(1), SessionExchange)


@engine_test
async def test_a_cancellation_matches_the_id_by_value_and_type() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait})) as d:
        post = await d.post(1)
        for other in ("1", True, 1.0, None, [1], 2):
            await d.cancel(other)
        await settle_down()
        event.set()
        assert "result" in (await post.whole())[-1]


@engine_test
async def test_a_handler_that_swallows_its_cancellation_cannot_disturb_a_successor_with_its_id() -> None:
    stubborn, release = asyncio.Event(), asyncio.Event()

    async def work(exchange: Exchange) -> object:
        if exchange.request.params.get("stubborn"):
            try:
                await stubborn.wait()
            except asyncio.CancelledError:
                await release.wait()
                await exchange.notify("notifications/progress", {"from": "the dead"})
            return {"from": "the dead"}
        await exchange.notify("notifications/progress", {"from": "the living"})
        await release.wait()
        return {"from": "the living"}

    async with engine_harness(ScriptedBack({CALL: work})) as d:
        first = await d.post(1, params={"stubborn": True})
        await settle_down()
        await d.cancel(1)
        [cancelled] = await first.whole()
        second = await d.post(1)
        await settle_down()
        release.set()
        progress, result = await second.whole()
        assert cancelled["error"]["code"] == REQUEST_CANCELLED
        assert (progress["params"]["from"], result["result"]["from"]) == ("the living", "the living")
        assert d.session.exchanges == {}


@engine_test
async def test_the_handler_receives_its_cancellation() -> None:
    told = asyncio.Event()

    async def work(exchange: Exchange) -> object:
        try:
            await asyncio.Event().wait()
        finally:
            told.set()
        return {}

    async with engine_harness(ScriptedBack({CALL: work})) as d:
        await d.post(1)
        await settle_down()
        await d.cancel(1)
        await told.wait()


@engine_test
async def test_a_queued_call_can_be_cancelled_and_never_runs() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait}), limits=Limits(running=1)) as d:
        running, queued = await d.post(1), await d.post(2)
        await d.cancel(2)
        assert (await queued.whole())[-1]["error"]["code"] == REQUEST_CANCELLED
        event.set()
        assert "result" in (await running.whole())[-1]
        assert [exchange.request.id for exchange in d.back.handled] == [1]
        assert "result" in await d.call(3)


# Errors


@engine_test
async def test_an_internal_error_is_masked_and_linked_to_the_log_by_an_id() -> None:
    async def work(exchange: Exchange) -> object:
        raise RuntimeError("password=hunter2")

    async with engine_harness(ScriptedBack({CALL: work})) as d:
        error = (await d.call(1))["error"]
        assert error["code"] == INTERNAL_ERROR
        assert "hunter2" not in str(error)
        [noted] = d.noted.named("handler.failed")
        assert str(noted["correlation"]) in error["message"]
        assert isinstance(noted["error"], RuntimeError)


@engine_test
async def test_an_authors_error_is_answered_as_it_is() -> None:
    async def work(exchange: Exchange) -> object:
        raise McpError(-32000, "no such city", {"city": "X"})

    async with engine_harness(ScriptedBack({CALL: work})) as d:
        assert (await d.call(1))["error"] == {
            "code": -32000,
            "message": "no such city",
            "data": {"city": "X"},
        }


@pytest.mark.parametrize(
    "thrown", [McpError(-32000, "x", object()), McpError(-32000, "\ud800")], ids=["data", "text"]
)
@engine_test
async def test_an_error_that_cannot_be_written_is_still_answered(thrown: McpError) -> None:
    async def work(exchange: Exchange) -> object:
        raise thrown

    async with engine_harness(ScriptedBack({CALL: work})) as d:
        assert (await d.call(1))["error"]["code"] == INTERNAL_ERROR


@engine_test
async def test_a_result_that_cannot_be_written_is_an_internal_error() -> None:
    async def work(exchange: Exchange) -> object:
        return object()

    async with engine_harness(ScriptedBack({CALL: work})) as d:
        assert (await d.call(1))["error"]["code"] == INTERNAL_ERROR


@engine_test
async def test_an_unknown_method_is_answered_method_not_found() -> None:
    async with engine_harness() as d:
        assert (await d.call(1, "no/such"))["error"] == {
            "code": -32601,
            "message": "Method not found: no/such",
        }


# Admission


@engine_test
async def test_calls_run_up_to_the_bound_then_queue_then_are_refused() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait}), limits=Limits(running=2, queued=3)) as d:
        posts = [await d.post(number) for number in range(5)]
        await settle_down()
        assert len(d.back.handled) == 2
        with pytest.raises(Busy) as refused:
            await d.submit(99)
        assert refused.value.code == BUSY
        event.set()
        assert ["result" in (await post.whole())[-1] for post in posts] == [True] * 5
        assert [exchange.request.id for exchange in d.back.handled] == [0, 1, 2, 3, 4]
        assert "result" in await d.call(99)


@engine_test
async def test_never_more_than_the_bound_run_at_once() -> None:
    running = highest = 0

    async def work(exchange: Exchange) -> object:
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        await asyncio.sleep(exchange.request.params["seconds"])
        running -= 1
        return {}

    async with engine_harness(ScriptedBack({CALL: work}), limits=Limits(running=8, queued=100)) as d:
        posts = [await d.post(n, params={"seconds": n % 7 * 0.1}) for n in range(100)]
        await asyncio.gather(*(post.whole() for post in posts))
        assert highest == 8
        assert (d.session.gate.inside, d.session.gate.waiting) == (0, 0)


@engine_test
async def test_a_cancelled_call_keeps_its_slot_until_its_handler_has_ended() -> None:
    released = asyncio.Event()

    async def stubborn(exchange: Exchange) -> object:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await released.wait()
        return {}

    async with engine_harness(
        ScriptedBack({CALL: stubborn, "quick": lambda _: asyncio.sleep(0, {})}), limits=Limits(running=1)
    ) as d:
        first = await d.post(1)
        await settle_down()
        await d.cancel(1)
        assert (await first.whole())[-1]["error"]["code"] == REQUEST_CANCELLED
        second = await d.post(1, "quick")
        await settle_down()
        assert len(d.back.handled) == 1, "the slot is not free while the handler runs"
        released.set()
        assert "result" in (await second.whole())[-1]


@engine_test
async def test_a_handler_that_exits_ends_its_call_and_not_the_server() -> None:
    async def leave(exchange: Exchange) -> object:
        raise SystemExit(3)

    async with engine_harness(ScriptedBack({CALL: leave, "quick": lambda _: asyncio.sleep(0, {})})) as d:
        assert (await d.call(1))["error"]["code"] == INTERNAL_ERROR
        assert "result" in await d.call(2, "quick")


@engine_test
async def test_a_call_that_finds_no_slot_in_time_is_refused_as_busy() -> None:
    wait, event = gate()
    async with engine_harness(ScriptedBack({CALL: wait}), limits=Limits(running=1)) as d:
        await d.post(1)
        began = asyncio.get_running_loop().time()
        late = await d.post(2)
        [terminal] = await late.whole()
        assert asyncio.get_running_loop().time() - began == pytest.approx(30)
        assert terminal["error"]["code"] == BUSY
        assert late.exchange.refusal
        event.set()
        assert "result" in await d.call(2)
        assert [exchange.request.id for exchange in d.back.handled] == [1, 2]


@engine_test
async def test_a_call_that_got_its_slot_in_time_has_no_deadline_any_more() -> None:
    async def work(exchange: Exchange) -> object:
        await asyncio.sleep(29)
        return {}

    async with engine_harness(ScriptedBack({CALL: work}), limits=Limits(running=1)) as d:
        posts = [await d.post(1), await d.post(2)]
        assert ["result" in (await post.whole())[-1] for post in posts] == [True, True]


@engine_test
async def test_control_traffic_passes_when_everything_is_full() -> None:
    async def pong(exchange: Exchange) -> object:
        return {}

    async with engine_harness(
        ScriptedBack({CALL: gate()[0], "ping": pong}), limits=Limits(running=1, queued=0)
    ) as d:
        busy = await d.post(1)
        with pytest.raises(Busy):
            await d.submit(2)
        assert (await d.call("p", "ping"))["result"] == {}
        assert d.session.gate.inside == 1, "a ping takes no slot and gives none back"
        await d.cancel(1)
        assert (await busy.whole())[-1]["error"]["code"] == REQUEST_CANCELLED


@engine_test
async def test_in_order_calls_run_strictly_one_after_another() -> None:
    seen: list[str] = []

    async def work(exchange: Exchange) -> object:
        seen.append(f"begin {exchange.request.id}")
        await asyncio.sleep(1 / (1 + int(exchange.request.id)))
        seen.append(f"end {exchange.request.id}")
        return {}

    async with engine_harness(ScriptedBack({CALL: work}), Settings(in_order=True)) as d:
        posts = [await d.post(number) for number in range(4)]
        await asyncio.gather(*(post.whole() for post in posts))
        assert seen == [f"{what} {number}" for number in range(4) for what in ("begin", "end")]


@engine_test
async def test_without_in_order_a_slow_call_delays_no_other() -> None:
    async def work(exchange: Exchange) -> object:
        await asyncio.sleep(exchange.request.params.get("seconds", 0))
        return {}

    async with engine_harness(ScriptedBack({CALL: work})) as d:
        slow = await d.post(1, params={"seconds": 1000})
        for number in range(2, 12):
            await d.call(number)
        assert asyncio.get_running_loop().time() < 1
        assert "result" in (await slow.whole())[-1]


# Ending with the session and with the server


@engine_test
async def test_closing_a_session_gives_every_exchange_exactly_one_terminal_message() -> None:
    async def work(exchange: Exchange) -> object:
        if exchange.request.params.get("chatty"):
            await exchange.notify("notifications/progress", {"n": 1})
        await asyncio.Event().wait()
        return {}

    async with engine_harness(ScriptedBack({CALL: work}), limits=Limits(running=2)) as d:
        posts = [await d.post(n, params={"chatty": n % 2 == 0}) for n in range(4)]
        await settle_down()
        assert await d.engine.sessions.close(d.session, SessionInput.DELETED)
        for number, post in enumerate(posts):
            messages = await post.whole()
            assert [message["id"] for message in messages if "id" in message] == [number]
            assert messages[-1]["error"]["code"] == REQUEST_CANCELLED
        assert len(d.back.handled) == 2
        assert not await d.engine.sessions.close(d.session, SessionInput.DELETED)
        with pytest.raises(SessionGone):
            await d.submit(9)


@engine_test
async def test_a_handler_may_close_its_own_session() -> None:
    async def work(exchange: Exchange) -> object:
        await exchange.notify("notifications/progress", {"n": 1})
        await d.engine.sessions.close(d.session, SessionInput.DELETED)
        return {}

    async with engine_harness(ScriptedBack({CALL: work})) as d:
        messages = await (await d.post(1)).whole()
        assert messages[-1]["error"]["code"] == REQUEST_CANCELLED
        await asyncio.sleep(5)
        assert d.back.events[-1] == "closed: deleted"
        with pytest.raises(SessionGone):
            await d.submit(2)


@engine_test
async def test_stopping_lets_running_handlers_finish() -> None:
    async def work(exchange: Exchange) -> object:
        await asyncio.sleep(20)
        return {"done": True}

    async with engine_harness(ScriptedBack({CALL: work})) as d:
        post = await d.post(1)
        await settle_down()
        await d.engine.aclose()
        assert (await post.whole())[-1]["result"] == {"done": True}
        assert d.back.events == ["start", "opened", "closed: shutdown", "stop"]


@engine_test
async def test_stopping_ends_calls_that_outlast_the_drain_time() -> None:
    async with engine_harness(ScriptedBack({CALL: gate()[0]}), times=Times(drain=5)) as d:
        post = await d.post(1)
        await settle_down()
        began = asyncio.get_running_loop().time()
        await d.engine.aclose()
        assert asyncio.get_running_loop().time() - began == pytest.approx(5)
        assert (await post.whole())[-1]["error"]["code"] == REQUEST_CANCELLED


@pytest.mark.parametrize("seconds", [2, 100])
@engine_test
async def test_a_streamed_exchange_gets_its_terminal_message_when_the_server_stops(seconds: float) -> None:
    async def work(exchange: Exchange) -> object:
        await exchange.notify("notifications/progress", {"n": 1})
        await asyncio.sleep(seconds)
        return {}

    async with engine_harness(ScriptedBack({CALL: work}), times=Times(drain=5)) as d:
        posts = [await d.post(number) for number in range(3)]
        await settle_down()
        await d.engine.aclose()
        for post in posts:
            assert [set(message) & {"result", "error"} for message in await post.whole()] == [
                set(),
                {"result" if seconds == 2 else "error"},
            ]


@engine_test
async def test_queued_calls_are_answered_when_the_server_stops() -> None:
    async def work(exchange: Exchange) -> object:
        await asyncio.sleep(2)
        return {}

    async with engine_harness(
        ScriptedBack({CALL: work}), limits=Limits(running=1), times=Times(drain=5)
    ) as d:
        posts = [await d.post(number) for number in range(5)]
        await settle_down()
        await d.engine.aclose()
        ends = ["result" if "result" in (await post.whole())[-1] else "error" for post in posts]
        assert ends == ["result", "result", "error", "error", "error"]


@engine_test
async def test_readers_that_do_not_read_hold_up_a_stopping_server_only_a_moment() -> None:
    async def work(exchange: Exchange) -> object:
        await exchange.notify("notifications/progress", {"n": 1})
        await asyncio.Event().wait()
        return {}

    async with engine_harness(ScriptedBack({CALL: work}), times=Times(drain=5)) as d:
        for number in range(10):
            d.session = await d.open()
            post = await d.post(number)
            post.may_read.clear()
        await settle_down()
        began = asyncio.get_running_loop().time()
        await d.engine.aclose()
        assert asyncio.get_running_loop().time() - began < 10


@engine_test
async def test_handlers_run_in_tasks_of_the_factory_that_the_authors_lifespan_has_set() -> None:
    class Named(asyncio.Task[Any]):
        """A task of the author's own class."""

    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()

    class Back(ScriptedBack):
        async def start(self, outside: Outside) -> None:
            loop.set_task_factory(lambda loop, work, **options: Named(work, loop=loop, **options))
            await super().start(outside)

    async def kind(_exchange: Exchange) -> object:
        return {"kind": type(asyncio.current_task()).__name__}

    try:
        async with engine_harness(Back({CALL: kind})) as d:
            assert (await d.call(1))["result"] == {"kind": "Named"}
    finally:
        loop.set_task_factory(before)


class _Elsewhere(MemoryStore):
    """A store that the engine has to await, as one outside of this process."""

    async def claim(self, key: str, principal: str, claim: Claim) -> Claimed | Duplicate | Refusal:
        return await super().claim(key, principal, claim)


@pytest.mark.parametrize(("store", "size"), [(MemoryStore, 8), (_Elsewhere, 32)])
def test_equal_requests_have_one_digest_and_others_another(store: type[MemoryStore], size: int) -> None:
    digest = Engine(ScriptedBack(), store=store()).exchanges.claims.digest
    assert digest(b"one two") == digest(b" ".join([b"one", b"two"])) != digest(b"one twO")
    assert len(digest(b"one")) == size
