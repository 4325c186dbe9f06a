"""The documents that a process knows of a shared store: bounded in bytes, and never those of sessions with work."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from typing_extensions import override

from limpet.config import Limits
from limpet.core.ledger import Ledger
from limpet.core.lifecycle import SessionInput
from limpet.core.records import Ending
from limpet.core.stream import Position
from limpet.stores.base import Attached, Claim, Claimed
from limpet.stores.shared import known
from limpet.stores.shared.commit import SLACK, Commit, Reply
from limpet.testing import VirtualClock
from limpet.testing.store.bench import PRINCIPAL, record
from tests.dicts import DictStore, Shelves
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
async def test_a_session_that_was_forgotten_during_a_command_counts_no_memory() -> None:
    store = DictStore()
    await store.open(record("k"), evict=False)
    command = store.apply("k", None, lambda _: store.forget_all())
    await command
    assert (store._cached, len(store._entries)) == (0, 0)


@async_test
async def test_a_commit_with_which_a_session_is_kept_longer_stores_until_when() -> None:
    clock, shelves = VirtualClock(), Shelves()
    store = DictStore(Limits(), clock, shelves)
    await store.open(record("k", idle=10 * SLACK, lifetime=100 * SLACK), evict=False)
    before = shelves.sessions["k"].number("expires")
    clock.advance(before - clock.now() + 1)
    assert await store.find("k", PRINCIPAL) is not None
    assert shelves.sessions["k"].number("expires") >= clock.now() + SLACK / 2


class FarStore(DictStore):
    """A store whose replies take a turn of the loop: commands that come meanwhile are combined."""

    @override
    async def stored(self, key: str, known: bytes = b"") -> Any:
        await asyncio.sleep(0)
        return await super().stored(key, known)

    @override
    async def sizes(self, key: str, stream: str) -> Any:
        await asyncio.sleep(0)
        return await super().sizes(key, stream)


async def with_two_streams(store: DictStore) -> list[int]:
    """Open a session with two exchanges that have a stream each; return their fences."""
    await store.open(record("k"), evict=False)
    fences = []
    for number, name in enumerate("ab"):
        claimed = await store.claim("k", PRINCIPAL, Claim(number, name, b""))
        assert isinstance(claimed, Claimed)
        fences.append(claimed.fence)
        await store.open_stream("k", name, claimed.fence, 1)
        await store.append("k", name, claimed.fence, [(2, b"x"), (3, b"y")])
    return fences


@async_test
async def test_commands_of_one_commit_that_write_two_streams_and_prove_places_in_both_come_to_their_end() -> (
    None
):
    store = FarStore()
    fences = await with_two_streams(store)
    store._entries["k"].unknown()
    async with asyncio.timeout(5):
        first, *others = await asyncio.gather(
            store.find("k", PRINCIPAL),
            *(store.append("k", name, fence, [(4, b"z")]) for name, fence in zip("ab", fences, strict=True)),
            *(store.attach("k", PRINCIPAL, name, Position(2, 2)) for name in "ab"),
        )
    assert first is not None
    assert all(isinstance(one, Attached) for one in others[2:])


class CountingStore(FarStore):
    """A store that notes how many events each commit adds."""

    def __init__(self) -> None:
        super().__init__()
        self.added: list[int] = []

    @override
    async def commit(self, key: str, commit: Commit) -> Reply:
        await asyncio.sleep(0)
        self.added.append(sum(map(len, commit.events.values())))
        return await super().commit(key, commit)


@async_test
async def test_waiting_commands_are_combined_up_to_a_number_of_bytes() -> None:
    store = CountingStore()
    [fence, _] = await with_two_streams(store)
    for size, expected in ((10, [1, 8]), (400_000, [1, 2, 2, 2, 2]), (2_000_000, [1] * 9)):
        store.added.clear()
        await asyncio.gather(
            *(store.append("k", "a", fence, [(size + number, b"x" * size)]) for number in range(9))
        )
        assert store.added == expected


@async_test
async def test_a_session_with_two_full_streams_is_closed() -> None:
    store = FarStore(Limits(stream_events=2))
    await with_two_streams(store)
    async with asyncio.timeout(5):
        assert await store.close("k", SessionInput.DELETED, Ending(b"{", b"}", 9)) is not None


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
