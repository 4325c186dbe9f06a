"""Calls without a session: they suspend, park, continue, and their body runs once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from limpet.config import Limits, Settings, Times
from limpet.core.exchange import ExchangeState
from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.engine.exchange import Exchange
from limpet.engine.rounds import ResponseWaiter
from limpet.errors import PARKED_GONE, REQUEST_CANCELLED, Busy, CallEnded, McpError, ParkedGone
from limpet.protocol.sessionless import SERVER_KEY, RequestMeta
from limpet.stores.base import SessionRecord
from limpet.testing import NotingObserver, ScriptedBack, SeededRandom
from limpet.testing.store.limits import tight
from limpet.wire.jsonrpc import Request
from tests.support import LoopClock
from tests.unit.engine.harness import engine_harness, engine_test, settle_down

CALL = "tools/call"
META = RequestMeta("2026-07-28", {"sampling": {}}, {"name": "test"}, "")
ALICE, BOB = Caller("alice"), Caller("bob")
Script = Callable[[Exchange], Awaitable[object]]
Json = dict[str, Any]


class Visit:
    """One request and its answer."""

    def __init__(self, engine: Engine, awaited: ResponseWaiter) -> None:
        self._engine = engine
        self.awaited = awaited

    async def answer(self) -> Json:
        """Wait for the outcome and leave, as a front does."""
        while self.awaited.outcome is None:
            self.awaited.wake.clear()
            await self.awaited.wake.wait(3600)
        outcome = self.awaited.outcome
        if self.awaited.leave():
            await self._engine.sessionless.abandon(self.awaited.exchange)
        message: Json = msgspec.json.decode(outcome.message(1))
        return message

    async def hang_up(self) -> None:
        if self.awaited.leave():
            await self._engine.sessionless.abandon(self.awaited.exchange)

    def messages(self) -> list[Json]:
        messages, self.awaited.messages, self.awaited.size = self.awaited.messages, [], 0
        self.awaited.writer.make_room()
        return [msgspec.json.decode(data) for data in messages]


class House:
    """An engine and its clients without a session."""

    def __init__(self, engine: Engine, noted: NotingObserver) -> None:
        self.engine = engine
        self.noted = noted

    def call(self, params: Json | None = None, caller: Caller = ALICE, request_id: int = 1) -> Visit:
        request = Request(request_id, CALL, {"name": "x", **(params or {})})
        calls = self.engine.sessionless
        start = calls.go_on if "requestState" in request.params else calls.start
        return Visit(self.engine, start(META, caller, request))

    def retry(self, result: Json, answers: Json, caller: Caller = ALICE, **params: Any) -> Visit:
        """Continue with answers, each given as a bare value and wrapped as a client's result is: an object."""
        state = result["result"]["requestState"]
        wrapped = {key: {"value": value} for key, value in answers.items()}
        return self.call({"requestState": state, "inputResponses": wrapped, **params}, caller, request_id=2)


@asynccontextmanager
async def house(
    script: Script, *, limits: Limits = Limits(), times: Times = Times(), clock: LoopClock | None = None
) -> AsyncIterator[House]:
    noted = NotingObserver()
    engine = Engine(
        ScriptedBack({CALL: script}),
        Settings(limits=limits, times=times),
        clock=clock or LoopClock(),
        random=SeededRandom(1),
        observer=noted,
    )
    await engine.ensure_started()
    try:
        yield House(engine, noted)
    finally:
        await engine.aclose()


class Counted:
    """A script that counts how often its body ran."""

    def __init__(self, body: Script) -> None:
        self.runs = 0
        self._body = body

    async def __call__(self, exchange: Exchange) -> object:
        self.runs += 1
        return await self._body(exchange)


def state_of(visit: Visit) -> ExchangeState:
    return visit.awaited.exchange.state


def refused(visit: Callable[[], Visit]) -> McpError:
    with pytest.raises(ParkedGone) as error:
        visit()
    return error.value


async def said(exchange: Exchange, key: str | None = None, **params: Any) -> object:
    answer: Json = await exchange.ask("elicitation/create", params, key=key)
    return answer["value"]


