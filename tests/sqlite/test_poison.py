"""Rows that Limpet did not write: each costs its own session, and the log reports it."""

import asyncio
import sqlite3
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from limpet.core.lifecycle import SessionInput
from limpet.core.rules.state import growth
from limpet.errors import StoreError
from limpet.stores.base import Claim, Claimed, Refusal
from limpet.stores.shared.commit import SIZE
from limpet.stores.sqlite.store import SqliteStore
from limpet.testing import NotingObserver, VirtualClock
from limpet.testing.store.bench import IDLE, KEY, OTHER, PRINCIPAL, record
from limpet.testing.store.fleet import LEASE
from limpet.testing.store.limits import tight
from tests.sqlite.support import counts, store_path
from tests.support import async_test, until

DAMAGES = (b'{"key":"x"}', b"damaged", b"")


DAMAGE = {
    "session": "UPDATE field SET value = ? WHERE name = 'r' AND sid = (SELECT sid FROM session WHERE key = ?)",
    "numbers": "UPDATE session SET numbers = ? WHERE key = ?",
    "state": "UPDATE area SET head = ? WHERE name = ?",
    "closing": "UPDATE closing SET record = ? WHERE json_extract(CAST(record AS TEXT), '$.key') = ?",
}


def damage(path: Path, blob: bytes = b"damaged", table: str = "session") -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(DAMAGE[table], (blob, KEY)).rowcount == 1
        connection.commit()


@pytest.mark.parametrize("blob", DAMAGES)
@async_test
async def test_a_session_that_cannot_be_read_is_gone_and_harms_no_other(blob: bytes) -> None:
    observer = NotingObserver()
    with store_path() as path:
        store = SqliteStore(path, observer=observer)
        for key in (KEY, OTHER):
            await store.open(record(key), evict=False)
            assert isinstance(await store.claim(key, PRINCIPAL, Claim(1, "a", b"")), Claimed)
        await store.aclose()
        damage(path, blob)
        store = SqliteStore(path, observer=observer)
        assert await store.find(KEY, PRINCIPAL) is None
        assert await store.claim(KEY, PRINCIPAL, Claim(2, "b", b"")) is Refusal.NO_SESSION
        assert await store.close(KEY, SessionInput.DELETED) is None
        assert await store.sessions() == [OTHER]
        assert isinstance(await store.claim(OTHER, PRINCIPAL, Claim(2, "b", b"")), Claimed)
        assert [noted["session"] for noted in observer.named("store.poisoned")] == [KEY[:8]]
        await store.aclose()
        assert counts(path)["session"] == 1


@pytest.mark.parametrize(
    ("table", "blob"), [("session", b"damaged"), ("numbers", b"\0"), ("numbers", b"\xff" * SIZE)]
)
@async_test
async def test_a_sweep_and_a_listing_pass_a_session_that_cannot_be_read(table: str, blob: bytes) -> None:
    clock, observer = VirtualClock(), NotingObserver()
    with store_path() as path:
        store = SqliteStore(path, clock=clock, observer=observer)
        for key in (KEY, OTHER):
            await store.open(record(key), evict=False)
        await store.aclose()
        damage(path, blob, table)
        store = SqliteStore(path, clock=clock, observer=observer)
        async with aclosing(store):
            assert [one.record.key for one in (await store.sessions_after("", limit=9)).sessions] == [OTHER]
            clock.advance(IDLE)
            assert [closed.record.key for closed in await store.sweep()] == [OTHER]
            assert await store.sessions() == []
            assert len(observer.named("store.poisoned")) == 1


@async_test
async def test_a_session_whose_numbers_cannot_be_read_is_evicted_first() -> None:
    with store_path() as path:
        store = SqliteStore(path, limits=tight(sessions_per_principal=2))
        async with aclosing(store):
            for key in (OTHER, KEY):
                await store.open(record(key), evict=True)
            damage(path, b"", "numbers")
            evicted = await store.open(record("third"), evict=True)
            assert isinstance(evicted, list)
            assert [closed.record.key for closed in evicted] == [KEY]
            assert (await store.totals()).sessions == 2


@async_test
async def test_the_dead_are_looked_after_beside_a_session_that_cannot_be_read() -> None:
    clock = VirtualClock()
    with store_path() as path:
        dead, store = (SqliteStore(path, clock=clock, replica=name) for name in ("dead", "living"))
        async with aclosing(dead), aclosing(store):
            for one in (dead, store):
                await one.renew(LEASE)
            for key in (KEY, OTHER):
                await dead.open(record(key), evict=False)
                await dead.attach(key, PRINCIPAL, None, None)
                assert isinstance(await dead.claim(key, PRINCIPAL, Claim(1, "a", b"")), Claimed)
            damage(path)
            for _ in range(5):
                clock.advance(LEASE / 4)
                await store.renew(LEASE)
            orphans = await store.orphans()
            assert await asyncio.gather(*(store.reap(orphan, b"unknown", tag=9) for orphan in orphans)) == [
                True
            ]
            assert [orphan.session for orphan in orphans] == [OTHER]


@async_test
async def test_a_closing_that_cannot_be_read_does_not_block_the_others() -> None:
    clock, observer = VirtualClock(), NotingObserver()
    with store_path() as path:
        store = SqliteStore(path, clock=clock, observer=observer)
        async with aclosing(store):
            for key in (KEY, OTHER):
                await store.open(record(key), evict=False)
                await store.close(key, SessionInput.DELETED)
            damage(path, table="closing")
            clock.advance(60)
            assert [closed.record.key for closed in await store.unreported_closings()] == [OTHER]
            clock.advance(60)
            assert [closed.record.key for closed in await store.unreported_closings()] == [OTHER]
            assert len(observer.named("store.poisoned")) == 1


@async_test
async def test_the_thread_of_the_file_lives_through_a_failure_of_listening() -> None:
    observer = NotingObserver()
    with store_path() as path:
        store = SqliteStore(path, observer=observer)
        await store.open(record(), evict=False)
        failing = iter([True])
        listen = store._worker._listen

        def fail_once() -> None:
            if next(failing, False):
                raise LookupError("on purpose")
            listen()

        store._worker._listen = fail_once  # type: ignore[method-assign]
        async with aclosing(store):
            await until(lambda: bool(observer.named("loop.failed")))
            assert await store.find(KEY, PRINCIPAL) is not None


@async_test
async def test_a_state_that_cannot_be_read_is_forgotten() -> None:
    observer = NotingObserver()
    with store_path() as path:
        store = SqliteStore(path, observer=observer)
        async with aclosing(store):
            await store.open(record(), evict=False)
            await store.set_state(KEY, "f", b"x", op="1")
            damage(path, b"\xc1", "state")
            with pytest.raises(StoreError):
                await store.set_state(KEY, "g", b"y", op="2")
            assert await store.set_state(KEY, "g", b"y", op="3") == 1
            assert await store.get_state(KEY, "f") is None
            assert (await store.totals()).kept_bytes == growth(None, len("gy"))
            assert len(observer.named("store.poisoned")) == 1
