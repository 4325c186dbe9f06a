"""Commands of concurrent calls and streams share commits. Commits are counted, not timed."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from limpet.stores.base import Claim, Claimed
from limpet.stores.sqlite import SqliteStore
from limpet.testing.store.bench import KEY, PRINCIPAL, record
from tests.sqlite.support import store_path
from tests.support import async_test

IN_FLIGHT = 32
ROUNDS = 10


@pytest.fixture(autouse=True)
def _eager_threads() -> Iterator[None]:
    """Let the store's thread run between any two steps of the event loop: sharing must not depend on the interpreter."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


async def claimed(store: SqliteStore, stream: str) -> int:
    answer = await store.claim(KEY, PRINCIPAL, Claim(stream, stream, b"digest"))
    assert isinstance(answer, Claimed)
    return answer.fence


@async_test
async def test_32_calls_in_flight_share_one_commit_for_their_claims_and_one_for_their_ends() -> None:
    async def calls(store: SqliteStore, line: int) -> None:
        for number in range(ROUNDS):
            stream = f"{line}.{number}"
            await store.settle(KEY, stream, await claimed(store, stream), None)

    with store_path() as path:
        store = SqliteStore(path)
        await store.open(record(), evict=False)
        before = store._worker.commits
        await asyncio.gather(*(calls(store, line) for line in range(IN_FLIGHT)))
        commits = store._worker.commits - before
        await store.aclose()
    assert commits == 2 * ROUNDS, f"{commits} commits for {ROUNDS * IN_FLIGHT} calls"


@async_test
async def test_events_of_32_streams_that_are_appended_in_one_turn_share_one_commit() -> None:
    with store_path() as path:
        store = SqliteStore(path)
        await store.open(record(), evict=False)
        fences = [await claimed(store, str(line)) for line in range(IN_FLIGHT)]
        for line, fence in enumerate(fences):
            await store.open_stream(KEY, str(line), fence, 1)
        before = store._worker.commits
        events = [(number, b"{}") for number in range(2, 66)]
        await asyncio.gather(
            *(store.append(KEY, str(line), fence, events) for line, fence in enumerate(fences))
        )
        commits = store._worker.commits - before
        await store.aclose()
    assert commits == 1


@async_test
async def test_a_store_that_closes_carries_out_the_commands_of_this_turn() -> None:
    with store_path() as path:
        store = SqliteStore(path)
        opening = asyncio.ensure_future(store.open(record(), evict=False))
        await asyncio.sleep(0)
        await store.aclose()
        assert await opening == []
        again = SqliteStore(path)
        async with aclosing(again):
            assert await again.sessions() == [KEY]
