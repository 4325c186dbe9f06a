"""Messages of a replica of a later release: unreadable ones are skipped, and the rest is handled."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from limpet.auth.seal import Sealer
from limpet.config import Settings
from limpet.engine.caller import Caller
from limpet.engine.engine import Engine
from limpet.engine.keys import PURPOSE
from limpet.engine.sessionless_client import SessionlessClient
from limpet.errors import ParkedGone
from limpet.protocol.sessionless import RequestMeta
from limpet.protocol.subscriptions import Change, encode_change
from limpet.stores.sqlite import SqliteStore
from limpet.testing import NotingObserver, ScriptedBack, SeededRandom
from limpet.wire.jsonrpc import Request
from tests.sqlite.support import store_path
from tests.support import async_test, until

META = RequestMeta("2026-07-28", {}, {"name": "test"}, "")
LATER: tuple[bytes, ...] = (b"not JSON", b"{}", b'{"later":1}', b'[{"kind":"galaxies","name":""},null]')


@asynccontextmanager
async def replica() -> AsyncIterator[tuple[Engine, SqliteStore, NotingObserver]]:
    noted = NotingObserver()
    with store_path() as path:
        store = SqliteStore(path)
        engine = Engine(ScriptedBack({}), Settings(), store=store, random=SeededRandom(1), observer=noted)
        await engine.ensure_started()
        try:
            yield engine, store, noted
        finally:
            await engine.aclose()


async def until_noted(noted: NotingObserver, name: str, times: int) -> None:
    await until(lambda: len(noted.named(name)) >= times)


@async_test
async def test_unreadable_news_are_skipped_and_later_news_are_delivered() -> None:
    async with replica() as (engine, store, noted):
        wanted: dict[str, Any] = {"notifications": {"toolsListChanged": True}}
        listener = await engine.listening.open(
            SessionlessClient(META, "alice", engine.settings.limits),
            Request(1, "subscriptions/listen", wanted),
            Caller("alice"),
        )
        assert len(listener.messages()) == 1
        for number, event in enumerate(LATER):
            await store.announce(f"later-{number}", event)
        await store.announce("known", encode_change(Change("tools"), None))
        await until_noted(noted, "news.dropped", len(LATER))
        while not (told := listener.messages()):
            await listener.wake.wait(1)
            listener.wake.clear()
        assert len(told) == 1
        assert b"notifications/tools/list_changed" in told[0]
        engine.listening.leave(listener)


@async_test
async def test_a_request_that_cannot_be_read_is_taken_out_of_the_inbox_once() -> None:
    async with replica() as (_, store, noted):
        for number, payload in enumerate(LATER):
            assert await store.forward(store.replica, f"later-{number}", payload, seconds=60)
        await until_noted(noted, "forward.dropped", len(LATER))
        assert await store.inbox() == []


@async_test
async def test_a_state_that_a_later_release_sealed_with_the_shared_key_is_refused_with_the_one_error() -> (
    None
):
    async with replica() as (engine, _, _):
        later = Sealer(SeededRandom(2), PURPOSE, engine.sessionless.keys.sealer._keys[:1])
        for text in LATER:
            params = {"name": "x", "requestState": later.seal(text)}
            with pytest.raises(ParkedGone):
                engine.sessionless.go_on(META, Caller("alice"), Request(1, "tools/call", params))