async def one_ask(exchange: Exchange) -> object:
    return {"said": await said(exchange, "q")}


async def fan_out(exchange: Exchange) -> object:
    asks = (said(exchange, n=n) for n in range(5))
    return {"said": await asyncio.gather(*asks)}


@engine_test
async def test_an_answer_that_asks_for_input_names_the_server_without_an_initialize() -> None:
    class Back(ScriptedBack):
        @override
        async def initialize(self, record: SessionRecord, caller: Caller) -> Json:
            raise AssertionError("a client of 2026-07-28 does not initialize")

    engine = Engine(Back({CALL: one_ask}), clock=LoopClock(), random=SeededRandom(1))
    await engine.ensure_started()
    try:
        first = await House(engine, NotingObserver()).call().answer()
    finally:
        await engine.aclose()
    assert first["result"]["_meta"] == {SERVER_KEY: {"name": "scripted", "version": "0"}}


@engine_test
async def test_asks_made_together_go_out_in_one_round_and_the_body_runs_once() -> None:
    script = Counted(fan_out)
    async with house(script) as home:
        first = await home.call().answer()
        requests = first["result"]["inputRequests"]
        assert first["result"]["resultType"] == "input_required"
        assert [asked["params"]["n"] for asked in requests.values()] == [0, 1, 2, 3, 4]
        answers = {key: f"answer {number}" for number, key in enumerate(requests)}
        second = await home.retry(first, answers).answer()
        assert second["result"] == {"said": [f"answer {number}" for number in range(5)]}
        assert script.runs == 1


@engine_test
async def test_rounds_follow_each_other_and_each_has_its_own_state() -> None:
    async def interview(exchange: Exchange) -> object:
        return [await said(exchange, step=step) for step in range(4)]

    script = Counted(interview)
    async with house(script) as home:
        result, states = await home.call().answer(), set()
        for step in range(4):
            [(key, asked)] = result["result"]["inputRequests"].items()
            assert asked["params"] == {"step": step}
            states.add(result["result"]["requestState"])
            result = await home.retry(result, {key: step * 10}).answer()
        assert result["result"] == [0, 10, 20, 30]
        assert (script.runs, len(states)) == (1, 4)


@engine_test
async def test_an_unanswered_ask_is_sent_again() -> None:
    async with house(fan_out) as home:
        first = await home.call().answer()
        keys = list(first["result"]["inputRequests"])
        second = await home.retry(first, dict.fromkeys(keys[:2], "a") | {"unknown": 1}).answer()
        assert list(second["result"]["inputRequests"]) == keys[2:]
        nothing = await home.retry(second, {}).answer()
        assert list(nothing["result"]["inputRequests"]) == keys[2:]
        last = await home.retry(nothing, dict.fromkeys(keys[2:], "b")).answer()
        assert last["result"]["said"] == ["a", "a", "b", "b", "b"]


@engine_test
async def test_an_equal_repeat_gets_the_equal_result_and_other_answers_are_refused() -> None:
    script = Counted(one_ask)
    async with house(script) as home:
        first = await home.call().answer()
        answers = [await home.retry(first, {"q": "yes"}).answer() for _ in range(3)]
        assert answers == [answers[0]] * 3
        error = refused(lambda: home.retry(first, {"q": "no"}))
        assert error.code == PARKED_GONE
        assert script.runs == 1


@engine_test
async def test_a_repeat_of_an_earlier_round_gets_the_result_that_followed_it() -> None:
    async def two(exchange: Exchange) -> object:
        return [await said(exchange, key) for key in ("one", "two")]

    async with house(two) as home:
        first = await home.call().answer()
        second = await home.retry(first, {"one": 1}).answer()
        assert await home.retry(first, {"one": 1}).answer() == second
        last = await home.retry(second, {"two": 2}).answer()
        assert await home.retry(first, {"one": 1}).answer() == second
        assert last["result"] == [1, 2]


