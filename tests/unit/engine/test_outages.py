"""A store that is unavailable for a while: running handlers wait for it, and every message is stored once."""

import asyncio

from limpet.config import Limits
from limpet.engine.exchange import Exchange
from limpet.errors import REQUEST_CANCELLED, AskTimeout, StoreUnavailable
from limpet.testing import ScriptedBack
from tests.stores import OF_EXCHANGES, ScriptedStore
from tests.unit.engine.harness import CALL, Json, engine_harness, engine_test, settle_down

PROGRESS = "notifications/progress"


def leave(store: ScriptedStore, *, loses_replies: bool = False) -> None:
    """Let the store's commands fail; with `loses_replies` they are executed nevertheless."""
    (store.lose_replies if loses_replies else store.fail)(*OF_EXCHANGES)


async def count_to_three(exchange: Exchange) -> object:
    for number in range(3):
        await exchange.notify(PROGRESS, {"n": number})
    return {}


def numbers(messages: list[Json]) -> list[int]:
    return [message["params"]["n"] for message in messages if message.get("method") == PROGRESS]


@engine_test
async def test_a_handler_that_sends_progress_waits_for_a_store_that_is_unavailable() -> None:
    for loses_replies in (False, True):
        store = ScriptedStore()

        async def leaves(
            exchange: Exchange, store: ScriptedStore = store, loses_replies: bool = loses_replies
        ) -> object:
            await exchange.notify(PROGRESS, {"n": -1})
            leave(store, loses_replies=loses_replies)
            return await count_to_three(exchange)

        for script, expected in ((count_to_three, [0, 1, 2]), (leaves, [-1, 0, 1, 2])):
            async with engine_harness(ScriptedBack({CALL: script}), store=store) as d:
                store.failed = 0
                if script is count_to_three:
                    leave(store, loses_replies=loses_replies)
                post = await d.post(1)
                await asyncio.sleep(10)
                assert store.failed > 5
                assert 0 not in numbers(post.messages) or loses_replies
                store.recover()
                messages = await post.whole()
                assert numbers(messages) == expected, f"each once; replies lost: {loses_replies}"
                assert messages[-1]["result"] == {}


@engine_test
async def test_a_store_that_stays_unavailable_fails_the_handler_after_the_limit() -> None:
    store = ScriptedStore(Limits(store_seconds=20))
    async with engine_harness(
        ScriptedBack({CALL: count_to_three}), limits=Limits(store_seconds=20), store=store
    ) as d:
        leave(store)
        await d.post(1)
        await asyncio.sleep(19)
        assert not d.noted.named("handler.failed")
        await asyncio.sleep(2)
        [failed] = d.noted.named("handler.failed")
        assert isinstance(failed["error"], StoreUnavailable)
        store.recover()
        await asyncio.sleep(1)


@engine_test
async def test_a_cancelled_handler_waits_no_longer() -> None:
    store = ScriptedStore()
    async with engine_harness(ScriptedBack({CALL: count_to_three}), store=store) as d:
        leave(store)
        post = await d.post(1)
        await settle_down()
        await d.cancel(1)
        await settle_down()
        assert post.exchange.task is not None
        assert post.exchange.task.done()
        store.recover()
        assert (await post.whole())[-1]["error"]["code"] == REQUEST_CANCELLED


@engine_test
async def test_a_message_of_a_call_that_has_ended_is_waited_for_no_longer() -> None:
    tasks: list[asyncio.Task[None]] = []

    async def leave_one_behind(exchange: Exchange) -> object:
        await exchange.notify(PROGRESS, {"n": 0})
        leave(store)
        tasks.append(asyncio.create_task(exchange.notify(PROGRESS, {"n": 0})))
        await asyncio.sleep(1)
        return {}

    store = ScriptedStore()
    async with engine_harness(ScriptedBack({CALL: leave_one_behind}), store=store) as d:
        await d.post(1)
        await asyncio.sleep(3)
        [left] = tasks
        assert left.done()
        assert isinstance(left.exception(), StoreUnavailable)
        store.recover()
        await asyncio.sleep(1)


@engine_test
async def test_an_ask_waits_for_a_store_that_is_unavailable_at_every_step() -> None:
    async def ask(exchange: Exchange) -> object:
        return await exchange.ask("roots/list", {})

    store = ScriptedStore()
    async with engine_harness(ScriptedBack({CALL: ask}), store=store) as d:
        leave(store)
        post = await d.post(1)
        await asyncio.sleep(5)
        store.recover()
        await asyncio.sleep(1)
        [asked] = post.messages
        await d.answer(asked, {"roots": []})
        leave(store)
        await asyncio.sleep(5)
        store.recover()
        assert (await post.whole())[-1]["result"] == {"roots": []}


@engine_test
async def test_a_store_that_is_unavailable_does_not_hide_why_an_ask_has_ended() -> None:
    async def ask(exchange: Exchange) -> object:
        return await exchange.ask("roots/list", {}, timeout=20)

    store = ScriptedStore()
    async with engine_harness(ScriptedBack({CALL: ask}), store=store) as d:
        post = await d.post(1)
        await settle_down()
        leave(store)
        await asyncio.sleep(21)
        store.recover()
        assert "error" in (await post.whole())[-1]
        [failed] = d.noted.named("handler.failed")
        assert isinstance(failed["error"], AskTimeout)


@engine_test
async def test_an_end_whose_reply_was_lost_is_written_once_and_noted_as_no_fence() -> None:
    store = ScriptedStore()
    gate = asyncio.Event()

    async def late(exchange: Exchange) -> object:
        await exchange.notify(PROGRESS, {"n": 0})
        await gate.wait()
        return {}

    async with engine_harness(ScriptedBack({CALL: late}), store=store) as d:
        post = await d.post(1)
        await settle_down()
        leave(store, loses_replies=True)
        gate.set()
        await asyncio.sleep(2)
        store.recover()
        assert [message.get("method", "result") for message in await post.whole()] == [PROGRESS, "result"]
        await asyncio.sleep(1)
        assert d.noted.named("exchange.unsettled")
        assert not d.noted.named("exchange.fenced")


@engine_test
async def test_a_server_that_stops_waits_for_an_end_that_is_on_its_way_to_the_store() -> None:
    store = ScriptedStore()
    store.delay("settle", before=2)
    async with engine_harness(store=store) as d:
        await d.submit(1)
        await settle_down()
        assert store.log[-1] == "settle"
        assert not d.session.exchanges
    assert store.log.index("settle done") < store.log.index("aclose")
