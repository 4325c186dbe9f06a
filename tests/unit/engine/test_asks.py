"""Asks: many at once, bounded, each with its own answer, none holding up another (laws 9, 10)."""

import asyncio
from typing import Any

import pytest

from limpet.config import Limits, Times
from limpet.core.lifecycle import SessionInput
from limpet.engine.exchange import Exchange
from limpet.errors import (
    AskRefused,
    AskTimeout,
    BackPressureError,
    CallEnded,
    Fenced,
    LimpetError,
    NoBackChannel,
    SessionGone,
)
from limpet.stores.base import Answered
from limpet.testing import ScriptedBack
from limpet.testing.store.limits import tight
from limpet.wire.jsonrpc import Response
from tests.stores import ScriptedStore
from tests.unit.engine.harness import (
    CALL,
    PRINCIPAL,
    EngineHarness,
    Json,
    Post,
    engine_harness,
    engine_test,
    settle_down,
)

ASK = "sampling/createMessage"


def asks_of(post: Post) -> list[Json]:
    return [message for message in post.messages if message.get("method") == ASK]


async def ask_many(exchange: Exchange) -> object:
    """Ask so many times at once and return the results in order; exceptions by their names."""
    timeout = exchange.request.params.get("timeout")
    asks = [exchange.ask(ASK, {"n": n}, timeout=timeout) for n in range(exchange.request.params["count"])]
    results = await asyncio.gather(*asks, return_exceptions=True)
    return {"results": [type(one).__name__ if isinstance(one, BaseException) else one for one in results]}


def cancellations(messages: list[Json]) -> list[object]:
    """Return the ids of the asks that these messages cancel."""
    assert {message["method"] for message in messages} == {"notifications/cancelled"}
    return [message["params"]["requestId"] for message in messages]


def nothing_is_left(d: EngineHarness) -> None:
    stored = d.engine.runtime.store._sessions[d.key]  # type: ignore[attr-defined]
    assert (d.session.asking.inside, d.session.asking.waiting, d.session.pending) == (0, 0, {})
    assert stored.outstanding == 0


@engine_test
async def test_fifty_asks_are_in_flight_at_once_and_each_gets_its_own_answer() -> None:
    async with engine_harness(ScriptedBack({CALL: ask_many})) as d:
        post = await d.post(1, params={"count": 50})
        await settle_down(200)
        asks = asks_of(post)
        assert len(asks) == len({ask["id"] for ask in asks}) == 50
        for ask in reversed(asks):
            assert await d.answer(ask, {"echo": ask["params"]["n"]}) is Answered.FIRST
        [*_, terminal] = await post.whole()
        assert terminal["result"]["results"] == [{"echo": n} for n in range(50)]
        nothing_is_left(d)


@engine_test
async def test_a_wake_up_without_an_answer_does_not_end_the_call_that_asked() -> None:
    # A failover of the store may lose an answer after its wake-up.
    async with engine_harness(ScriptedBack({CALL: ask_many})) as d:
        post = await d.post(1, params={"count": 1})
        await settle_down()
        [ask] = asks_of(post)
        for _ in range(2):
            d.session.pending[ask["id"]].look()
            await settle_down()
        assert await d.answer(ask, {"echo": 1}) is Answered.FIRST
        [*_, terminal] = await post.whole()
        assert terminal["result"]["results"] == [{"echo": 1}]
        nothing_is_left(d)


@engine_test
async def test_a_call_whose_ask_the_store_forgot_in_a_living_session_was_ended_elsewhere() -> None:
    async def ask_once(exchange: Exchange) -> object:
        return await exchange.ask(ASK, {})

    async with engine_harness(ScriptedBack({CALL: ask_once})) as d:
        post = await d.post(1)
        await settle_down()
        [question] = asks_of(post)
        await d.engine.runtime.store.withdraw(d.key, question["id"])
        d.session.answered(question["id"])
        await settle_down()
        assert post.exchange.is_fenced
        [line] = d.noted.named("handler.fenced")
        assert isinstance(line["error"], Fenced)


