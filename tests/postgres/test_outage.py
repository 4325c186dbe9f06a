"""PostgreSQL that goes away, refuses, or loses answers: commands wait, count once, and the reason is clear."""

import asyncio
import signal
from random import randbytes

import pytest

from limpet.errors import StoreUnavailable
from limpet.ports import SystemClock
from limpet.stores.base import Claim, Claimed, Found, WakeUp
from limpet.stores.postgres import lanes, link
from limpet.stores.postgres.store import PostgresStore
from limpet.stores.shared.shelf import NoRoom
from limpet.testing.store.bench import KEY, PRINCIPAL, record
from tests.postgres.support import Noted, Proxy, Woken, opened, plain_call, stores
from tests.postgres_server import (
    FAST,
    PostgresServer,
    needs_postgres,
    postgres_home,
    postgres_pair,
    postgres_server,
    replicate,
)
from tests.small_disk import fill, small_disk
from tests.support import async_test, until

pytestmark = needs_postgres


def test_a_restart_costs_no_session_and_a_connection_that_was_cut_is_not_noticed() -> None:
    with postgres_server("fsync=off", "synchronous_commit=on") as server:
        asyncio.run(_restarted(server))


async def _restarted(server: PostgresServer) -> None:
    async with stores(server.url) as [store]:
        await opened(store)
        await plain_call(store, "before")
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'limpet'"
        server.tell(cut)
        await plain_call(store, "cut")
        server.tell(cut)
        idle = list(store._lanes._idle)
        await until(lambda: all(one.is_closed for one in idle))
        await plain_call(store, "cut and noticed")
        # A crash: nothing that was acknowledged is lost.
        server.stop()
        call = asyncio.create_task(plain_call(store, "while it is away"))
        await asyncio.sleep(0.1)
        await asyncio.to_thread(server.start)
        await call
        assert (await store.totals()).sessions == 1


@async_test
async def test_a_server_that_stays_away_is_unavailable_and_is_used_again_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "PATIENCE", 0.3)
    observer = Noted()
    with postgres_server() as server:
        async with stores(server.url, observer=observer) as [store]:
            await opened(store)
            server.stop(signal.SIGINT)
            with pytest.raises(StoreUnavailable, match="cannot be"):
                await plain_call(store, "a")
            assert observer.named("store.unreachable")
            with pytest.raises(StoreUnavailable):
                await store.prove()
            await asyncio.to_thread(server.start)
            await plain_call(store, "b")
            await store.prove()


@async_test
async def test_a_commit_whose_answer_was_lost_counts_once_and_still_rings(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy(server.port)
    async with (
        proxy as url,
        stores(url, 1, namespace="lost") as [one],
        stores(server.url, 2, namespace="lost") as [_, two],
    ):
        await opened(one)
        woken = Woken(two)
        await two.heard()
        # The wake-up must come by the bell.
        monkeypatch.setattr(two, "look_again", _no_poll)
        fence = (await _claimed(two, "a")).fence
        await two.open_stream(KEY, "a", fence, 1)
        # The cancellation is a commit of the first replica, for the second one.
        await one.find(KEY, PRINCIPAL)
        proxy.loses = b"replica0"
        await one.cancel(KEY, PRINCIPAL, "a")
        assert proxy.lost == 1
        await woken.until(lambda one: one == (WakeUp.CANCEL, KEY, "a"))
        proxy.loses = b"replica0"
        await plain_call(one, "b")
        assert proxy.lost == 2
        status = await two.look(KEY)
        assert status is not None
        assert status.running == 1


async def _no_poll() -> None:
    """Look for no lost wake-up."""


async def _claimed(store: PostgresStore, name: str) -> Claimed:
    claimed = await store.claim(KEY, PRINCIPAL, Claim(name, name, b"body"))
    assert isinstance(claimed, Claimed)
    return claimed


@async_test
async def test_a_server_that_does_not_answer_is_given_up(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy(server.port)
    async with proxy as url, stores(url) as [store]:
        await opened(store)
        monkeypatch.setattr(lanes, "PATIENCE", 0.2)
        monkeypatch.setattr(lanes, "SILENCE", 0.2)
        monkeypatch.setattr(link, "CONNECT_SECONDS", 0.3)
        proxy.stays_silent = True
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await plain_call(store, "a")
        monkeypatch.undo()
        proxy.stays_silent = False
        await plain_call(store, "b")


@pytest.mark.parametrize(
    ("state", "kind", "text"),
    [
        ("53100", NoRoom, "disk is full"),
        ("57014", StoreUnavailable, "statement_timeout"),
        ("55P03", StoreUnavailable, "lock"),
        ("42501", StoreUnavailable, "lacks a right"),
        ("25006", StoreUnavailable, "read-only standby"),
    ],
)
@async_test
async def test_each_refusal_has_its_own_reason(
    server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    kind: type[Exception],
    text: str,
) -> None:
    monkeypatch.setattr(lanes, "PATIENCE", 0.1)
    async with stores(server.url, namespace=f"refusal{state}") as [store]:
        await opened(store)
        server.tell(
            f"CREATE FUNCTION \"{store._schema}\".refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION USING ERRCODE = '{state}';"
            f' END$$; CREATE TRIGGER refuse BEFORE INSERT ON "{store._schema}".field FOR EACH ROW EXECUTE FUNCTION "{store._schema}".refuse()'
        )
        with pytest.raises(kind, match=text):
            await plain_call(store, "a")
        server.tell(f'DROP TRIGGER refuse ON "{store._schema}".field')
        await plain_call(store, "a")


@async_test
async def test_no_connection_left_is_said_and_fewer_connections_are_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "PATIENCE", 0.3)
    # Two are left for our role: the others are reserved for superusers.
    with postgres_server(
        *FAST, "max_connections=5", "superuser_reserved_connections=3", "max_wal_senders=0"
    ) as server:
        server.tell("CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app")
        url = server.url.replace("limpet@", "app@")
        async with stores(url) as [store], stores(url) as [other]:
            await opened(store)

            async def uses_both() -> bool:
                keys = [randbytes(8).hex() for _ in range(20)]
                await asyncio.gather(*(store.open(record(key), evict=False) for key in keys))
                return server.tell("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'") == "2"

            # One connection may have answered all before the second one was open.
            await until(uses_both)
            with pytest.raises(StoreUnavailable, match="max_connections"):
                await other.totals()


@async_test
async def test_a_failover_to_a_standby_is_followed_and_a_standby_alone_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "PATIENCE", 0.2)
    with postgres_pair() as (primary, standby):
        both = f"postgres://limpet@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres"
        async with stores(both, namespace="f") as [store]:
            await opened(store)
            await plain_call(store, "a")
            replicate(primary, standby)
            async with stores(standby.url, namespace="f") as [reader]:
                with pytest.raises(StoreUnavailable, match="read-only standby"):
                    await reader.totals()
            # Lost: a commit that the standby has not received.
            standby.tell("SELECT pg_wal_replay_pause()")
            fence = (await _claimed(store, "b")).fence
            primary.stop()
            with pytest.raises(StoreUnavailable):
                await store.settle(KEY, "b", fence, None)
            standby.tell("SELECT pg_promote()")
            await plain_call(store, "c")
            status = await store.look(KEY)
            assert status is not None
            await store.settle(KEY, "b", fence, None)


