"""The way to PostgreSQL: URLs, rights, versions, TLS, passwords, poolers. One clear error for each wrong setup."""

import asyncio
import shutil
import signal
from pathlib import Path

import pytest

from limpet import Server
from limpet.errors import ConfigError, StoreUnavailable
from limpet.stores.base import Claim, Claimed, WakeUp
from limpet.stores.postgres import bell, lanes, link, schema
from limpet.stores.postgres.store import PostgresStore
from limpet.stores.postgres_address import parse, schema_of
from limpet.stores.urls import open_store
from limpet.testing.store.bench import KEY, PRINCIPAL
from tests.command_line import run
from tests.postgres.support import Noted, Woken, opened, plain_call, stores
from tests.postgres_server import (
    FAST,
    USER,
    PostgresServer,
    needs_pgbouncer,
    needs_postgres,
    pgbouncer,
    postgres_server,
)
from tests.redis.test_tls import Authority
from tests.support import async_test, until
from tests.unit.server.peer import serving

pytestmark = needs_postgres


# URLs


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("postgres:x", "two slashes"),
        ("postgres://h/db#x", "%23"),
        ("postgres://h/db?shema=x", "shema"),
        ("postgres://h/db?schema=a&schema=b", "twice"),
        ("postgres://h/db?schema=a-b", "schema="),
        ("postgres://h/db?schema=pg_x", "pg_"),
        ("postgres://h/db?pool=0", "pool="),
        ("postgres://h/db?pool=many", "pool="),
        ("postgres://h/db?listen=redis://h", "listen="),
    ],
)
def test_a_wrong_url_is_refused_and_says_what_is_wrong(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        open_store(url)


def test_parameters_of_the_driver_are_passed_on_and_ours_are_not() -> None:
    address = parse(
        "postgresql://u:p%40@a,b:1/db?sslmode=require&pool=3&schema=s&listen=postgres%3A%2F%2Fc%2Fdb",
        "orders",
    )
    assert address.url == "postgresql://u:p%40@a,b:1/db?sslmode=require"
    assert (address.listen, address.schema, address.pool) == ("postgres://c/db", "s_orders", 3)
    assert parse("postgres://h").listen == "postgres://h"


def test_each_namespace_has_a_schema_of_its_own() -> None:
    assert schema_of("limpet", "default") == "limpet"
    names = [schema_of("limpet", name) for name in ("my-server", "my.server", "x" * 64, "x" * 63, "ä")]
    assert len(set(names)) == 5
    assert all(len(name.encode()) <= 63 for name in names)


# Rights and versions


@async_test
async def test_a_role_without_rights_gets_the_statements_and_needs_few_rights(server: PostgresServer) -> None:
    server.tell("CREATE ROLE few LOGIN; REVOKE CREATE ON DATABASE postgres FROM PUBLIC")
    url = server.url.replace("limpet@", "few@")
    async with stores(url, namespace="few") as [store]:
        with pytest.raises(StoreUnavailable, match="limpet store sql"):
            await store.totals()
        server.tell(schema.script(store._schema, "few"))
        await opened(store)
        await plain_call(store, "a")
        await store.sweep()


@async_test
async def test_an_old_server_and_a_later_format_are_refused(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stores(server.url) as [store]:
        await opened(store)
        server.tell(f'UPDATE "{store._schema}".about SET format = 99')
        async with stores(server.url, namespace=store._namespace) as [older]:
            with pytest.raises(StoreUnavailable, match="a later Limpet"):
                await older.totals()
        monkeypatch.setattr(link, "LEAST_VERSION", 99)
        async with stores(server.url) as [other]:
            with pytest.raises(StoreUnavailable, match="needs PostgreSQL 99"):
                await other.totals()


@async_test
async def test_processes_that_start_at_once_make_one_schema_and_one_that_was_dropped_comes_back(
    server: PostgresServer,
) -> None:
    async with stores(server.url, 4) as all_of_them:
        await asyncio.gather(*(store.totals() for store in all_of_them))
        server.tell(f'DROP SCHEMA "{all_of_them[0]._schema}" CASCADE')
        await opened(all_of_them[0])
        assert (await all_of_them[3].totals()).sessions == 1


@async_test
async def test_an_older_release_keeps_its_functions_beside_ours(server: PostgresServer) -> None:
    async with stores(server.url) as [store]:
        await opened(store)
        name = store._schema
        server.tell(schema.functions(name).replace(f"_{schema.version()}", "_older"))
        found = server.tell(f"SELECT count(*) FROM pg_proc WHERE pronamespace = '\"{name}\"'::regnamespace")
        ours = schema.functions(name).count("CREATE FUNCTION")
        assert int(found) == 2 * ours
        await plain_call(store, "a")


# TLS and passwords


@async_test
async def test_tls_checks_the_server_and_passwords_come_from_where_libpq_looks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lanes, "PATIENCE", 0.1)
    authority, stranger = Authority(tmp_path, "authority"), Authority(tmp_path, "stranger")
    with postgres_server(*FAST) as server:
        files = []
        for path in authority.certify("server"):
            files.append(server.home / path.name)
            shutil.copy(path, files[-1])
            files[-1].chmod(0o600)
            if files[-1].owner() != server.data.owner():
                shutil.chown(files[-1], USER)
        server.tell("CREATE ROLE app LOGIN PASSWORD 'sEcret'; GRANT CREATE ON DATABASE postgres TO app")
        server.stop(signal.SIGINT)
        server.settings += ["ssl=on", f"ssl_cert_file={files[0]}", f"ssl_key_file={files[1]}"]
        rules = "hostssl all app 127.0.0.1/32 scram-sha-256\nhost all limpet 127.0.0.1/32 trust\n"
        (server.data / "pg_hba.conf").write_text(rules)
        server.start()
        base = f"postgres://app@127.0.0.1:{server.port}/postgres?sslmode="
        trusted = f"{base}verify-full&sslrootcert={authority.file}"
        assert "refuses the password" in await _refusal(f"{trusted}&password=wrong")
        assert "pg_hba.conf" in await _refusal(f"{base}disable&password=sEcret")
        assert "cannot be reached" in await _refusal(
            f"{base}verify-full&sslrootcert={stranger.file}&password=sEcret"
        )
        assert f"sslrootcert={tmp_path}/nothing" in await _refusal(
            f"{base}verify-full&sslrootcert={tmp_path}/nothing&password=sEcret"
        )
        await _works(f"{trusted}&password=sEcret")
        passwords = tmp_path / "pgpass"
        passwords.write_text(f"127.0.0.1:{server.port}:postgres:app:sEcret\n")
        passwords.chmod(0o600)
        await _works(f"{trusted}&passfile={passwords}")
        async with stores(trusted.replace("app@", ""), namespace="tls", credentials=_credentials) as [store]:
            await store.totals()
        monkeypatch.setenv("PGPASSWORD", "sEcret")
        await _works(trusted)


async def _credentials() -> tuple[str, str]:
    return "app", "sEcret"


async def _refusal(url: str) -> str:
    async with stores(url) as [store]:
        with pytest.raises(StoreUnavailable) as refused:
            await store.totals()
    assert "sEcret" not in str(refused.value)
    return str(refused.value)


async def _works(url: str) -> None:
    async with stores(url, namespace="tls") as [store]:
        await store.totals()


# Poolers


@needs_pgbouncer
@async_test
async def test_behind_pgbouncer_statements_are_prepared_each_time_and_wake_ups_are_polled_or_come_directly(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bell, "PATIENCE", 0.2)
    with pgbouncer(server) as url:
        observer = Noted()
        async with stores(url, 2, namespace="pooled", observer=observer) as [one, two]:
            await opened(one)
            assert len(observer.named("store.pooled")) == 1
            await asyncio.gather(*(plain_call(one, f"{number}") for number in range(40)))
            await plain_call(two, "there")
            woken = Woken(two)
            await _ring(one, two, woken)
            await until(lambda: bool(observer.named("store.bell")))
            assert observer.named("store.bell")[0]["way"] == "polling"
        direct = f"{url}?listen={server.url}"
        async with stores(direct, 2, namespace="pooled", observer=observer) as [one, two]:
            woken = Woken(two)
            await two.heard()
            assert observer.named("store.bell")[-1]["way"] == "listen"
            await one.tell(KEY, [(WakeUp.PROBE, "p", two.replica)])
            await woken.until(lambda one: one == (WakeUp.PROBE, KEY, "p"))


async def _ring(one: PostgresStore, two: PostgresStore, woken: Woken) -> None:
    """Cancel a call of one replica at another: polling finds it."""
    await two.renew(60)
    claimed = await two.claim(KEY, PRINCIPAL, Claim("waits", "waits", b""))
    assert isinstance(claimed, Claimed)
    await one.cancel(KEY, PRINCIPAL, "waits")
    await woken.until(lambda one: one == (WakeUp.CANCEL, KEY, "waits"))
    await two.settle(KEY, "waits", claimed.fence, None)


@async_test
async def test_a_pooler_that_appears_later_is_noticed(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stores(server.url) as [store]:
        await opened(store)
        await plain_call(store, "before")
        assert store._link.is_pooled is False
        # As if another server process served the connection now: it does not know the statements.
        await next(iter(store._lanes._idle)).script("DEALLOCATE ALL")
        monkeypatch.setattr(link, "_finds_pooler", _found)
        await plain_call(store, "a")
        assert store._link.is_pooled is True


async def _found(_: object, __: int) -> bool:
    return True


# The command line


def test_the_statements_are_printed_without_a_connection_for_the_schema_of_the_url() -> None:
    done = run("store", "sql", "postgres://nowhere/db?schema=s", "--namespace", "orders", "--role", "app")
    assert (done.status, done.out) == (0, schema.script("s_orders", "app"))
    assert 'TO "app"' in done.out
    refused = run("store", "sql", "redis://h")
    assert (refused.status, "is not a PostgreSQL store" in refused.err) == (2, True)


@async_test
async def test_a_wrong_setup_is_one_clear_error_when_a_server_starts(server: PostgresServer) -> None:
    server.tell("CREATE ROLE nothing LOGIN")
    url = server.url.replace("limpet@", "nothing@")
    with pytest.raises(StoreUnavailable, match="limpet store sql"):
        async with serving(Server("orders", store=url)):
            pass