@engine_test
async def test_two_equal_retries_at_once_both_get_the_result() -> None:
    released = asyncio.Event()

    async def slow(exchange: Exchange) -> object:
        answer = await said(exchange, "q")
        await released.wait()
        return answer

    async with house(slow) as home:
        first = await home.call().answer()
        visits = [home.retry(first, {"q": 1}) for _ in range(2)]
        waiting = [asyncio.ensure_future(visit.answer()) for visit in visits]
        await settle_down()
        released.set()
        assert [answer["result"] for answer in await asyncio.gather(*waiting)] == [1, 1]


@engine_test
async def test_a_handler_waits_for_a_client_that_does_not_take_long_messages_and_they_are_charged() -> None:
    sent = 0

    async def chatty(exchange: Exchange) -> object:
        nonlocal sent
        for _ in range(100):
            await exchange.notify("notifications/message", {"data": "x" * 10_000})
            sent += 1
        return {}

    async with house(chatty, limits=Limits(memory=10_000_000)) as home:
        ledger = home.engine.load.ledger
        account = ledger.account("alice")
        visit = home.call(caller=Caller("alice", account=account))
        await settle_down()
        assert sent == 6
        batch = await visit.awaited.take()
        assert batch is not None
        await settle_down()
        assert sent == 13
        assert account.used == sum(map(len, batch.messages)) + visit.awaited.size > 2 * 65_536
        others = ledger.account("others").open()
        others.set(9_900_000)
        visit.awaited.written(batch)
        await visit.awaited.take()
        await settle_down()
        assert sent == 14, "without room, one message waits"
        visit.awaited.stop()
        await visit.hang_up()
        del visit, batch
        await settle_down()
        assert ledger.used == others.size


@engine_test
async def test_one_long_message_is_charged_until_it_is_written() -> None:
    async def chatty(exchange: Exchange) -> object:
        await exchange.notify("notifications/message", {"data": "x" * 100_000})
        await asyncio.Event().wait()
        return {}

    async with house(chatty) as home:
        account = home.engine.load.ledger.account("alice")
        visit = home.call(caller=Caller("alice", account=account))
        await settle_down()
        assert account.used > 100_000
        batch = await visit.awaited.take()
        assert batch is not None
        assert account.used > 100_000
        visit.awaited.written(batch)
        assert account.used == 0


@engine_test
async def test_a_long_question_is_charged_with_the_response_that_it_is_copied_into() -> None:
    async def asks(exchange: Exchange) -> object:
        return await exchange.ask("elicitation/create", {"message": "x" * 100_000}, key="q")

    async with house(asks) as home:
        account = home.engine.load.ledger.account("alice")
        await home.call(caller=Caller("alice", account=account)).answer()
        assert account.used > 200_000


@engine_test
async def test_foreign_tampered_mismatched_and_expired_state_get_one_and_the_same_error() -> None:
    async with house(one_ask, times=Times(parked=600)) as home:
        first = await home.call({"arguments": {"a": 1}}).answer()
        state = first["result"]["requestState"]
        flipped = state[:-2] + ("A" if state[-2] != "A" else "B") + state[-1]
        right: Json = {"arguments": {"a": 1}}
        errors = [
            refused(lambda: home.retry(first, {"q": 1}, BOB, **right)),
            refused(lambda: home.retry(first, {"q": 1}, arguments={"a": 2})),
            refused(lambda: home.retry(first, {"q": 1}, name="other", **right)),
            refused(lambda: home.call({**right, "requestState": flipped})),
            refused(lambda: home.call({**right, "requestState": ""})),
            refused(lambda: home.call({**right, "requestState": 7})),
            refused(lambda: home.call({**right, "requestState": "A" * 100_000})),
        ]
        await asyncio.sleep(601)
        errors.append(refused(lambda: home.retry(first, {"q": 1}, **right)))
        assert {(error.code, error.message, error.data) for error in errors} == {
            (PARKED_GONE, ParkedGone().message, None)
        }


class WrongDate(LoopClock):
    """A clock whose date is set by hand."""

    ahead = 0.0

    @override
    def wall(self) -> float:
        return super().wall() + self.ahead


