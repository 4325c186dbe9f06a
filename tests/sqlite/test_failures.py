"""Disks that are full, files that are locked or broken: nothing is half done, and the store comes back by itself."""

import asyncio
import json
import sqlite3
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from limpet.core.lifecycle import SessionInput
from limpet.core.stream import Position
from limpet.errors import SessionGone, StoreUnavailable
from limpet.stores.sqlite import SqliteStore, worker
from limpet.testing.store.bench import KEY, record
from tests.small_disk import small_disk
from tests.sqlite.child import ROOMY
from tests.sqlite.support import store_path
from tests.sqlite.test_processes import start
from tests.support import async_test, stays, until


async def written(path: Path) -> list[int]:
    store = SqliteStore(path, ROOMY)
    page = await store.read(KEY, record().standalone, Position(0, 0), 10_000, 1 << 26)
    await store.aclose()
    assert page is not None
    return [event.position.seq for event in page.events]


@async_test
async def test_a_file_at_its_size_limit_refuses_writes_until_it_may_grow() -> None:
    with store_path() as path:
        child = start("starve", path)
        found = json.loads(child.communicate()[0])
        assert child.returncode == 0
        assert found["living"] == [KEY]
        assert await written(path) == list(range(1, found["written"] + 1))


@async_test
async def test_a_full_disk_refuses_writes_and_accepts_those_that_fit() -> None:
    with small_disk("1m") as directory:
        await _fill_and_free(directory)


async def _fill_and_free(disk: Path) -> None:
    store = SqliteStore(disk / "store.db", ROOMY)
    await store.open(record(), evict=False)
    filler = disk / "filler"
    filler.write_bytes(b"x" * 400_000)
    count = 0

    async def fill() -> None:
        nonlocal count
        for number in range(1, 1_000):
            await store.append(KEY, "", -1, [(number, b"x" * 3_000)])
            count = number

    with pytest.raises(StoreUnavailable, match="full"):
        await fill()
    with pytest.raises(StoreUnavailable, match="full"):  # noqa: PT012 - small writes may still fit
        for _ in range(1_000):
            await store.prove()
    assert await store.sessions() == [KEY]
    filler.unlink()
    await store.prove()
    await store.append(KEY, "", -1, [(count + 1, b"fits")])
    await store.aclose()
    assert await written(disk / "store.db") == list(range(1, count + 2))


def _files(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}*"))


@async_test
async def test_a_deleted_file_refuses_everything_until_there_is_a_file_again() -> None:
    with store_path() as path:
        one, two = SqliteStore(path), SqliteStore(path)
        for store in (one, two):
            await store.renew(60)
            await store.prove()
        await one.open(record(), evict=False)
        assert len(_files(path)) == 3
        for file in _files(path):
            file.unlink()
        for store in (one, two):
            with pytest.raises(StoreUnavailable, match="the file does not exist any more"):
                await store.prove()
            with pytest.raises(StoreUnavailable, match="the file does not exist any more"):
                await store.renew(60)
        assert _files(path) == [], "a store that is in use makes no new file: its sessions are not in it"
        # A process that starts makes the file.
        three = SqliteStore(path)
        assert await three.sessions() == []
        for store in (one, two):
            with pytest.raises(StoreUnavailable, match="lease"):
                await store.prove()
            await store.renew(60)
            await store.prove()
        await one.open(record(), evict=False)
        assert await two.sessions() == [KEY] == await three.sessions(), "all of them use the same file"
        for store in (one, two, three):
            await store.aclose()


@async_test
async def test_a_file_that_is_replaced_is_used_if_it_is_a_store() -> None:
    with store_path() as path:
        store, other = SqliteStore(path), SqliteStore(path.with_name("other.db"))
        async with aclosing(store):
            await store.open(record(), evict=False)
            await other.open(record("s2"), evict=False)
            await other.aclose()
            path.write_bytes(b"")
            path.unlink()
            path.write_bytes(b"")
            with pytest.raises(StoreUnavailable, match="no such table"):
                await store.prove()
            path.with_name("other.db").rename(path)
            await store.prove()
            assert await store.sessions() == ["s2"]


@pytest.mark.parametrize("end", ["-wal", "-shm"])
@async_test
async def test_a_store_opens_its_file_again_if_one_of_the_files_beside_it_is_deleted(end: str) -> None:
    with store_path() as path:
        one, two = SqliteStore(path), SqliteStore(path)
        await one.open(record(), evict=False)
        assert await two.sessions() == [KEY]
        await two.aclose()
        beside = path.with_name(path.name + end)
        beside.unlink()

        async def is_there_again() -> bool:
            assert await one.sessions() == [KEY]
            return beside.exists()

        # The store looks at these files once a second.
        await until(is_there_again)
        await one.set_state(KEY, "f", b"1", op="1")
        other = SqliteStore(path)
        cell = await other.get_state(KEY, "f")
        assert cell is not None
        assert cell.value == b"1", "others read what was written"
        for store in (one, other):
            await store.aclose()