@engine_test
async def test_an_answer_that_was_received_is_no_longer_stored_while_its_call_runs() -> None:
    received, done = asyncio.Event(), asyncio.Event()

    async def ask_and_go_on(exchange: Exchange) -> object:
        await exchange.ask(ASK, {"n": 1})
        received.set()
        await done.wait()
        return {}

    async with engine_harness(ScriptedBack({CALL: ask_and_go_on})) as d:
        post = await d.post(1)
        await settle_down()
        [ask] = asks_of(post)
        assert await d.answer(ask, {"long": "x" * 10_000}) is Answered.FIRST
        await received.wait()
        stored = d.engine.runtime.store._sessions[d.key]  # type: ignore[attr-defined]
        assert stored.asks == {}
        assert await d.answer(ask, {"long": "x" * 10_000}) is Answered.AGAIN, "its digest is"
        done.set()
        await post.whole()
        nothing_is_left(d)


@engine_test
async def test_never_more_than_the_limit_are_outstanding() -> None:
    async with engine_harness(ScriptedBack({CALL: ask_many}), limits=Limits(asks=8)) as d:
        post = await d.post(1, params={"count": 60})
        for answered in range(60):
            await settle_down()
            asks = asks_of(post)
            assert len(asks) - answered <= 8
            await d.answer(asks[answered], {"echo": asks[answered]["params"]["n"]})
        [*_, terminal] = await post.whole()
        assert terminal["result"]["results"] == [{"echo": n} for n in range(60)]
        nothing_is_left(d)


@engine_test
async def test_asks_beyond_the_queue_are_refused_and_the_others_go_on() -> None:
    async with engine_harness(ScriptedBack({CALL: ask_many}), limits=tight(asks=2, asks_queued=3)) as d:
        post = await d.post(1, params={"count": 7})
        for answered in range(5):
            await settle_down()
            await d.answer(asks_of(post)[answered], answered)
        [*_, terminal] = await post.whole()
        assert terminal["result"]["results"] == [0, 1, 2, 3, 4, "BackPressureError", "BackPressureError"]
        nothing_is_left(d)


@engine_test
async def test_an_ask_without_an_answer_times_out_and_the_client_is_notified() -> None:
    async with engine_harness(ScriptedBack({CALL: ask_many})) as d:
        began = asyncio.get_running_loop().time()
        post = await d.post(1, params={"count": 1, "timeout": 5})
        ask, cancelled, terminal = await post.whole()
        assert asyncio.get_running_loop().time() - began == pytest.approx(5)
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"]["requestId"] == ask["id"]
        assert terminal["result"]["results"] == ["AskTimeout"]
        assert await d.answer(ask, {}) is Answered.UNKNOWN
        nothing_is_left(d)


@engine_test
async def test_the_client_is_notified_when_a_handler_does_not_wait_for_the_answer_any_more() -> None:
    async def impatient(exchange: Exchange) -> object:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await exchange.ask(ASK, {})
        return {}

    async with engine_harness(ScriptedBack({CALL: impatient})) as d:
        ask, cancelled, terminal = await (await d.post(1)).whole()
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"]["requestId"] == ask["id"]
        assert "result" in terminal
        assert await d.answer(ask, {}) is Answered.UNKNOWN
        # The same on the standalone stream, which has no end.
        get = await d.get()
        asking = asyncio.create_task(d.engine.sessions.ask(d.session, ASK, {}))
        await settle_down()
        asking.cancel()
        await asyncio.wait({asking})
        await settle_down()
        ask, cancelled = get.messages
        assert cancelled["params"]["requestId"] == ask["id"]
        nothing_is_left(d)


@engine_test
async def test_a_cancelled_call_cancels_its_asks_and_ends_with_its_own_answer() -> None:
    async with engine_harness(ScriptedBack({CALL: ask_many})) as d:
        post = await d.post(1, params={"count": 2})
        await settle_down()
        await d.cancel(1)
        one, two, *cancelled, terminal = await post.whole()
        assert cancellations(cancelled) == [one["id"], two["id"]]
        assert terminal["error"]["code"] == -32800
        assert await d.answer(one, {}) is Answered.UNKNOWN
        nothing_is_left(d)


