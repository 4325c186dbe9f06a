"""The engine moves an exchange through the states of its table, and carries out the actions of each step."""

import asyncio

import pytest

from limpet.config import Limits
from limpet.core.exchange import ExchangeState
from limpet.core.fate import Fate
from limpet.core.lifecycle import SessionInput
from limpet.engine.claims import Repeat
from limpet.engine.exchange import Exchange, SessionExchange
from limpet.errors import Busy
from limpet.testing import ScriptedBack
from tests.stores import ScriptedStore
from tests.unit.engine.harness import CALL, Post, engine_harness, engine_test, gate, settle_down

PROGRESS = "notifications/progress"


async def stubborn(exchange: Exchange) -> object:
    """Ignore a cancellation for a second."""
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        await asyncio.sleep(1)
    return {}


def seen(*posts: Post) -> list[ExchangeState]:
    return [post.exchange.state for post in posts]


@engine_test
async def test_a_plain_call_runs_and_is_settled() -> None:
    async with engine_harness() as d:
        post = await d.post(1)
        assert seen(post) == [ExchangeState.RUNNING]
        await post.whole()
        assert seen(post) == [ExchangeState.SETTLED]


@engine_test
async def test_a_call_waits_for_a_slot_with_and_without_a_stream_and_then_runs() -> None:
    wait, may_end = gate()
    async with engine_harness(ScriptedBack({CALL: wait}), limits=Limits(running=1)) as d:
        first, plain, open_ = await d.post(1), await d.post(2), await d.post(3)
        await open_.exchange.writer.open()
        assert seen(first, plain, open_) == [
            ExchangeState.RUNNING,
            ExchangeState.QUEUED,
            ExchangeState.QUEUED_OPEN,
        ]
        await first.exchange.writer.open()
        assert seen(first) == [ExchangeState.STREAMING]
        await d.cancel(1)
        await settle_down()
        assert seen(first, plain, open_) == [
            ExchangeState.SETTLED,
            ExchangeState.RUNNING,
            ExchangeState.QUEUED_OPEN,
        ]
        await d.cancel(2)
        await settle_down()
        assert seen(plain, open_) == [ExchangeState.SETTLED, ExchangeState.STREAMING], (
            "it has not forgotten its stream"
        )
        may_end.set()
        await open_.whole()


@engine_test
async def test_a_call_that_is_cancelled_in_the_queue_gives_its_place_up() -> None:
    wait, may_end = gate()
    async with engine_harness(ScriptedBack({CALL: wait}), limits=Limits(running=1, queued=1)) as d:
        first, second = await d.post(1), await d.post(2)
        with pytest.raises(Busy):
            await d.submit(3)
        await d.cancel(2)
        await second.whole()
        third = await d.post(3)
        assert seen(first, second, third) == [
            ExchangeState.RUNNING,
            ExchangeState.SETTLED,
            ExchangeState.QUEUED,
        ]
        may_end.set()
        await third.whole()
        assert len(d.back.handled) == 2, "the one that was cancelled never ran"


@engine_test
async def test_an_ended_call_is_held_while_its_handler_runs() -> None:
    store = ScriptedStore()
    async with engine_harness(ScriptedBack({CALL: stubborn}), store=store) as d:
        post, other = await d.post(1), await d.post(2)
        await settle_down()
        store.fail("settle")
        await d.cancel(1)
        await settle_down()
        assert seen(post) == [ExchangeState.ENDING_HELD], (
            "its end is decided, not stored, and its handler runs"
        )
        store.recover()
        await d.cancel(2)
        await asyncio.sleep(0.7)
        assert seen(post, other) == [ExchangeState.SETTLED_HELD, ExchangeState.SETTLED_HELD]
        assert d.session.gate.inside == 2
        await asyncio.sleep(1)
        assert seen(post, other) == [ExchangeState.SETTLED, ExchangeState.SETTLED]
        assert d.session.gate.inside == 0