@async_test
async def test_a_locked_file_is_waited_for() -> None:
    with store_path() as path:
        store = SqliteStore(path)
        async with aclosing(store):
            await store.open(record(), evict=False)
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                waiting = asyncio.create_task(store.set_state(KEY, "f", b"1", op="1"))
                await stays(lambda: not waiting.done(), 0.1)  # SQLite gives up several times within it
                other.execute("COMMIT")
                assert await waiting == 1


@async_test
async def test_a_file_that_stays_locked_is_unavailable_until_it_is_free() -> None:
    with pytest.MonkeyPatch.context() as patch, store_path() as path:
        patch.setattr(worker, "TRIES", 3)
        store = SqliteStore(path)
        async with aclosing(store):
            await store.open(record(), evict=False)
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                tries = [store.add_state(KEY, "n", 1, op=str(number)) for number in range(10)]
                *errors, living = await asyncio.gather(*tries, store.sessions(), return_exceptions=True)
                assert all(isinstance(error, StoreUnavailable) for error in errors)
                assert living == [KEY], "a read waits for no lock"
                assert await store.get_state(KEY, "n") is None
            assert await store.add_state(KEY, "n", 1, op="0") == 1


@async_test
async def test_a_broken_file_is_unavailable_until_it_is_restored() -> None:
    with store_path() as path:
        store = SqliteStore(path)
        await store.open(record(), evict=False)
        await store.aclose()
        sound = path.read_bytes()
        store = SqliteStore(path)
        async with aclosing(store):
            path.write_bytes(sound[:100] + b"\xff" * (len(sound) - 100))
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    await store.sessions()
            path.write_bytes(sound)
            assert await store.sessions() == [KEY]


def test_a_file_that_is_not_a_database_is_refused_with_that_reason() -> None:
    with store_path() as path:
        path.write_bytes(b"not a database, and long enough to be read as one" * 100)
        with pytest.raises(StoreUnavailable, match=r"store\.db .* not a database"):
            SqliteStore(path)


@async_test
async def test_a_command_that_cannot_be_done_fails_alone() -> None:
    with store_path() as path:
        store = SqliteStore(path)
        async with aclosing(store):
            await store.open(record(), evict=False)
            good = [store.add_state(KEY, "n", 1, op=f"o{number}") for number in range(20)]
            bad = [store.add_state(KEY, "\ud800", 1, op="bad"), store.add_state("unknown", "n", 1, op="gone")]
            *counted, unwritable, gone = await asyncio.gather(*good, *bad, return_exceptions=True)
            assert sorted(map(str, counted)) == sorted(map(str, range(1, 21)))
            assert isinstance(unwritable, UnicodeEncodeError)
            assert isinstance(gone, SessionGone)


@async_test
async def test_a_failed_batch_sends_each_wake_up_once() -> None:
    with store_path() as path:
        store = SqliteStore(path)
        async with aclosing(store):
            wakeups: list[tuple[object, str, str]] = []
            store.bind(lambda *wakeup: wakeups.append(wakeup))
            for key in ("1", "2"):
                await store.open(record(key), evict=False)
            await asyncio.gather(
                store.close("1", SessionInput.DELETED),
                store.set_state("2", "\ud800", b"", op=""),
                store.close("2", SessionInput.DELETED),
                return_exceptions=True,
            )
            assert [key for _, key, _ in wakeups] == ["1", "2"]


@async_test
async def test_too_many_waiting_commands_and_a_closed_store_refuse_at_once() -> None:
    with pytest.MonkeyPatch.context() as patch, store_path() as path:
        patch.setattr(worker, "QUEUED", 3)
        store = SqliteStore(path)
        await store.open(record(), evict=False)
        tries = [store.announce(str(number), b"") for number in range(50)]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        done = [outcome for outcome in outcomes if outcome is None]
        assert 3 <= len(done) < 50
        assert sum(isinstance(outcome, StoreUnavailable) for outcome in outcomes) == 50 - len(done)
        assert (await store.announced("")).cursor == str(len(done))
        await store.aclose()
        await store.aclose()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.sessions()


@async_test
async def test_a_command_runs_even_if_its_caller_was_cancelled() -> None:
    with store_path() as path:
        store = SqliteStore(path)
        async with aclosing(store):
            await store.open(record(), evict=False)
            task = asyncio.create_task(store.add_state(KEY, "n", 1, op="1"))
            await asyncio.sleep(0)
            task.cancel()
            assert await store.add_state(KEY, "n", 1, op="2") == 2
