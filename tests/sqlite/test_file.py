"""The file: its owner, its format, and which data survives a restart."""

import asyncio
import sqlite3
import stat
import threading
from contextlib import aclosing, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from limpet.core.lifecycle import SessionInput
from limpet.core.stream import Continuity
from limpet.errors import ConfigError
from limpet.stores.base import Attached, Cell, Claim, Closed, WakeUp
from limpet.stores.memory import MemoryStore
from limpet.stores.sqlite import SqliteStore, schema
from limpet.stores.sqlite_address import Address, parse
from limpet.stores.urls import open_store
from limpet.testing import VirtualClock
from limpet.testing.notes import NotingObserver
from limpet.testing.store.bench import GRACE, KEY, PRINCIPAL, Bench, data_of, record, tag_of
from tests.sqlite.support import counts, store_path
from tests.support import BOUND, async_test

FUTURE = "CREATE TABLE later (x INTEGER);\n"


@async_test
async def test_a_stream_continues_at_its_position_after_a_restart() -> None:
    with store_path() as path:
        store = SqliteStore(path)
        bench = Bench(store, VirtualClock())
        await bench.open()
        fence = await bench.streaming(1, "a")
        positions = [await bench.append("a", fence, number, b"%d" % number) for number in range(1, 6)]
        await store.set_state(KEY, "f", b"kept", op="1")
        await store.aclose()

        store = SqliteStore(path)
        async with aclosing(store):
            attached = await store.attach(KEY, PRINCIPAL, "a", positions[1])
            assert isinstance(attached, Attached)
            page = await store.read(KEY, "a", attached.cursor, 100, 1 << 20)
            assert page is not None
            assert (page.continuity, data_of(page), page.finished) == (
                Continuity.OK,
                [b"3", b"4", b"5"],
                False,
            )
            await store.settle(KEY, "a", fence, b"last", tag=tag_of("a", 6))
            end = await store.read(KEY, "a", positions[4], 100, 1 << 20)
            assert end is not None
            assert (data_of(end), end.finished) == ([b"last"], True)
            assert await store.get_state(KEY, "f") == Cell(b"kept", 1)
            assert await store.set_state(KEY, "f", b"other", op="1") == 1, (
                "sent again after the restart it counts once"
            )
            assert await store.get_state(KEY, "f") == Cell(b"kept", 1)


@async_test
async def test_grace_is_a_date_and_outlives_the_process() -> None:
    clock = VirtualClock()
    with store_path() as path:
        store = SqliteStore(path, clock=clock)
        await store.open(record(), evict=False)
        attached = await store.attach(KEY, PRINCIPAL, None, None)
        assert isinstance(attached, Attached)
        assert await store.detach(KEY, record().standalone, attached.generation, None, broke=True)
        await store.aclose()
        clock.advance(GRACE - 1)
        store = SqliteStore(path, clock=clock)
        async with aclosing(store):
            assert await store.sweep() == []
            clock.advance(1)
            assert [closed.reason for closed in await store.sweep()] == [SessionInput.GRACE_OVER]


async def _live_a_little(store: SqliteStore, key: str) -> None:
    await store.open(record(key), evict=False)
    await store.subscribe(key, "u:1")
    await store.set_state(key, "f", b"x" * 100, op="1")
    for number in range(5):
        stream = f"{key}-{number}"
        claimed = await store.claim(key, PRINCIPAL, Claim(number, stream, b""))
        fence = getattr(claimed, "fence")  # noqa: B009 - a refusal has none, and fails here
        await store.open_stream(key, stream, fence, 1)
        await store.ask(key, f"{stream}.1", stream)
        for event in range(20):
            await store.append(key, stream, fence, [(event + 2, b"x" * 10_000)])
        if number % 2:
            await store.settle(key, stream, fence, b"end", tag=99)
    await store.append(key, "", -1, [(1, b"x")])


@async_test
async def test_nothing_remains_of_sessions_that_ended_and_the_file_shrinks() -> None:
    clock = VirtualClock()
    with store_path() as path:
        store = SqliteStore(path, clock=clock)
        for number in range(10):
            await _live_a_little(store, f"k{number}")
        await store.open_area("handle", PRINCIPAL, 5.0)
        await store.set_state("handle", "f", b"x", op="1")
        await store.open_task("task", PRINCIPAL, b"x", ttl=5.0)
        await store.renew(5.0)
        await store.forward(store.replica, "request", b"x", seconds=5.0)
        await store.announce("news", b"x")
        full = _pages(path)
        closed = [await store.close(f"k{number}", SessionInput.DELETED) for number in range(10)]
        for one in closed:
            assert isinstance(one, Closed)
            await store.closing_reported(one)
        clock.advance(1_000)
        await store.release()
        for _ in range(5):
            assert await store.sweep() == []
        assert await store.orphans() == []
        await store.aclose()
        left = counts(path)
        assert left.pop("sqlite_sequence") > 0
        assert left == {"total": 1}
        assert _pages(path) < full // 4


