"""Properties of the memory store alone: it never waits, and it keeps nothing of ended sessions."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from typing_extensions import override

from limpet.config import Limits
from limpet.core.ledger import Ledger
from limpet.core.lifecycle import SessionInput
from limpet.stores.base import LINGER_SECONDS, Claim, Claimed, Refusal, one_process
from limpet.stores.memory import MemoryStore
from limpet.stores.memory.backend import EXCHANGE_BYTES, STREAM_BYTES, MemoryDocument
from limpet.testing import VirtualClock
from limpet.testing.store.bench import KEY, PRINCIPAL, record
from tests.support import async_test


async def _churn(store: MemoryStore, clock: VirtualClock) -> None:
    for number in range(2_000):
        await store.open(record(str(number)), evict=False)
        await store.close(str(number), SessionInput.DELETED)
        clock.advance(0.01)


def test_ended_sessions_leave_nothing_in_memory() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    asyncio.run(_churn(store, clock))
    assert (store._sessions, store._principals, store._subscribers) == ({}, {}, {})
    assert len(store._due) < 100


def test_a_session_that_breaks_and_returns_forever_has_one_deadline() -> None:
    async def conversation() -> int:
        clock = VirtualClock()
        store = MemoryStore(clock=clock)
        await store.open(record(idle=1e6, grace=1e6, lifetime=1e9), evict=False)
        for number in range(2_000):
            claimed = await store.claim(KEY, PRINCIPAL, Claim(1, f"s{number}", b""))
            assert isinstance(claimed, Claimed)
            await store.detach(KEY, f"s{number}", 0, None, broke=True)
            await store.settle(KEY, f"s{number}", claimed.fence, b"x", tag=number, keep=False)
            clock.advance(1)
        return len(store._due)

    assert asyncio.run(conversation()) < 100


def test_principals_that_were_refused_are_not_remembered() -> None:
    async def conversation() -> MemoryStore:
        store = MemoryStore()
        store._limits = type(store._limits)(sessions=1)
        await store.open(record(), evict=False)
        for number in range(100):
            assert await store.open(record(f"k{number}", f"p{number}"), evict=True) is Refusal.FULL
        return store

    assert len(asyncio.run(conversation())._principals) == 1


def test_a_closed_store_is_empty() -> None:
    async def conversation() -> str:
        store = MemoryStore()
        await store.open(record(), evict=False)
        await store.append(KEY, "", -1, [(1, b"data")])
        await store.aclose()
        return repr(store)

    assert asyncio.run(conversation()) == "<MemoryStore 0 sessions, 0 log bytes>"


class _Unread(dict[str, MemoryDocument]):
    """Sessions that may be counted, and not looked at one by one."""

    @override
    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all sessions were looked at")

    @override
    def values(self) -> Any:
        raise AssertionError("all sessions were looked at")


def test_a_session_of_an_anonymous_client_is_refused_without_a_look_at_the_others() -> None:
    async def conversation() -> object:
        store = MemoryStore(Limits(sessions=100))
        for number in range(100):
            assert await store.open(record(f"k{number}", ""), evict=False) == []
        store._sessions = _Unread(store._sessions)
        store._principals[""] = _Unread(store._principals[""])
        return await store.open(record("more", ""), evict=False)

    assert asyncio.run(conversation()) is Refusal.FULL


def test_sessions_claims_and_ends_need_no_await_unless_a_subclass_replaces_them() -> None:
    class Counting(MemoryStore):
        @override
        async def settle(self, *args: Any, **more: Any) -> None:
            await super().settle(*args, **more)

    class Opening(MemoryStore):
        @override
        async def open(self, *args: Any, **more: Any) -> Any:
            return await super().open(*args, **more)

    store, patched = MemoryStore(), MemoryStore()
    patched.claim = patched.claim_nowait  # type: ignore[method-assign, assignment]
    assert store.at_once is store
    assert Counting().at_once is None
    assert Opening().at_once is None
    assert patched.at_once is None


@async_test
async def test_a_reader_of_announcements_that_is_too_far_behind_learns_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(one_process, "_ANNOUNCEMENTS", 3)
    store = MemoryStore()
    begin = (await store.announced("")).cursor
    for number in range(10):
        await store.announce(str(number), b"")
    news = await store.announced(begin)
    assert (len(news.events), news.missed) == (3, True)
    assert await store.announced(news.cursor) == (news.cursor, [], False)


async def _kept(store: MemoryStore, name: str, *, reader: bool) -> None:
    """Let a call end with an answer that is kept; it has a reader or not."""
    claimed = await store.claim(KEY, PRINCIPAL, Claim(name, name, b""))
    assert isinstance(claimed, Claimed)
    await store.settle(KEY, name, claimed.fence, b"x" * 100, tag=1, keep=True)
    if not reader:
        await store.detach(KEY, name, 0, None, broke=False)


@async_test
async def test_a_store_that_forgets_its_sessions_keeps_nothing_of_them() -> None:
    store = MemoryStore()
    await store.open(record(), evict=False)
    await _kept(store, "read", reader=True)
    await store.close(KEY, SessionInput.DELETED)
    await store.open(record(), evict=False)
    await store.subscribe(KEY, "data://clock")
    await _kept(store, "left", reader=False)
    indexes = (store._principals, store._due, store._finished, store._subscribers, store._lingering._logs)
    assert all(indexes)
    store.forget_sessions()
    assert not any(indexes)


@async_test
async def test_a_command_that_changes_no_hint_adds_none() -> None:
    store = MemoryStore()
    await store.open(record(), evict=False)
    for _ in range(3):
        await store.find(KEY, PRINCIPAL)
    assert len(store._due) == 1


@async_test
async def test_streams_are_charged_with_their_bytes_and_their_objects_until_the_last_reader_has_left() -> (
    None
):
    clock = VirtualClock()
    store, account = MemoryStore(clock=clock), Ledger(1 << 30).account("one")
    await store.open(record(), evict=False)
    store.charge_to(KEY, account)
    await _kept(store, "a", reader=True)
    await _kept(store, "b", reader=False)
    assert account.used == 200 + 100 + 2 * STREAM_BYTES + 2 * EXCHANGE_BYTES
    await store.close(KEY, SessionInput.DELETED)
    assert account.used == 150 + STREAM_BYTES, "the answer that is read stays for a while"
    await store.open(record("later"), evict=False)
    clock.advance(LINGER_SECONDS)
    await store.close("later", SessionInput.DELETED)
    assert (account.ledger.used, account.used) == (0, 0)


@async_test
async def test_sessions_are_due_in_their_order_after_the_hints_were_made_again() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    for number in reversed(range(200)):
        await store.open(record(str(number), idle=1_000.0 + number, lifetime=1e9), evict=False)
    for number in range(150):
        await store.close(str(number), SessionInput.DELETED)
    for number in range(150, 300):
        await store.open(record(str(number + 200), idle=5_000.0 - number, lifetime=1e9), evict=False)
    clock.advance(1_150.0)
    assert await store.due() == ["150"]
