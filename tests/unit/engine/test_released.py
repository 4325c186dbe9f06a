"""A replica releases a session without local work: a task that begins to wait for its wake-ups still receives them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

import pytest

from limpet.engine.exchange import Exchange, SessionExchange
from limpet.errors import REQUEST_CANCELLED, DuplicateId, OutcomeUnknown
from tests.unit.engine.harness import PRINCIPAL, Json, engine_test, settle_down
from tests.unit.engine.test_reaping import fleet


def after(event: asyncio.Event, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return a call of the store that waits for an event first."""

    async def wait(*arguments: Any, **named: Any) -> Any:
        await event.wait()
        return await call(*arguments, **named)

    return wait


async def run(exchange: Exchange) -> object:
    await asyncio.sleep(exchange.request.params.get("seconds", 0))
    return {}


@engine_test
async def test_a_reader_receives_the_end_even_if_its_session_was_released_while_its_stream_began() -> None:
    async with fleet(run) as (d,):
        store, sessions = d.engine.runtime.store, d.engine.runtime.sessions
        may_begin, may_end = asyncio.Event(), asyncio.Event()
        with patch.object(store, "open_stream", after(may_begin, store.open_stream), create=True):
            exchange = await d.submit(1, params={"seconds": 1_000})
            assert isinstance(exchange, SessionExchange)
            await settle_down()
            beginning = asyncio.create_task(d.engine.readers.first(exchange))
            await settle_down()
            await d.cancel(1)
            await settle_down()
            await d.call(2)
            assert d.key not in sessions, (
                "nothing of it lives here: the call has ended, and its stream not begun"
            )
            with patch.object(store, "settle", after(may_end, store.settle), create=True):
                may_begin.set()
                reader = await beginning
                messages: list[Json] = []
                may_read = asyncio.Event()
                may_read.set()
                reading = asyncio.create_task(d.pump(reader, messages, may_read))
                await settle_down()
                may_end.set()
                began = asyncio.get_running_loop().time()
                await reading
        assert messages[-1]["error"]["code"] == REQUEST_CANCELLED
        assert asyncio.get_running_loop().time() == began, "the wake-up woke it, not its next keep-alive"
        assert d.key not in sessions


@engine_test
async def test_a_message_that_starts_no_exchange_leaves_no_local_session() -> None:
    async with fleet(run, run) as (one, two):
        sessions = two.engine.runtime.sessions
        post = await one.post(1, params={"seconds": 10}, digest=b"same")
        await settle_down()
        for method in ("notifications/initialized", "notifications/roots/list_changed"):
            await two.engine.sessions.notify(two.key, PRINCIPAL, method, {})
            await settle_down()
            assert not sessions, method
        await two.cancel(99)
        assert not sessions
        await two.answer({"id": "unknown"})
        assert not sessions
        with pytest.raises(DuplicateId):
            await two.submit(1, params={"seconds": 10}, digest=b"same")
        assert not sessions
        with pytest.raises(OutcomeUnknown):
            await two.engine.readers.repeat(two.engine.runtime.local_session(two.session.record), "unknown")
        assert not sessions
        assert "result" in (await post.whole())[-1]