def _pages(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        pages: int = connection.execute("PRAGMA page_count").fetchone()[0]
    return pages


@async_test
async def test_only_the_owner_may_read_the_file_and_those_beside_it() -> None:
    with store_path() as path:
        store = SqliteStore(path)
        async with aclosing(store):
            await store.open(record(), evict=False)
            files = sorted(path.parent.iterdir())
            assert [file.name for file in files] == ["store.db", "store.db-shm", "store.db-wal"]
            assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_file_of_a_later_format_is_refused_with_advice() -> None:
    with store_path() as path:
        schema.prepare(path, (*schema.MIGRATIONS, FUTURE))
        with pytest.raises(ConfigError, match=r"format 2, this one knows 1.*upgrade"):
            SqliteStore(path)


def test_a_file_that_lacks_a_column_of_its_format_is_refused_and_the_column_named() -> None:
    with store_path() as path:
        schema.prepare(path)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("ALTER TABLE area DROP COLUMN head")
        with pytest.raises(ConfigError, match=r"made by another version of Limpet: it has no area\.head"):
            SqliteStore(path)


@async_test
async def test_a_file_of_an_earlier_format_is_converted_with_its_content() -> None:
    with store_path() as path:
        store = SqliteStore(path)
        await store.open(record(), evict=False)
        schema.prepare(path, (*schema.MIGRATIONS, FUTURE))
        assert await store.sessions() == [KEY], "a process that has it open continues"
        await store.aclose()
        assert counts(path)["session"] == 1


ADDED = {
    "payload": "CREATE TABLE payload (sid INTEGER PRIMARY KEY, data BLOB NOT NULL)",
    "event.hue": "ALTER TABLE event ADD COLUMN hue TEXT NOT NULL DEFAULT 'grey'",
}


@async_test
async def test_columns_added_without_a_new_format_are_added_only_where_they_are_missing() -> None:
    with store_path() as path:
        store = SqliteStore(path)
        await _live_a_little(store, "before")
        for _ in range(2):
            schema.prepare(path, additions=ADDED)
        await _live_a_little(store, "after")
        await store.aclose()
        SqliteStore(path)
        with closing(sqlite3.connect(path)) as connection:
            hues = connection.execute("SELECT DISTINCT hue FROM event").fetchall()
            assert hues == [("grey",)], "a release that does not know it still uses the file"
            assert connection.execute("SELECT * FROM payload").fetchall() == []


@async_test
async def test_a_store_passes_over_columns_that_a_later_release_has_added_to_every_table() -> None:
    clock = VirtualClock()
    with store_path() as path:
        schema.prepare(path)
        with closing(sqlite3.connect(path)) as connection:
            names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
            for (name,) in names:
                if name != "sqlite_sequence":
                    connection.execute(f"ALTER TABLE {name} ADD COLUMN later TEXT NOT NULL DEFAULT 'x'")
        store, other = SqliteStore(path, clock=clock), SqliteStore(path, clock=clock, replica="other")
        async with aclosing(store), aclosing(other):
            await store.renew(5.0)
            await other.renew(5.0)
            await _live_a_little(store, KEY)
            await store.open_area("handle", PRINCIPAL, 5.0)
            assert await store.add_state("handle", "n", 2, op="1") == 2
            await store.open_task("task", PRINCIPAL, b"x", ttl=5.0)
            assert await store.secret("seal", b"first", seconds=60) == b"first"
            assert await other.forward(store.replica, "request", b"x", seconds=5.0)
            assert [name for name, _ in await store.inbox()] == ["request"]
            cursor = (await other.announced("")).cursor
            await store.announce("news", b"x")
            assert (await other.announced(cursor)).events == [b"x"]
            for _ in range(3):
                clock.advance(2.0)
                await other.renew(5.0)
            orphans = await other.orphans()
            assert {orphan.stream for orphan in orphans} == {f"{KEY}-{number}" for number in (0, 2, 4)}
            assert await other.reap(orphans[0], b"unknown", tag=7)
            assert isinstance(await other.close(KEY, SessionInput.DELETED), Closed)
            clock.advance(60.0)
            assert [closed.record.key for closed in await other.unreported_closings()] == [KEY]


@async_test
async def test_unknown_fields_of_a_later_release_are_kept_when_a_record_changes() -> None:
    with store_path() as path:
        store = SqliteStore(path)
        async with aclosing(store):
            await store.open(record(), evict=False)
            with closing(sqlite3.connect(path)) as connection:
                connection.execute(
                    "UPDATE field SET value = CAST(json_set(CAST(value AS TEXT), '$.hue', 'blue') AS BLOB) WHERE name = 'r'"
                )
                connection.execute(
                    "INSERT INTO field (sid, name, value) SELECT sid, 'later', x'01' FROM session"
                )
                connection.commit()
            await store.change(KEY, level="debug")
            await store.change(KEY, initialized=True)
            found = await store.find(KEY, PRINCIPAL)
            assert found is not None
            assert (found.record.level, found.record.initialized) == ("debug", True)
            with closing(sqlite3.connect(path)) as connection:
                [hue] = connection.execute(
                    "SELECT json_extract(CAST(value AS TEXT), '$.hue') FROM field WHERE name = 'r'"
                ).fetchone()
                later = connection.execute("SELECT value FROM field WHERE name = 'later'").fetchall()
            assert (hue, later) == ("blue", [(b"\x01",)])


@async_test
async def test_a_process_warns_once_when_a_later_release_has_upgraded_its_file() -> None:
    notes = NotingObserver()
    with store_path() as path:
        store = SqliteStore(path, observer=notes)
        async with aclosing(store):
            await store.renew(10)
            assert notes.named("store.formats") == []
            with closing(sqlite3.connect(path)) as later:
                later.execute(f"PRAGMA user_version = {schema.FORMAT + 1}")
            await store.renew(10)
            await store.renew(10)
            [note] = notes.named("store.formats")
            assert (note["format"], note["other"]) == (schema.FORMAT, schema.FORMAT + 1)


@async_test
async def test_a_wake_up_of_an_unknown_kind_is_ignored() -> None:
    with store_path() as path:
        store, other = SqliteStore(path), SqliteStore(path)
        async with aclosing(store), aclosing(other):
            wakeups: asyncio.Queue[WakeUp] = asyncio.Queue()
            store.bind(lambda what, key, name: wakeups.put_nowait(what))  # noqa: ARG005
            await store.sessions()
            with closing(sqlite3.connect(path)) as connection:
                connection.execute(
                    "INSERT INTO ring (origin, target, at, what, key, name) VALUES ('x', '', 0, 'later', '', '')"
                )
                connection.commit()
            await other.announce("news", b"x")
            async with asyncio.timeout(BOUND):
                assert await wakeups.get() is WakeUp.NEWS


def test_a_step_forward_that_fails_changes_nothing() -> None:
    with store_path() as path:
        schema.prepare(path)
        with pytest.raises(Exception, match="syntax"):
            schema.prepare(path, (*schema.MIGRATIONS, FUTURE + "NONSENSE;\n"))
        schema.prepare(path)
        assert "later" not in counts(path)


class RefusedOnce(sqlite3.Connection):
    """Refuses to switch to WAL once, as SQLite does while another process switches the same file."""

    switches = 0

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        if "WAL" in sql:
            RefusedOnce.switches += 1
            if RefusedOnce.switches == 1:
                refused = sqlite3.OperationalError("database is locked")
                refused.sqlite_errorcode = sqlite3.SQLITE_BUSY
                raise refused
        return super().execute(sql, values)


def test_processes_that_create_a_file_at_the_same_time_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=RefusedOnce))
    with store_path() as path:
        schema.prepare(path)
    assert RefusedOnce.switches == 2