@engine_test
async def test_an_answer_that_comes_with_the_cancellation_of_its_call_fails_no_ask() -> None:
    """The ask would find neither its answer nor its call in the store, and blame another replica."""
    raised: list[BaseException] = []

    async def asks_in_a_group(exchange: Exchange) -> object:
        async def one() -> None:
            try:
                await exchange.ask(ASK, {})
            except BaseException as error:
                raised.append(error)
                raise

        async with asyncio.TaskGroup() as group:
            group.create_task(one())
        return {}

    async with engine_harness(ScriptedBack({CALL: asks_in_a_group})) as d:
        post = await d.post(1)
        await settle_down()
        [asked] = asks_of(post)
        await d.cancel(1)
        await d.answer(asked, {})
        terminal = (await post.whole())[-1]
        await settle_down()
        assert terminal["error"]["code"] == -32800
        assert [type(error) for error in raised] == [asyncio.CancelledError]
        nothing_is_left(d)


class Background:
    """Calls whose handlers return while other tasks, which they have started, ask."""

    def __init__(self) -> None:
        self.returns = asyncio.Event()
        self.asking: list[asyncio.Task[Any]] = []

    async def __call__(self, exchange: Exchange) -> object:
        for number in range(exchange.request.params["count"]):
            self.asking.append(asyncio.create_task(exchange.ask(ASK, {"n": number})))
        await self.returns.wait()
        return {}

    async def ended(self) -> set[type]:
        await asyncio.wait(self.asking)
        return {type(task.exception()) for task in self.asking}


@pytest.mark.parametrize("is_cancelled", [False, True])
@engine_test
async def test_asks_end_with_their_call_while_they_wait_for_a_place_and_for_an_answer(
    is_cancelled: bool,
) -> None:
    background = Background()
    async with engine_harness(ScriptedBack({CALL: background}), limits=Limits(asks=2)) as d:
        # Asks of another replica have a place in the store: of four asks here one is sent, one waits for a place in
        # the store, and two wait for a place in this process.
        assert await d.engine.runtime.store.ask(d.key, "other.1", d.session.record.standalone)
        post = await d.post(1, params={"count": 4})
        await settle_down()
        assert (d.session.asking.inside, d.session.asking.waiting, d.session.asks) == (2, 2, 1)
        began = asyncio.get_running_loop().time()
        if is_cancelled:
            await d.cancel(1)
        background.returns.set()
        assert await background.ended() == {CallEnded}
        assert asyncio.get_running_loop().time() == began
        asked, cancelled, terminal = await post.whole()
        assert cancellations([cancelled]) == [asked["id"]]
        assert ("error" in terminal) is is_cancelled
        await d.engine.runtime.store.withdraw(d.key, "other.1")
        nothing_is_left(d)


@engine_test
async def test_the_answer_of_a_call_whose_asks_were_never_sent_is_plain() -> None:
    background = Background()
    async with engine_harness(ScriptedBack({CALL: background}), limits=Limits(asks=1)) as d:
        assert await d.engine.runtime.store.ask(d.key, "other.1", d.session.record.standalone)
        post = await d.post(1, params={"count": 3})
        await settle_down()
        background.returns.set()
        assert await background.ended() == {CallEnded}
        assert await post.whole() == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
        assert (d.session.asking.inside, d.session.asking.waiting, d.session.pending) == (0, 0, {})


@engine_test
async def test_a_thousand_calls_that_ask_and_are_cancelled_leave_nothing() -> None:
    async with engine_harness(ScriptedBack({CALL: ask_many})) as d:
        tasks = len(asyncio.all_tasks())
        for number in range(1_000):
            post = await d.post(number, params={"count": 2})
            await settle_down()
            await d.cancel(number)
            assert len(asks_of(post)) == 2, number
            await post.whole()
        nothing_is_left(d)
        await settle_down()
        assert len(asyncio.all_tasks()) <= tasks


@engine_test
async def test_an_ended_call_cannot_ask() -> None:
    exchanges: list[Exchange] = []

    async def work(exchange: Exchange) -> object:
        exchanges.append(exchange)
        return {}

    async with engine_harness(ScriptedBack({CALL: work})) as d:
        await d.call(1)
        with pytest.raises(CallEnded):
            await exchanges[0].ask(ASK, {})
        nothing_is_left(d)