@async_test
async def test_of_commits_that_leave_together_one_that_is_refused_costs_the_others_nothing(
    server: PostgresServer,
) -> None:
    async with stores(f"{server.url}?pool=1") as [store]:
        keys = ["a", "bad", "c", "d"]
        for key in keys:
            await store.open(record(key), evict=False)
            await store.find(key, PRINCIPAL)
        schema = store._schema
        server.tell(
            f"CREATE FUNCTION \"{schema}\".refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION USING ERRCODE = '53100'; END$$;"
            f'CREATE TRIGGER refuse BEFORE UPDATE ON "{schema}".session FOR EACH ROW WHEN (new.key = \'bad\') EXECUTE FUNCTION "{schema}".refuse()'
        )
        found = await asyncio.gather(*(store.find(key, PRINCIPAL) for key in keys), return_exceptions=True)
        assert [isinstance(one, NoRoom) for one in found] == [False, True, False, False], found
        assert [one.record.key for one in found if isinstance(one, Found)] == ["a", "c", "d"]


@async_test
async def test_batches_of_two_processes_lock_sessions_in_one_order(server: PostgresServer) -> None:
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"
    before = server.tell(deadlocks)
    async with stores(f"{server.url}?pool=1", 2, namespace="order") as [one, other]:
        for key in ("a", "b", "alone"):
            await one.open(record(key), evict=False)
            await asyncio.gather(one.find(key, PRINCIPAL), other.find(key, PRINCIPAL))
        schema = one._schema
        # Both have locked their first session before either of them comes to its second one.
        server.tell(
            f'CREATE FUNCTION "{schema}".slow() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(0.3); RETURN new; END$$;'
            f'CREATE TRIGGER slow AFTER UPDATE ON "{schema}".session FOR EACH ROW WHEN (new.key <> \'alone\') EXECUTE FUNCTION "{schema}".slow()'
        )
        orders = ((one, ("alone", "a", "b")), (other, ("alone", "b", "a")))
        found = await asyncio.gather(*(store.find(key, PRINCIPAL) for store, keys in orders for key in keys))
        assert all(isinstance(one, Found) for one in found)
    # A connection reports what it has seen when it ends.
    connected = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'limpet'"
    await until(lambda: server.tell(connected) == "0", every=0.1)
    assert server.tell(deadlocks) == before


