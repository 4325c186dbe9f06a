"""The documents that a process knows of a shared store: bounded in bytes, and never those of sessions with work."""

import pytest

from holdfast.stores.base import Claim, Claimed
from holdfast.stores.shared import known
from holdfast.testing.store.bench import PRINCIPAL, record
from holdfast.testing.store.dicts import DictStore
from tests.support import async_test

MOST = 200_000


@async_test
async def test_documents_are_forgotten_beyond_their_bytes_except_where_work_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known, "CACHE_BYTES", MOST)
    store = DictStore()
    await store.open(record("busy"), evict=False)
    claimed = await store.claim("busy", PRINCIPAL, Claim(1, "a", b""))
    assert isinstance(claimed, Claimed)
    for number in range(200):
        await store.open(record(f"k{number}"), evict=False)
        assert await store.find(f"k{number}", PRINCIPAL) is not None
        assert store._cached == sum(entry.weight for entry in store._entries.values()) <= MOST
    assert 10 < len(store._entries) < 100
    assert "busy" in store._entries
    await store.settle("busy", "a", claimed.fence, None)
    assert await store.find("k0", PRINCIPAL) is not None, "it is read again"


@async_test
async def test_a_large_answer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "CACHE_BYTES", MOST)
    store = DictStore()
    await store.open(record("k"), evict=False)
    assert isinstance(await store.claim("k", PRINCIPAL, Claim(1, "a", b"")), Claimed)
    await store.ask("k", "a.1", "a")
    before = store._cached
    await store.answer("k", PRINCIPAL, "a.1", b"d", b"x" * 50_000)
    assert store._cached >= before + 50_000