@engine_test
async def test_an_ask_waits_ten_minutes_by_default() -> None:
    async with engine_harness(ScriptedBack({CALL: ask_many}), times=Times(stream_age=(900, 900))) as d:
        began = asyncio.get_running_loop().time()
        await d.call(1, params={"count": 1})
        assert asyncio.get_running_loop().time() - began == pytest.approx(600)


@engine_test
async def test_an_ask_that_never_left_the_queue_is_not_cancelled_with_the_client() -> None:
    async with engine_harness(ScriptedBack({CALL: ask_many}), limits=Limits(asks=1)) as d:
        messages = await (await d.post(1, params={"count": 3, "timeout": 5})).whole()
        [asked] = [message["id"] for message in messages if message.get("method") == ASK]
        cancelled = [
            m["params"]["requestId"] for m in messages if m.get("method") == "notifications/cancelled"
        ]
        assert cancelled == [asked]
        assert messages[-1]["result"]["results"] == ["AskTimeout"] * 3
        nothing_is_left(d)


@engine_test
async def test_asks_that_time_out_in_the_queue_leave_the_count_whole() -> None:
    async def staggered(exchange: Exchange) -> object:
        async def one(number: int) -> object:
            return await exchange.ask(ASK, {"n": number}, timeout=5 if number % 2 else 50)

        results = await asyncio.gather(*(one(number) for number in range(40)), return_exceptions=True)
        return {"timeouts": sum(isinstance(result, AskTimeout) for result in results)}

    async with engine_harness(ScriptedBack({CALL: staggered}), limits=Limits(asks=4)) as d:
        post = await d.post(1)
        answered = 0
        while not post.task.done():
            await asyncio.sleep(0.7)
            asks = asks_of(post)
            stored = d.engine.runtime.store._sessions[d.key]  # type: ignore[attr-defined]
            assert 0 <= d.session.asking.inside <= 4
            assert stored.outstanding <= 4
            if answered < len(asks):
                await d.answer(asks[answered], {})
                answered += 1
        nothing_is_left(d)


@engine_test
async def test_an_ask_cancelled_in_the_very_turn_its_place_comes_free_gives_it_back_once() -> None:
    results: list[Any] = []

    async def work(exchange: Exchange) -> object:
        holder = asyncio.create_task(exchange.ask(ASK, {"n": 0}))
        await settle_down()
        doomed, heir = (asyncio.create_task(exchange.ask(ASK, {"n": n})) for n in (1, 2))
        await settle_down()
        # Both in one turn: the holder's answer frees the place for `doomed`, which has just been cancelled.
        doomed.cancel()
        holder.cancel()
        await settle_down()
        assert d.session.asking.inside == 1
        late = asyncio.create_task(exchange.ask(ASK, {"n": 3}))
        await settle_down()
        assert d.session.asking.waiting == 1, "the limit of one holds"
        results.append(await heir)
        results.append(await late)
        return {}

    async with engine_harness(ScriptedBack({CALL: work}), limits=Limits(asks=1)) as d:
        post = await d.post(1)
        while not post.task.done():
            await asyncio.sleep(1)
            for ask in asks_of(post):
                if ask["params"]["n"]:
                    await d.answer(ask, ask["params"]["n"])
        assert results == [2, 3]
        nothing_is_left(d)


@engine_test
async def test_a_clients_error_is_raised_as_a_refusal() -> None:
    raised: list[AskRefused] = []

    async def work(exchange: Exchange) -> object:
        with pytest.raises(AskRefused) as refused:
            await exchange.ask(ASK, {})
        raised.append(refused.value)
        return {}

    async with engine_harness(ScriptedBack({CALL: work})) as d:
        post = await d.post(1)
        await settle_down()
        error = {"code": -1, "message": "the user said no", "data": {"why": 1}}
        await d.engine.sessions.answer(d.key, PRINCIPAL, Response(asks_of(post)[0]["id"], None, error))
        await post.whole()
        assert (raised[0].code, raised[0].message, raised[0].data) == (-1, "the user said no", {"why": 1})