def test_opening_waits_for_a_process_that_closes_the_file() -> None:
    with store_path() as path:
        schema.prepare(path)
        closing_process = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        closing_process.execute("PRAGMA locking_mode = EXCLUSIVE")
        closing_process.execute("BEGIN IMMEDIATE")
        ended = threading.Timer(20 * schema.BUSY_MS / 1_000, closing_process.close)
        ended.start()
        with closing(schema.connect(path, "normal")) as connection:
            assert connection.execute("PRAGMA busy_timeout").fetchone() == (schema.BUSY_MS,)
        ended.join()


def test_another_programs_database_is_left_alone() -> None:
    with store_path() as path:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE theirs (x)")
        with pytest.raises(ConfigError, match="another program's database"):
            SqliteStore(path)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]


def test_a_directory_that_does_not_exist_is_named() -> None:
    with store_path() as path, pytest.raises(ConfigError, match=r"does not exist: .*nowhere"):
        SqliteStore(path.parent / "nowhere" / "store.db")


def test_three_slashes_are_a_relative_path_and_four_an_absolute_one() -> None:
    assert parse("sqlite:////var/lib/a%20b.db") == Address(Path("/var/lib/a b.db"))
    assert parse("sqlite:/var/lib/a%20b.db") == Address(Path("/var/lib/a b.db"))
    assert parse("sqlite:///var/a.db").path == Path.cwd() / "var" / "a.db"
    assert parse("sqlite:store.db?synchronous=full") == Address(Path.cwd() / "store.db", "full")
    assert parse("sqlite:////x/store.db", "billing").path == Path("/x/store.billing.db")
    odd = [parse("sqlite:////x/store.db", name).path for name in ("a/b", "../b", "a b")]
    assert len(set(odd)) == 3
    assert {path.parent for path in odd} == {Path("/x")}


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:",
        "sqlite:///",
        "sqlite:////",
        "sqlite:///dir/",
        "sqlite://host/x.db",
        "sqlite://x.db",
        "sqlite:x.db?sync=off",
        "sqlite:///a#b.db",
    ],
)
def test_a_url_that_names_no_file_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="sqlite"):
        parse(url)


@async_test
async def test_two_namespaces_on_one_url_never_see_each_other() -> None:
    with store_path() as path:
        first, second = (open_store(f"sqlite:///{path}", namespace=name) for name in ("default", "other"))
        async with aclosing(first), aclosing(second):
            assert not isinstance(first, MemoryStore)
            await first.open(record(), evict=False)
            assert await second.sessions() == []
            assert await first.sessions() == [KEY]