@engine_test
async def test_a_handler_that_ends_before_its_end_is_stored_frees_its_slot_once() -> None:
    store = ScriptedStore()
    async with engine_harness(ScriptedBack({CALL: stubborn}), store=store) as d:
        post = await d.post(1)
        await settle_down()
        store.fail("settle")
        await d.cancel(1)
        await asyncio.sleep(2)
        assert seen(post) == [ExchangeState.ENDING]
        assert d.session.gate.inside == 0
        store.recover()
        await asyncio.sleep(1)
        assert seen(post) == [ExchangeState.SETTLED]
        assert d.session.gate.inside == 0


@engine_test
async def test_an_answer_that_could_not_be_written_is_kept_once() -> None:
    async with engine_harness() as d:
        exchange = await d.submit(1, digest=b"same")
        assert isinstance(exchange, SessionExchange)
        await settle_down()
        for _ in range(2):
            await d.engine.readers.close(exchange)
            assert (exchange.state, exchange.writer.fate) == (ExchangeState.SETTLED, Fate.KEPT)
        assert isinstance(await d.submit(1, digest=b"same"), Repeat)


@engine_test
async def test_an_answer_that_could_not_be_written_while_the_store_was_unavailable_is_kept_too() -> None:
    store = ScriptedStore()
    async with engine_harness(store=store) as d:
        store.fail("settle", "keep")
        exchange = await d.submit(1, digest=b"same")
        assert isinstance(exchange, SessionExchange)
        await settle_down()
        assert exchange.state is ExchangeState.ENDING
        assert exchange.writer.terminal is not None, "the client has its answer before the store has it"
        closing = asyncio.create_task(d.engine.readers.close(exchange))
        await settle_down()
        store.recover()
        await closing
        await asyncio.sleep(2)
        assert (exchange.state, exchange.writer.fate) == (ExchangeState.SETTLED, Fate.KEPT)
        assert isinstance(await d.submit(1, digest=b"same"), Repeat)


@engine_test
async def test_the_end_of_a_call_whose_reader_is_gone_is_stored_and_kept_in_one_step() -> None:
    wait, may_end = gate()
    async with engine_harness(ScriptedBack({CALL: wait})) as d:
        post = await d.post(1, digest=b"same")
        await post.cut()
        may_end.set()
        await settle_down()
        assert (seen(post), post.exchange.writer.fate) == ([ExchangeState.SETTLED], Fate.KEPT)
        assert isinstance(await d.submit(1, digest=b"same"), Repeat)


@engine_test
async def test_a_call_that_another_replica_has_ended_is_fenced() -> None:
    store = ScriptedStore()
    async with engine_harness(ScriptedBack({CALL: stubborn}), store=store) as d:
        running, queued = await d.post(1), await d.post(2)
        await settle_down()
        for post in (running, queued):
            # As another replica would: under the newest fence, with its own end.
            await store.settle(d.key, post.exchange.claim.stream, post.exchange.fence, b"{}", tag=7)
        await d.engine.sessions.end_work(d.session, "by the test")
        assert seen(running, queued) == [ExchangeState.FENCED_HELD, ExchangeState.FENCED_HELD]
        assert running.exchange.writer.terminal is None, "the end that was decided here is dropped"
        await asyncio.sleep(2)
        assert seen(running, queued) == [ExchangeState.FENCED, ExchangeState.FENCED]
        assert d.session.gate.inside == 0


@engine_test
async def test_closing_a_session_settles_its_calls_without_another_command_to_the_store() -> None:
    store = ScriptedStore()
    async with engine_harness(ScriptedBack({CALL: stubborn}), store=store) as d:
        post = await d.post(1)
        await settle_down()
        await d.engine.sessions.close(d.session, SessionInput.DELETED)
        assert seen(post) == [ExchangeState.SETTLED_HELD]
        assert "settle" not in store.log
