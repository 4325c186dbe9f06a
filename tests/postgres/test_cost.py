"""What calls cost: round trips, transactions of calls that come at once, and rows that stay."""

import asyncio

import pytest

from limpet.core.lifecycle import SessionInput
from limpet.core.rules.state import growth
from limpet.errors import StoreError
from limpet.stores.base import Attached, Claim, Claimed, WakeUp
from limpet.stores.postgres.store import PostgresStore
from limpet.testing import VirtualClock
from limpet.testing.store.bench import KEY, PRINCIPAL, Bench, record, tag_of
from tests.postgres.support import TABLES, opened, plain_call, stores
from tests.postgres_server import PostgresServer, needs_postgres
from tests.support import async_test, until

pytestmark = needs_postgres


@async_test
async def test_a_plain_call_takes_two_round_trips_and_calls_at_once_share_transactions(
    server: PostgresServer,
) -> None:
    async with stores(f"{server.url}?pool=2") as [store]:
        await store.renew(600)
        await opened(store)
        await plain_call(store, "first")
        before = store._lanes.round_trips
        for number in range(10):
            await plain_call(store, f"{number}")
        assert store._lanes.round_trips - before == 20
        keys = [f"k{number}" for number in range(32)]
        for key in keys:
            await store.open(record(key), evict=False)
        for key in keys:
            await store.find(key, PRINCIPAL)
        before = store._lanes.round_trips
        await asyncio.gather(*(store.find(key, PRINCIPAL) for key in keys))
        assert store._lanes.round_trips - before <= 6


@async_test
async def test_a_command_reads_no_rows_that_earlier_ones_of_its_session_have_left(
    server: PostgresServer,
) -> None:
    """PostgreSQL removes deleted rows only when it vacuums; a search by the session alone reads all of them."""
    calls, appends = 20, 10
    async with stores(server.url, count=2, namespace="reads") as [one, other]:
        schema = one._schema
        for store in (one, other):
            await store.renew(600)
        await opened(one)
        for table in ("field", "event"):
            server.tell(f'ALTER TABLE "{schema}".{table} SET (autovacuum_enabled = false)')
        for number in range(calls):
            # Each of them has to compare what the other one has written.
            await plain_call(one, f"{number}")
            await plain_call(other, f"{number}b")
        bench = Bench(one, VirtualClock())
        for number in range(calls):
            stream = f"s{number}"
            fence = await bench.streaming(stream, stream)
            for event in range(1, appends):
                await bench.append(stream, fence, event)
            await one.settle(KEY, stream, fence, b"{}", tag=tag_of(stream, appends))

    def searched(table: str) -> tuple[int, int]:
        index = f"schemaname = '{schema}' AND indexrelname = '{table}_pkey'"
        found = server.tell(f"SELECT idx_scan, idx_tup_read FROM pg_stat_user_indexes WHERE {index}")
        scans, read = found.split("|")
        return int(scans), int(read)

    # A connection reports what it has done when it ends.
    await until(lambda: searched("event")[0] >= calls * appends, every=0.2)
    table = f"FROM pg_stat_user_tables WHERE schemaname = '{schema}' AND relname = 'session'"
    assert server.tell(f"SELECT n_tup_upd > {4 * calls}, n_tup_hot_upd > 0.9 * n_tup_upd {table}") == "t|t"
    assert searched("field")[1] < 3 * searched("field")[0]
    assert searched("event")[1] < 3 * searched("event")[0]


@async_test
async def test_a_schema_without_sessions_becomes_empty(server: PostgresServer) -> None:
    clock = VirtualClock()
    async with stores(server.url, clock=clock) as [store]:
        await store.renew(10)
        await opened(store)
        await plain_call(store, "a")
        await store.subscribe(KEY, "data://x")
        await store.set_state(KEY, "n", b"1", op="o")
        await store.open_task("t", PRINCIPAL, b"{}", ttl=5)
        await store.open_area("handle", PRINCIPAL, 5)
        await store.announce("n", b"changed")
        await store.secret("s", b"x", seconds=5)
        await store.forward(store.replica, "f", b"", seconds=5)
        await store.remove_forwarded("f")
        closed = await store.close(KEY, SessionInput.DELETED)
        assert closed is not None
        await store.closing_reported(closed)
        await store.release()
        clock.advance(3_600)
        await store.sweep()
        await store.orphans()
        clock.advance(3_600)
        await store.orphans()
        rows = {
            table: server.tell(f'SELECT count(*) FROM "{store._schema}".{table}')
            for table in TABLES.split(", ")
        }
        assert {table: count for table, count in rows.items() if count != "0"} == {}
        sums = "sum(bytes), sum(sessions), sum(tasks), sum(task_bytes)"
        assert server.tell(f'SELECT {sums} FROM "{store._schema}".total') == "0|0|0|0"