@engine_test
async def test_a_date_that_is_set_forward_ends_no_parked_call_but_a_state_made_by_hand() -> None:
    clock = WrongDate()
    async with house(one_ask, clock=clock) as home:
        visit = home.call()
        first = await visit.answer()
        by_hand = home.engine.sessionless.seal(visit.awaited.exchange, "mine")
        clock.ahead = 3_600
        refused(lambda: home.call({"requestState": by_hand}))
        assert (await home.retry(first, {"q": 1}).answer())["result"] == {"said": 1}


@engine_test
async def test_a_parked_call_expires_on_time_and_its_handler_ends() -> None:
    ended: list[float] = []

    async def waits(exchange: Exchange) -> object:
        try:
            return await exchange.ask("elicitation/create", {})
        finally:
            ended.append(asyncio.get_running_loop().time())

    async with house(waits, times=Times(parked=600)) as home:
        await home.call().answer()
        out = asyncio.get_running_loop().time()
        await asyncio.sleep(599)
        assert ended == []
        await asyncio.sleep(2)
        assert ended == [pytest.approx(out + 600)]
        statistics = home.engine.sessionless.parking.statistics()
        assert (statistics.kept, statistics.expired) == (0, 1)


@engine_test
async def test_a_handler_that_ends_while_parked_keeps_its_result_for_the_retry() -> None:
    async def impatient(exchange: Exchange) -> object:
        asked = asyncio.ensure_future(exchange.ask("elicitation/create", {}, key="q"))
        await asyncio.sleep(5)
        asked.cancel()
        return "done without you"

    script = Counted(impatient)
    async with house(script) as home:
        first = await home.call().answer()
        await asyncio.sleep(60)
        assert (await home.retry(first, {"q": 1}).answer())["result"] == "done without you"
        assert script.runs == 1


@pytest.mark.parametrize("how", ["returns", "raises", "the client leaves", "expires"])
@engine_test
async def test_the_asks_of_other_tasks_end_with_their_call(how: str) -> None:
    asking: list[asyncio.Task[Any]] = []
    go = asyncio.Event()

    async def leaves_asks(exchange: Exchange) -> object:
        asks = (exchange.ask("elicitation/create", {"n": n}) for n in range(3))
        asking.extend(asyncio.create_task(ask) for ask in asks)
        await go.wait()
        if how == "raises":
            raise McpError(-1, "failed")
        return "done"

    async with house(leaves_asks, times=Times(parked=600)) as home:
        visit = home.call()
        await settle_down()
        if how == "the client leaves":
            await visit.hang_up()
        else:
            assert len((await visit.answer())["result"]["inputRequests"]) == 3
            if how != "expires":
                go.set()
        await asyncio.wait(asking)
        assert {type(task.exception()) for task in asking} == {CallEnded}
        assert home.engine.sessionless.asks() == 0


@pytest.mark.parametrize("era", ["sessions", "sessionless"])
@engine_test
async def test_the_asks_of_a_handler_that_is_cancelled_end_by_its_cancellation(era: str) -> None:
    """A handler whose tasks failed would end with an error, which is logged."""
    raised: list[BaseException | None] = []

    async def asks_in_groups(exchange: Exchange) -> object:
        async def deep(levels: int) -> None:
            async with asyncio.TaskGroup() as group:
                if levels:
                    group.create_task(deep(levels - 1))
                    return
                for number in range(2):
                    task = group.create_task(exchange.ask("elicitation/create", {"n": number}))
                    task.add_done_callback(lambda done: raised.append(_exception(done)))

        await deep(5)
        return {}

    def _exception(task: asyncio.Task[Any]) -> BaseException | None:
        return None if task.cancelled() else task.exception()

    if era == "sessions":
        async with engine_harness(ScriptedBack({CALL: asks_in_groups})) as d:
            await d.post(1)
            await settle_down()
            await d.cancel(1)
            await settle_down()
            assert not d.session.pending
    else:
        async with house(asks_in_groups) as home:
            visit = home.call()
            await settle_down()
            await visit.hang_up()
            await settle_down()
            assert home.engine.sessionless.asks() == 0
    assert raised == [None, None]


