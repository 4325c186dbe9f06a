"""Records that Limpet did not write, and a Redis user with only the documented rights."""

import re
from contextlib import aclosing
from pathlib import Path

import pytest

from limpet.core.lifecycle import SessionInput
from limpet.errors import SessionGone, StoreError
from limpet.stores.base import Attached, Claim, Claimed, Refusal
from limpet.stores.redis.store import RedisStore
from limpet.testing import NotingObserver, VirtualClock
from limpet.testing.store.bench import IDLE, KEY, OTHER, PRINCIPAL, record
from tests.redis_server import RedisServer
from tests.support import async_test

MAIN = f"lp:1:default:{{{KEY}}}"


@async_test
async def test_a_session_whose_record_is_damaged_is_gone_and_harms_no_other(server: RedisServer) -> None:
    damages = [("HSET", MAIN, field, text) for field in ("n", "r", "m") for text in ("damaged", "")]
    for damage in (*damages, ("SET", MAIN, "a string")):
        server.tell("FLUSHALL")
        observer = NotingObserver()
        store = RedisStore(server.url, observer=observer)
        async with aclosing(store):
            opener = RedisStore(server.url)
            await opener.open(record(), evict=False)
            await opener.open(record(OTHER), evict=False)
            await opener.aclose()
            server.tell(*damage)
            assert await store.find(KEY, PRINCIPAL) is None
            assert await store.claim(KEY, PRINCIPAL, Claim(1, "a", b"")) is Refusal.NO_SESSION
            assert await store.close(KEY, SessionInput.DELETED) is None
            assert await store.sessions() == [OTHER]
            assert isinstance(await store.claim(OTHER, PRINCIPAL, Claim(1, "a", b"")), Claimed)
            assert len(observer.named("store.poisoned")) == 1


@async_test
async def test_a_sweep_passes_a_damaged_record(server: RedisServer) -> None:
    clock = VirtualClock()
    store = RedisStore(server.url, clock=clock)
    async with aclosing(store):
        await store.open(record(), evict=False)
        await store.open(record(OTHER), evict=False)
        server.tell("HSET", MAIN, "n", "damaged")
        clock.advance(IDLE)
        assert [closed.record.key for closed in await store.sweep()] == [OTHER]
        assert await store.sessions() == []


@async_test
async def test_the_rights_in_the_documents_are_enough(server: RedisServer) -> None:
    text = (Path(__file__).parents[2] / "docs" / "stores.md").read_text()
    found = re.search(r"An ACL user needs ((?:`[^`]*`,?\s*)+)", text)
    assert found is not None
    rights = re.sub(r"[`,\n]", " ", found[1]).split()
    assert server.tell("ACL", "SETUSER", "limpet", "on", ">word", *rights) == "OK"
    store = RedisStore(server.url.replace("redis://", "redis://limpet:word@"))
    async with aclosing(store):
        store.bind(lambda what, key, name: None)  # noqa: ARG005
        await store.heard()
        await store.renew(10)
        await store.open(record(), evict=True)
        claimed = await store.claim(KEY, PRINCIPAL, Claim(1, "a", b""))
        assert isinstance(claimed, Claimed)
        await store.open_stream(KEY, "a", claimed.fence, 1)
        await store.append(KEY, "a", claimed.fence, [(2, b"{}")])
        await store.add_state(KEY, "n", 1, op="o")
        await store.settle(KEY, "a", claimed.fence, b"last", tag=3)
        assert isinstance(await store.attach(KEY, PRINCIPAL, "a", None), Attached)
        await store.announce("a", b"{}")
        await store.check()
        closed = await store.close(KEY, SessionInput.DELETED)
        assert closed is not None
        await store.closing_reported(closed)


@async_test
async def test_a_session_whose_state_is_damaged_is_gone(server: RedisServer) -> None:
    observer = NotingObserver()
    store = RedisStore(server.url, observer=observer)
    async with aclosing(store):
        await store.open(record(), evict=False)
        await store.set_state(KEY, "f", b"x", op="1")
        server.tell("HSET", f"{MAIN}:k", "h", "damaged")
        for op, error in (("2", StoreError), ("3", SessionGone)):
            with pytest.raises(error):
                await store.set_state(KEY, "g", b"y", op=op)
        assert (await store.sessions(), (await store.totals()).kept_bytes) == ([], 0)
        assert len(observer.named("store.poisoned")) == 1