@async_test
async def test_what_a_last_server_leaves_is_deleted_by_the_next_one(server: PostgresServer) -> None:
    clock = VirtualClock()
    async with stores(server.url, clock=clock, namespace="left") as [last]:
        await last.renew(10)
        await opened(last)
        assert isinstance(await last.claim(KEY, PRINCIPAL, Claim("a", "a", b"body")), Claimed)
        await last.set_state(KEY, "n", b"1", op="o")
        await last.open_task("t", PRINCIPAL, b"{}", ttl=5)
        await last.open_area("handle", PRINCIPAL, 5)
    clock.advance(86_400)
    next_one = PostgresStore(server.url, clock=clock, namespace="left", replica="next")
    try:
        for pause in [4, 4, 4, 4, 3_600] * 4:
            await next_one.renew(10)
            for orphan in await next_one.orphans():
                await next_one.reap(orphan, b"{}", tag=1)
            for closed in await next_one.sweep():
                await next_one.closing_reported(closed)
            clock.advance(pause)
        rows = {
            table: server.tell(f'SELECT count(*) FROM "{next_one._schema}".{table}')
            for table in TABLES.split(", ")
        }
        assert {table: count for table, count in rows.items() if count != "0"} == {"lease": "1"}
    finally:
        await next_one.aclose()


@async_test
async def test_a_damaged_session_is_removed_and_others_live(server: PostgresServer) -> None:
    async with stores(server.url) as [store]:
        await opened(store)
        await store.open(record("other"), evict=False)
        server.tell(
            f"UPDATE \"{store._schema}\".field SET value = 'x' WHERE name = 'r' AND sid = (SELECT min(sid) FROM \"{store._schema}\".session)"
        )
        assert await store.find(KEY, PRINCIPAL) is None
        assert await store.find("other", PRINCIPAL) is not None
        assert await store.sessions() == ["other"]


@async_test
async def test_a_damaged_state_is_forgotten(server: PostgresServer) -> None:
    async with stores(server.url) as [store]:
        await opened(store)
        await store.set_state(KEY, "f", b"x", op="1")
        server.tell(f"UPDATE \"{store._schema}\".area SET head = '\\xc1'")
        with pytest.raises(StoreError):
            await store.set_state(KEY, "g", b"y", op="2")
        assert await store.set_state(KEY, "g", b"y", op="3") == 1
        assert (await store.totals()).kept_bytes == growth(None, len("gy"))


@async_test
async def test_a_dead_replica_is_asked_for_its_work_for_a_while(server: PostgresServer) -> None:
    """A commit that has seen its lease may become visible after the lease has ended."""
    clock = VirtualClock()
    async with stores(server.url, 2, clock=clock) as [one, two]:
        await one.renew(10)
        await two.renew(10)
        for _ in range(6):
            clock.advance(2.5)
            await two.renew(10)
        dead = f"SELECT count(*) FROM \"{one._schema}\".lease WHERE replica = '{one.replica}' AND until = 0"
        await two.orphans()
        await two.orphans()
        assert server.tell(dead) == "1"
        clock.advance(61)
        await two.orphans()
        assert server.tell(dead) == "0"


@async_test
async def test_the_readers_of_a_process_are_named_to_it_from_time_to_time(server: PostgresServer) -> None:
    async with stores(server.url) as [store]:
        await store.renew(60)
        await opened(store)
        attached = await store.attach(KEY, PRINCIPAL, None, None)
        assert isinstance(attached, Attached)
        held: list[tuple[WakeUp, str, str]] = []
        store.wake = lambda kind, key, name: held.append((kind, key, name))
        stream = attached.record.standalone
        await store.orphans()
        assert held == [(WakeUp.HELD, KEY, stream)]
        await store.detach(KEY, stream, attached.generation, None, broke=False)
        held.clear()
        await store.orphans()
        assert held == []