@engine_test
async def test_nothing_is_sent_while_parked_and_afterwards_token_level_and_id_are_the_retrys() -> None:
    async def talks(exchange: Exchange) -> object:
        await exchange.notify("before")
        asked = asyncio.ensure_future(said(exchange, "q"))
        await asyncio.sleep(5)
        await exchange.notify("while parked")
        await asked
        await exchange.notify("after")
        return [exchange.request.id, exchange.request.params["_meta"]]

    async with house(talks) as home:
        visit = home.call({"_meta": "first"}, request_id=1)
        first = await visit.answer()
        assert [message["method"] for message in visit.messages()] == ["before"]
        await asyncio.sleep(10)
        second = home.retry(first, {"q": 1}, _meta="second")
        result = await second.answer()
        assert [message["method"] for message in second.messages()] == ["after"]
        assert result["result"] == [2, "second"]


@engine_test
async def test_closing_the_response_cancels_a_running_call_but_not_a_parked_one() -> None:
    cancelled: list[str] = []

    async def watched(exchange: Exchange) -> object:
        try:
            if exchange.request.params.get("asks"):
                return await said(exchange, "q")
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(str(exchange.request.params.get("asks")))
            raise
        return None

    async with house(watched) as home:
        visit = home.call()
        await settle_down()
        await visit.hang_up()
        await settle_down()
        assert cancelled == ["None"]
        outcome = visit.awaited.outcome
        assert outcome is not None
        assert outcome.error is not None
        assert outcome.error.code == REQUEST_CANCELLED
        first = await home.call({"asks": True}).answer()
        await asyncio.sleep(30)
        assert cancelled == ["None"]
        assert (await home.retry(first, {"q": "still here"}, asks=True).answer())["result"] == "still here"


@engine_test
async def test_two_thousand_abandoned_calls_cannot_exceed_the_cap() -> None:
    limits = tight(parked=100, parked_per_principal=60, sessionless_calls=100_000)
    async with house(one_ask, limits=limits, times=Times(parked=600)) as home:
        answers = [await home.call(caller=caller).answer() for caller in (ALICE, BOB) for _ in range(1_000)]
        statistics = home.engine.sessionless.parking.statistics()
        assert (statistics.kept, statistics.refused) == (100, 1_900)
        parked = [answer for answer in answers if "result" in answer]
        assert len(parked) == 100
        assert {answer["error"]["code"] for answer in answers if "error" in answer} == {Busy("").code}
        assert (await home.retry(parked[0], {"q": 1}).answer())["result"] == {"said": 1}
        await asyncio.sleep(601)
        assert home.engine.sessionless.parking.statistics().kept == 0
        assert len(home.engine.sessionless.live()) == 0


@engine_test
async def test_calls_that_wait_have_a_limit_in_bytes() -> None:
    async def asks_much(exchange: Exchange) -> object:
        for _ in range(3):
            await exchange.ask("elicitation/create", {"message": "x" * 4_000})
        return "done"

    async with house(asks_much, limits=Limits(memory=50_000)) as home:
        parked = home.engine.runtime.load.ledger
        first, second = [await home.call(caller=ALICE).answer() for _ in range(2)]
        assert 8_000 < parked.used < 30_000
        over = await home.call(caller=ALICE).answer()
        assert over["error"]["code"] == Busy("").code
        assert "too much memory" in over["error"]["message"]
        assert "result" in await home.call(caller=BOB).answer()
        # The asks of a round are kept for its repeats: the next round is added.
        [key] = first["result"]["inputRequests"]
        ended = await home.retry(first, {key: {}}, caller=ALICE).answer()
        assert ended["error"]["code"] == Busy("").code
        del over, ended
        await asyncio.sleep(601)
        await settle_down()
        assert parked.used == 0, "it is free when no client can come back to them"
        assert "result" in second


async def answered(home: House, answer: object, **more: Any) -> Json:
    """Make a call that asks, and answer it; return the question."""
    first = await home.call(**more).answer()
    await home.retry(first, {"q": answer}, **more).answer()
    return first


