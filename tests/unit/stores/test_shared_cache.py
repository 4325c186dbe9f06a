"""The documents that a process knows of a shared store: bounded in bytes, and never those of sessions with work."""

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core.ledger import Ledger
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
async def test_documents_are_charged_with_the_memory_of_their_decoded_records() -> None:
    store, ledger = DictStore(), Ledger(8_000_000)
    store.charge_all(ledger)
    own: dict[str, Any] = {str(at): {"a": {}} for at in range(900)}
    for number in range(20):
        await store.open(replace(record(f"k{number}"), capabilities={"experimental": own}), evict=False)
        assert await store.find(f"k{number}", PRINCIPAL) is not None
        assert ledger.used == store._cached <= ledger.total // known.CACHE_SHARE
    # Each record has 14 KB of JSON, and the decoded one some 300 KB.
    assert ledger.used / len(store._entries) > 200_000


@async_test
async def test_the_last_events_that_were_written_are_charged() -> None:
    store, ledger = DictStore(), Ledger(80_000_000)
    store.charge_all(ledger)
    await store.open(record("k"), evict=False)
    claimed = await store.claim("k", PRINCIPAL, Claim(1, "a", b""))
    assert isinstance(claimed, Claimed)
    await store.open_stream("k", "a", claimed.fence, 1)
    await store.append("k", "a", claimed.fence, [(2, b"x" * 100_000)])
    assert ledger.used > 150_000
    await store.settle("k", "a", claimed.fence, b"{}", tag=3)
    assert ledger.used < 150_000


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