@async_test
async def test_a_full_disk_refuses_what_needs_room_and_calls_still_end() -> None:
    """The file of a table is the device that is always full: the system itself says that no space is left."""
    with postgres_server() as server:
        async with stores(server.url) as [store]:
            await opened(store)
            await plain_call(store, "before")
            file = server.data / server.tell(f"SELECT pg_relation_filepath('\"{store._schema}\".event')")
            aside = file.with_name("aside")
            server.stop(signal.SIGINT)
            file.rename(aside)
            file.symlink_to("/dev/full")
            server.start()
            fence = (await _claimed(store, "a")).fence
            await store.open_stream(KEY, "a", fence, 1)
            for _ in range(2):
                with pytest.raises(NoRoom, match="disk is full"):
                    await store.append(KEY, "a", fence, [(2, b"{}")])
            await store.settle(KEY, "a", fence, None)
            status = await store.look(KEY)
            assert status is not None
            assert status.running == 0
            server.stop(signal.SIGINT)
            file.unlink()
            aside.rename(file)
            server.start()
            fence = (await _claimed(store, "b")).fence
            start = await store.open_stream(KEY, "b", fence, 1)
            await store.append(KEY, "b", fence, [(2, b"{}")])
            page = await store.read(KEY, "b", start, 10, 1_000)
            assert page is not None
            assert [event.data for event in page.events] == [b"{}"]


@async_test
async def test_without_room_for_its_wal_the_server_crashes_and_nothing_that_was_acknowledged_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "PATIENCE", 0.3)
    with small_disk("16m") as disk, postgres_home() as home:
        server = PostgresServer(home, "fsync=off", "synchronous_commit=on")
        server.make("--wal-segsize=1", f"--waldir={disk / 'wal'}")
        server.start()
        ballast = disk / "ballast"
        acknowledged = 0
        try:
            async with stores(server.url) as [store]:
                await opened(store)
                fill(ballast)
                with pytest.raises(StoreUnavailable):  # noqa: PT012 - how many find room is not known
                    for number in range(1, 500):
                        await store.append(KEY, "", -1, [(number, randbytes(20_000))])
                        acknowledged = number
                assert "No space left on device" in server.log()
                assert "PANIC" in server.log()
                ballast.unlink()
                if server.has_ended():
                    server.stop()
                    await asyncio.to_thread(server.start)
                await until(server.answers, every=0.1)
                assert await store.sessions() == [KEY]
                last = await store.append(KEY, "", -1, [(500, b"fits")])
                assert last.seq in {acknowledged + 1, acknowledged + 2}
        finally:
            server.stop()


@async_test
async def test_a_statement_timeout_that_passes_costs_nothing(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock makes a commit wait, the server ends it after `statement_timeout`, and it is sent again."""
    monkeypatch.setattr(lanes, "PATIENCE", 60.0)
    observer = Noted()
    server.tell("CREATE ROLE hasty LOGIN SUPERUSER; ALTER ROLE hasty SET statement_timeout = '100ms'")
    async with stores(server.url.replace("limpet@", "hasty@"), observer=observer) as [store]:
        await opened(store)
        await plain_call(store, "before")
        blocker = await store._link.connect()
        await blocker.script(f'BEGIN; SET statement_timeout = 0; LOCK TABLE "{store._schema}".session')
        call = asyncio.create_task(plain_call(store, "waits"))
        await until(lambda: "canceling statement due to statement timeout" in server.log(), every=0.05)
        await blocker.script("COMMIT")
        await call
        blocker.end()
        assert not observer.named("store.refused")


@async_test
async def test_the_clock_of_the_server_counts_and_not_that_of_a_process(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SystemClock.wall
    async with stores(server.url, namespace="clocks") as [right]:
        monkeypatch.setattr(SystemClock, "wall", staticmethod(lambda: real() + 3_600))
        wrong = PostgresStore(server.url, namespace="clocks", replica="ahead")
        monkeypatch.undo()
        try:
            await wrong.renew(60)
            await right.renew(60)
            assert abs(wrong.now() - right.now()) < 60
            await wrong.open(record(KEY, idle=600.0), evict=False)
            await plain_call(wrong, "a")
            for store in (right, wrong):
                assert await store.sweep() == []
                assert await store.orphans() == []
                assert {name: left < 61 for name, left in (await store.replicas()).items()} == {
                    "replica0": True,
                    "ahead": True,
                }
        finally:
            await wrong.aclose()


@async_test
async def test_a_server_that_becomes_read_only_is_left_and_used_again_when_it_can_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "PATIENCE", 60.0)
    with postgres_server() as server:
        async with stores(server.url) as [store]:
            await opened(store)
            await plain_call(store, "before")
            connection = next(iter(store._lanes._idle))
            server.tell("ALTER SYSTEM SET default_transaction_read_only = on; SELECT pg_reload_conf()")
            await until(lambda: server.tell("SHOW transaction_read_only") == "on", every=0.05)
            call = asyncio.create_task(plain_call(store, "waits"))
            await until(lambda: "read-only transaction" in server.log(), every=0.05)
            server.tell("ALTER SYSTEM RESET default_transaction_read_only; SELECT pg_reload_conf()")
            await call
            assert connection.is_closed