@engine_test
async def test_a_call_that_has_ended_holds_no_place_and_its_result_is_kept_for_a_repeat() -> None:
    async with house(one_ask, limits=tight(parked=1, parked_per_principal=1)) as home:
        firsts = [await answered(home, number) for number in range(20)]
        statistics = home.engine.sessionless.parking.statistics()
        assert (statistics.kept, statistics.finished, statistics.refused) == (0, 20, 0)
        for number, first in enumerate(firsts):
            assert (await home.retry(first, {"q": number}).answer())["result"] == {"said": number}
        assert refused(lambda: home.retry(firsts[0], {"q": "another"})).code == PARKED_GONE
        await home.call().answer()
        assert (await home.call().answer())["error"]["code"] == Busy("").code, (
            "one that waits holds its place"
        )
        await asyncio.sleep(601)
        statistics = home.engine.sessionless.parking.statistics()
        assert (statistics.kept, statistics.finished, statistics.expired) == (0, 0, 1)


async def one_ask_much_said(exchange: Exchange) -> object:
    return str(await said(exchange, "q")) + "x" * 100_000


@engine_test
async def test_finished_results_are_bounded_in_bytes_and_the_oldest_go_first() -> None:
    limits = Limits(memory=16 * 350_000)
    async with house(one_ask_much_said, limits=limits) as home:
        of_bob = await answered(home, 0, caller=BOB)
        of_alice = [await answered(home, number) for number in range(10)]
        assert home.engine.sessionless.parking.statistics().finished == 4
        for first in of_alice[:7]:
            assert refused(partial(home.retry, first, {"q": 0})).code == PARKED_GONE
        for number, first in list(enumerate(of_alice))[7:]:
            repeated = await home.retry(first, {"q": number}).answer()
            assert repeated["result"] == str(number) + "x" * 100_000
        assert "result" in await home.retry(of_bob, {"q": 0}, caller=BOB).answer(), "others keep theirs"
        anonymous = [await answered(home, number, caller=Caller("")) for number in range(5)]
        assert refused(lambda: home.retry(of_bob, {"q": 0}, caller=BOB)).code == PARKED_GONE, "the oldest"
        assert "result" in await home.retry(anonymous[0], {"q": 0}, caller=Caller("")).answer()


@engine_test
async def test_a_result_that_is_too_large_to_keep_is_delivered_once() -> None:
    async with house(one_ask_much_said, limits=Limits(memory=8 * 50_000)) as home:
        first = await home.call().answer()
        assert (await home.retry(first, {"q": "1"}).answer())["result"][0] == "1"
        assert refused(lambda: home.retry(first, {"q": "1"})).code == PARKED_GONE


@engine_test
async def test_asks_of_earlier_rounds_count_when_the_call_has_ended() -> None:
    async def asks_much(exchange: Exchange) -> object:
        for number in range(3):
            await exchange.ask("elicitation/create", {"message": "x" * 10_000}, key=f"q{number}")
        return "done"

    async with house(asks_much, limits=Limits(memory=8 * 30_000)) as home:
        rounds = [await home.call().answer()]
        for number in range(3):
            rounds.append(await home.retry(rounds[-1], {f"q{number}": 0}).answer())
        assert rounds[-1]["result"] == "done"
        assert home.engine.sessionless.parking.statistics().finished == 0
        assert home.engine.runtime.load.ledger.used == 0


@engine_test
async def test_anonymous_clients_share_all_places_and_do_not_count_as_one_principal() -> None:
    anonymous = Caller("")
    async with house(one_ask, limits=tight(parked=3, parked_per_principal=1)) as home:
        for _ in range(3):
            assert "result" in await home.call(caller=anonymous).answer()
        assert (await home.call(caller=anonymous).answer())["error"]["code"] == Busy("").code


@engine_test
async def test_the_arguments_of_calls_that_wait_count_where_they_are_not_counted_as_work() -> None:
    async with house(one_ask, limits=Limits(memory=50_000)) as home:
        await home.call({"text": "x" * 10_000}).answer()
        assert home.engine.runtime.load.ledger.used > 10_000
        assert (await home.call({"text": "x" * 10_000}).answer())["error"]["code"] == Busy("").code


