"""Messages that are on their way to a shared store: several in one append, in order, bounded, and before the end (law 4)."""

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest

from limpet.config import Limits
from limpet.core.lifecycle import SessionInput
from limpet.engine.exchange import Exchange
from limpet.engine.stream_buffer import BYTES, EVENTS
from limpet.errors import REQUEST_CANCELLED, Fenced, StoreError, StoreUnavailable
from limpet.stores.base import WakeUp
from limpet.testing import ScriptedBack
from tests.stores import ScriptedStore
from tests.unit.engine.harness import CALL, EngineHarness, Json, engine_harness, engine_test, settle_down

PROGRESS = "notifications/progress"
COUNT = 5


class Counter:
    """A handler that sends so many messages without a wait, and records the sent messages and the exceptions."""

    def __init__(self, count: int = COUNT, padding: int = 0) -> None:
        self._count = count
        self._padding = "x" * padding
        self.sent: list[int] = []
        self.raised: list[Exception] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def __call__(self, exchange: Exchange) -> object:
        await self.send(exchange, range(self._count))
        await self.goes_on.wait()
        return {}

    async def send(self, exchange: Exchange, numbers: range) -> None:
        for number in numbers:
            try:
                await exchange.notify(PROGRESS, {"n": number, "padding": self._padding})
                self.sent.append(number)
            except (Fenced, StoreUnavailable) as error:
                self.raised.append(error)
                if isinstance(error, Fenced):
                    raise


def harness(
    script: object, store: ScriptedStore, limits: Limits = Limits()
) -> AbstractAsyncContextManager[EngineHarness]:
    return engine_harness(ScriptedBack({CALL: script}), limits=limits, store=store)  # type: ignore[dict-item]


def shared(limits: Limits = Limits()) -> ScriptedStore:
    return ScriptedStore(limits, is_shared=True)


def numbers(messages: list[Json]) -> list[int]:
    return [message["params"]["n"] for message in messages if message.get("method") == PROGRESS]


def batches(store: ScriptedStore) -> list[int]:
    """Return how many events each append had."""
    return [len(events) for _, _, _, events in store.done["append"]]


@engine_test
async def test_messages_of_one_turn_are_one_append_in_order_with_consecutive_positions() -> None:
    store = shared()
    async with harness(Counter(), store) as d:
        post = await d.post(1)
        messages = await post.whole()
        assert batches(store) == [COUNT]
        assert numbers(messages) == list(range(COUNT))
        assert messages[-1]["result"] == {}
        assert post.reader is not None
        [(_, _, _, events)] = store.done["append"]
        start, stream = post.exchange.writer.start, post.exchange.claim.stream
        page = await store.read(d.key, stream, start, 100, 10_000)
        assert page is not None
        found = [event.position for event in page.events]
        assert found[:-1] == [(start.seq + number, tag) for number, (tag, _) in enumerate(events, 1)]
        assert post.reader.cursor == found[-1]


@engine_test
async def test_the_reader_is_woken_once_for_all_messages_of_an_append() -> None:
    store, handler = shared(), Counter()
    handler.goes_on.clear()
    async with harness(handler, store) as d:
        woken: list[WakeUp] = []
        wake = store.wake

        def counting(what: WakeUp, session: str, name: str) -> None:
            woken.append(what)
            wake(what, session, name)

        store.wake = counting
        post = await d.post(1)
        await settle_down()
        assert numbers(post.messages) == list(range(COUNT))
        assert woken == [WakeUp.STREAM]
        handler.goes_on.set()
        await post.whole()


@engine_test
async def test_a_message_is_in_the_store_before_its_client_sees_it() -> None:
    store, handler = shared(), Counter()
    async with harness(handler, store) as d:
        store.delay("append", before=5)
        post = await d.post(1)
        await asyncio.sleep(4)
        assert handler.sent == list(range(COUNT)), "the handler does not wait for the store"
        assert post.messages == []
        await asyncio.sleep(2)
        assert numbers(post.messages) == list(range(COUNT))


@engine_test
async def test_an_ask_is_stored_with_all_messages_before_it_when_it_waits_for_its_answer() -> None:
    async def ask(exchange: Exchange) -> object:
        await exchange.notify(PROGRESS, {"n": 0})
        return await exchange.ask("roots/list", {})

    store = shared()
    async with harness(ask, store) as d:
        post = await d.post(1)
        await settle_down()
        assert batches(store) == [2]
        assert [message["method"] for message in post.messages] == [PROGRESS, "roots/list"]
        await d.answer(post.messages[1], {"roots": []})
        assert (await post.whole())[-1]["result"] == {"roots": []}


@engine_test
async def test_an_ask_that_cannot_be_stored_fails_and_waits_for_no_answer() -> None:
    raised: list[BaseException] = []

    async def ask(exchange: Exchange) -> object:
        try:
            await exchange.ask("roots/list", {})
        except StoreUnavailable as error:
            raised.append(error)
        return {}

    limits = Limits(store_seconds=20)
    store = shared(limits)
    async with harness(ask, store, limits) as d:
        store.fail("append")
        await d.post(1)
        await asyncio.sleep(19)
        assert raised == []
        await asyncio.sleep(2)
        assert len(raised) == 1
        store.recover()
        await asyncio.sleep(1)