@engine_test
async def test_unknown_foreign_and_late_answers_change_nothing() -> None:
    async with engine_harness(ScriptedBack({CALL: ask_many})) as d:
        post = await d.post(1, params={"count": 1})
        await settle_down()
        [ask] = asks_of(post)
        with pytest.raises(SessionGone):
            await d.engine.sessions.answer(d.key, "stranger", Response(ask["id"], {}, None))
        for unknown in (1, "1", "", ask["id"] + "1"):
            assert await d.answer({"id": unknown}, {}) is Answered.UNKNOWN
        assert await d.answer(ask, {"a": 1}) is Answered.FIRST
        assert await d.answer(ask, {"a": 1}) is Answered.AGAIN
        assert await d.answer(ask, {"a": 2}) is Answered.CONFLICT
        [*_, terminal] = await post.whole()
        assert terminal["result"]["results"] == [{"a": 1}]
        assert await d.answer(ask, {"a": 1}) is Answered.AGAIN, "its client may not have received our 202"
        assert await d.answer(ask, {"a": 2}) is Answered.CONFLICT


@engine_test
async def test_an_ask_waits_for_a_reader_to_return() -> None:
    async with engine_harness(ScriptedBack({CALL: ask_many})) as d:
        post = await d.post(1, params={"count": 1})
        await settle_down()
        [ask] = asks_of(post)
        await post.cut()
        await asyncio.sleep(100)
        get = await d.get(post.exchange.claim.stream)
        await settle_down()
        assert [message["id"] for message in get.messages] == [ask["id"]]
        await d.answer(ask, "late but fine")
        await get.task
        assert get.messages[-1]["result"]["results"] == ["late but fine"]


@engine_test
async def test_an_ask_in_an_always_json_answer_fails_at_once() -> None:
    async def work(exchange: Exchange) -> object:
        with pytest.raises(NoBackChannel):
            await exchange.ask(ASK, {})
        with pytest.raises(NoBackChannel):
            await exchange.notify("notifications/progress", {})
        return {}

    async with engine_harness(ScriptedBack({CALL: work})) as d:
        assert "result" in await d.call(1, streams=False)
        nothing_is_left(d)


@engine_test
async def test_the_end_of_the_session_ends_its_asks() -> None:
    async with engine_harness() as d:
        asking = asyncio.create_task(d.engine.sessions.ask(d.session, ASK, {}))
        await settle_down()
        await d.engine.sessions.close(d.session, SessionInput.DELETED)
        with pytest.raises(SessionGone):
            await asking


@engine_test
async def test_an_ask_outside_any_exchange_goes_out_on_the_standalone_stream() -> None:
    async with engine_harness() as d:
        get = await d.get()
        asking = asyncio.create_task(d.engine.sessions.ask(d.session, "roots/list", {}))
        await settle_down()
        [ask] = get.messages
        assert ask["method"] == "roots/list"
        await d.answer(ask, {"roots": []})
        assert await asking == {"roots": []}
        nothing_is_left(d)


@engine_test
async def test_a_handler_that_outlives_its_exchange_cannot_use_up_the_sessions_asks() -> None:
    async def stubborn(exchange: Exchange) -> object:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            for _ in range(3):
                with pytest.raises(LimpetError):
                    await exchange.ask(ASK, {})
        return {}

    async with engine_harness(ScriptedBack({CALL: stubborn}), limits=Limits(asks=2)) as d:
        await d.post(1)
        await settle_down()
        await d.cancel(1)
        await settle_down()
        nothing_is_left(d)


@engine_test
async def test_back_pressure_is_an_error_a_handler_can_catch() -> None:
    async def work(exchange: Exchange) -> object:
        first = asyncio.create_task(exchange.ask(ASK, {}))
        await settle_down()
        with pytest.raises(BackPressureError, match="1 asks are outstanding and 0 wait"):
            await exchange.ask(ASK, {})
        first.cancel()
        return {}

    async with engine_harness(ScriptedBack({CALL: work}), limits=tight(asks=1, asks_queued=0)) as d:
        assert "result" in await d.call(1)


@engine_test
async def test_an_ask_that_is_cancelled_on_its_way_to_the_store_leaves_nothing_behind() -> None:
    store = ScriptedStore()
    store.delay("ask", after=1)
    async with engine_harness(store=store) as d:
        asking = asyncio.create_task(d.engine.sessions.ask(d.session, ASK, {}))
        await asyncio.sleep(0.5)
        asking.cancel()
        await asyncio.wait([asking])
        nothing_is_left(d)