@engine_test
async def test_the_answers_that_a_call_was_given_count_while_it_waits_for_more() -> None:
    async def asks_twice(exchange: Exchange) -> object:
        await said(exchange, "q")
        return {"said": await said(exchange, "r")}

    async with house(asks_twice, limits=Limits(memory=200_000)) as home:
        parked = home.engine.runtime.load.ledger
        first, other = [await home.call().answer() for _ in range(2)]
        second = await home.retry(first, {"q": "x" * 30_000}).answer()
        assert parked.used > 30_000
        over = await home.retry(other, {"q": "x" * 30_000}).answer()
        assert over["error"]["code"] == Busy("").code
        assert (await home.retry(second, {"r": 1}).answer())["result"]["said"] == 1
        assert parked.used < 60_000, "neither of them waits any more; only the outcomes are kept"


@engine_test
async def test_a_limit_of_running_calls_refuses_the_next_as_busy() -> None:
    async def wait(exchange: Exchange) -> object:
        await asyncio.sleep(1)
        return None

    async with house(wait, limits=tight(sessionless_calls=2)) as home:
        visits = [home.call(), home.call()]
        with pytest.raises(Busy):
            home.call()
        for visit in visits:
            await visit.answer()
        assert "result" in await home.call().answer()


@engine_test
async def test_one_client_does_not_take_all_places_of_running_calls() -> None:
    """Places were given out in the order of arrival: one client could have all of them."""

    async def wait(exchange: Exchange) -> object:
        await asyncio.sleep(1)
        return None

    async with house(wait, limits=tight(sessionless_calls=16)) as home:
        for _ in range(2):
            visits = [home.call() for _ in range(14)]
            with pytest.raises(Busy):
                home.call()
            visits.append(home.call(caller=BOB))
            for visit in visits:
                await visit.answer()
            assert home.engine.sessionless._places is None
            assert not home.engine.sessionless._owners


@engine_test
async def test_a_cancelled_call_keeps_its_place_until_its_handler_has_ended() -> None:
    async def stubborn(exchange: Exchange) -> object:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return None

    async with house(stubborn, limits=tight(sessionless_calls=1)) as home:
        visit = home.call()
        await asyncio.sleep(0)
        await visit.hang_up()
        await asyncio.sleep(0.5)
        assert state_of(visit) is ExchangeState.SETTLED_HELD
        with pytest.raises(Busy):
            home.call()
        await asyncio.sleep(1)
        assert state_of(visit) is ExchangeState.SETTLED
        home.call()


@engine_test
async def test_a_call_is_parked_goes_on_and_ends() -> None:
    async with house(one_ask) as home:
        visit = home.call()
        assert state_of(visit) is ExchangeState.RUNNING
        asked = await visit.answer()
        assert state_of(visit) is ExchangeState.PARKED
        retry = home.retry(asked, {"q": 1})
        assert state_of(visit) is ExchangeState.RUNNING
        await retry.answer()
        assert state_of(visit) is ExchangeState.SETTLED


@engine_test
async def test_stopping_ends_parked_calls_and_says_how_many() -> None:
    async with house(one_ask, times=Times(drain=5)) as home:
        first = await home.call().answer()
        await home.engine.aclose()
        assert home.noted.named("parked.dropped") != []
        assert len(home.engine.sessionless.live()) == 0
        refused(lambda: home.retry(first, {"q": 1}))


@engine_test
async def test_a_handler_that_asks_forever_is_ended() -> None:
    async def endless(exchange: Exchange) -> object:
        while True:
            await exchange.ask("elicitation/create", {})

    async with house(endless) as home:
        answer, rounds = await home.call().answer(), 0
        while "result" in answer:
            rounds += 1
            answer = await home.retry(answer, dict.fromkeys(answer["result"]["inputRequests"], 1)).answer()
        assert rounds == 64
        assert "64 rounds" in answer["error"]["message"]
