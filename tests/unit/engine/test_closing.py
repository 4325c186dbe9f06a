"""A session is closed twice, or its closing is answered late: its calls end at every replica nevertheless."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import pytest

from limpet.core.lifecycle import SessionInput
from limpet.engine.exchange import Exchange
from limpet.errors import StoreUnavailable
from limpet.stores.base import Closed
from tests.unit.engine.harness import PRINCIPAL, EngineHarness, echo, engine_test, settle_down
from tests.unit.engine.test_reaping import fleet

SOON = 2.0


class Runner:
    """Two replicas; the second one runs a call that ends only when it is cancelled."""

    def __init__(self, other: EngineHarness, here: EngineHarness, cancelled: asyncio.Event) -> None:
        self.other, self.here, self.cancelled = other, here, cancelled

    async def close(self, harness: EngineHarness) -> bool:
        """Close the session as a DELETE does."""
        session = await harness.engine.sessions.find(harness.key, PRINCIPAL)
        return await harness.engine.sessions.close(session, SessionInput.DELETED)

    async def has_ended(self) -> bool:
        """True if the handler was cancelled and nothing of the session is left."""
        async with asyncio.timeout(SOON):
            await self.cancelled.wait()
        await settle_down()
        return not self.here.engine.runtime.sessions


@asynccontextmanager
async def runner() -> AsyncIterator[Runner]:
    cancelled = asyncio.Event()

    async def hang(_: Exchange) -> object:
        try:
            await asyncio.sleep(100_000)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return {}

    async with fleet(echo, hang) as (other, here):
        await here.post(1)
        await settle_down()
        yield Runner(other, here, cancelled)


@engine_test
async def test_two_replicas_close_a_session_at_once_and_its_call_ends_where_it_runs() -> None:
    async with runner() as r:
        store = r.here.engine.runtime.store
        close = store.close

        async def second(*arguments: Any) -> Closed | None:
            assert await r.close(r.other)
            return await close(*arguments)

        with patch.object(store, "close", second, create=True):
            assert not await r.close(r.here)
        assert await r.has_ended()


@engine_test
async def test_the_answer_to_a_closing_is_lost_and_the_call_of_the_session_ends() -> None:
    async with runner() as r:
        store = r.here.engine.runtime.store
        close = store.close

        async def unanswered(*arguments: Any) -> Closed | None:
            assert await close(*arguments) is not None
            raise StoreUnavailable("no answer")

        with patch.object(store, "close", unanswered, create=True), pytest.raises(StoreUnavailable):
            await r.close(r.here)
        assert await r.has_ended()


@engine_test
async def test_a_session_stays_open_if_the_store_could_not_be_asked_to_close_it() -> None:
    async with runner() as r:

        async def away(*_: Any) -> Closed | None:
            raise StoreUnavailable("the store is unavailable")

        store = r.here.engine.runtime.store
        with patch.object(store, "close", away, create=True), pytest.raises(StoreUnavailable):
            await r.close(r.here)
        await asyncio.sleep(SOON)
        assert not r.cancelled.is_set()
        assert await r.close(r.here)


@engine_test
async def test_a_closing_that_is_reported_before_its_wake_up_ends_the_running_calls() -> None:
    async with runner() as r:
        with patch.object(r.here.engine.runtime.store, "on_wake", lambda *_: None):
            assert await r.close(r.other)
        r.here.engine.sessions.announce(Closed(r.here.session.record, SessionInput.DELETED))
        assert await r.has_ended()


async def send(exchange: Exchange) -> None:
    await exchange.notify("notifications/progress", {"progressToken": 1, "progress": 1})


async def ask(exchange: Exchange) -> None:
    await exchange.ask("roots/list", {})


@pytest.mark.parametrize("write", [send, ask])
@engine_test
async def test_a_call_that_finds_its_session_closed_before_the_wake_up_says_that_it_was_closed(
    write: Any,
) -> None:
    go = asyncio.Event()

    async def handler(exchange: Exchange) -> object:
        await go.wait()
        await write(exchange)
        return {}

    async with fleet(echo, handler) as (other, here):
        post = await here.post(1)
        await settle_down()
        with patch.object(here.engine.runtime.store, "on_wake", lambda *_: None):
            session = await other.engine.sessions.find(other.key, PRINCIPAL)
            await other.engine.sessions.close(session, SessionInput.DELETED)
        go.set()
        [end] = await post.whole()
        assert end["error"]["message"] == "Request cancelled: the session was closed"