@engine_test
async def test_the_result_comes_after_all_messages_also_if_the_store_is_slow_or_away() -> None:
    for trouble in ("slow", "away", "loses replies"):
        store = shared()
        async with harness(Counter(150), store) as d:
            if trouble == "slow":
                store.delay("append", "settle", before=3, after=3)
            elif trouble == "away":
                store.fail("append", "settle")
            else:
                store.lose_replies("append", "settle")
            post = await d.post(1)
            await asyncio.sleep(10)
            store.recover()
            messages = await post.whole()
            assert numbers(messages) == list(range(150)), f"each once: {trouble}"
            assert messages[-1]["result"] == {}


@engine_test
async def test_what_a_cancelled_handler_has_sent_comes_before_the_end() -> None:
    store, handler = shared(), Counter()
    handler.goes_on.clear()
    async with harness(handler, store) as d:
        store.delay("append", before=2)
        post = await d.post(1)
        await settle_down()
        await d.cancel(1)
        messages = await post.whole()
        assert numbers(messages) == list(range(COUNT))
        assert messages[-1]["error"]["code"] == REQUEST_CANCELLED


@engine_test
async def test_a_store_that_stays_unavailable_fails_the_next_message_and_loses_none_that_was_taken() -> None:
    handler = Counter()

    async def later(exchange: Exchange) -> object:
        await handler.send(exchange, range(3))
        await asyncio.sleep(25)
        await handler.send(exchange, range(3, 4))
        store.recover()
        await handler.send(exchange, range(4, 6))
        return {}

    limits = Limits(store_seconds=20)
    store = shared(limits)
    async with harness(later, store, limits) as d:
        store.fail("append")
        messages = await (await d.post(1)).whole()
        [error] = handler.raised
        assert isinstance(error, StoreUnavailable)
        assert handler.sent == [0, 1, 2, 4, 5]
        assert numbers(messages) == handler.sent
        assert batches(store)[0] == 3, "a failed batch is sent again unchanged"


@engine_test
async def test_a_fenced_writer_finds_out_at_its_next_message_or_at_its_end() -> None:
    for sends_more in (True, False):
        handler = Counter()

        async def work(
            exchange: Exchange, handler: Counter = handler, sends_more: bool = sends_more
        ) -> object:
            await handler.send(exchange, range(1))
            await asyncio.sleep(1)
            if sends_more:
                await handler.send(exchange, range(1, 2))
            return {}

        store = shared()
        async with harness(work, store) as d:
            store.fail("append", "settle", error=Fenced())
            post = await d.post(1)
            await asyncio.sleep(2)
            assert handler.sent == [0]
            assert [type(error) for error in handler.raised] == [Fenced] * sends_more
            assert post.exchange.is_fenced
            await post.cut()


@engine_test
async def test_a_handler_waits_while_its_buffer_is_full() -> None:
    large = BYTES // 3
    for count, padding, expected in ((1_000, 0, 2 * EVENTS), (100, large, 2 * 2), (10, 2 * BYTES, 2)):
        store, handler = shared(), Counter(count, padding)
        async with harness(handler, store) as d:
            store.delay("append", before=5)
            post = await d.post(1)
            await asyncio.sleep(1)
            assert len(handler.sent) == expected, "one batch on its way, and one that waits"
            store.recover()
            assert numbers(await post.whole()) == list(range(count))
            assert max(batches(store)) <= EVENTS


@engine_test
async def test_a_handler_that_waits_for_room_fails_with_the_store() -> None:
    limits = Limits(store_seconds=20)
    store, handler = shared(limits), Counter(EVENTS * 2 + 1)
    async with harness(handler, store, limits) as d:
        store.fail("append")
        post = await d.post(1)
        await asyncio.sleep(19)
        assert (len(handler.sent), handler.raised) == (2 * EVENTS, [])
        await asyncio.sleep(2)
        assert [type(error) for error in handler.raised] == [StoreUnavailable]
        store.recover()
        assert numbers(await post.whole()) == list(range(EVENTS * 2))


@engine_test
async def test_messages_in_the_buffer_count_for_a_slow_reader_so_that_a_small_log_has_no_gap() -> None:
    for limits in (Limits(stream_events=10), Limits(stream_bytes=2_000)):
        store = shared(limits)
        async with harness(Counter(300), store, limits) as d:
            post = await d.post(1)
            post.may_read.clear()
            await settle_down()
            position = post.exchange.writer.position
            assert position is not None
            assert position.seq - post.exchange.writer.start.seq <= 10 or limits.stream_events > 10
            post.may_read.set()
            assert numbers(await post.whole()) == list(range(300))


@engine_test
async def test_an_unexpected_error_of_the_store_does_not_block_the_end() -> None:
    store = shared()
    async with harness(Counter(), store) as d:
        store.fail("append", error=ValueError("on purpose"), times=1)
        messages = await (await d.post(1)).whole()
        assert (numbers(messages), messages[-1]["result"]) == ([], {})
        [unsettled] = d.noted.named("exchange.unsettled")
        error = unsettled["error"]
        assert isinstance(error, StoreError)
        assert isinstance(error.__cause__, ValueError)


@engine_test
async def test_a_closed_session_ends_a_handler_whose_messages_are_in_the_buffer() -> None:
    store, handler = shared(), Counter()
    handler.goes_on.clear()
    async with harness(handler, store) as d:
        store.delay("append", before=5)
        post = await d.post(1)
        await settle_down()
        assert await d.engine.sessions.close(d.session, SessionInput.DELETED)
        messages = await post.whole()
        assert messages[-1]["error"]["code"] == REQUEST_CANCELLED
        assert post.exchange.task is not None
        with pytest.raises(asyncio.CancelledError):
            await post.exchange.task
        await asyncio.sleep(6)
