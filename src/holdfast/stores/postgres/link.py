"""The driver, asyncpg, behind the few calls that the store needs. No other module knows it.

`Link.connect` returns a connection on which statements run. `Link.listen` returns one on which wake-ups arrive.

**Poolers.** A connection through PgBouncer in transaction mode is another one after each statement. The driver prepares each statement once for a connection, and
PgBouncer translates that from version 1.21 on, with `max_prepared_statements` above 0. Where it does not, the driver must prepare
each statement again, which costs a second round trip. The first connection finds out (`_first`): behind a pooler the number of the process that
serves it is not the one that the server named at the start, and a prepared statement that is listed under the name that it was given was not translated.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import asyncpg

from holdfast.errors import StoreUnavailable
from holdfast.ports import Observer, Random
from holdfast.stores.credentials import Credentials
from holdfast.stores.postgres.refusals import POOLED, code_of, translated
from holdfast.stores.postgres.schema import LEAST_VERSION
from holdfast.stores.shared.answers import Later, Lost

CONNECT_SECONDS: Final = 3.0
_STATEMENTS: Final = 200
"""More than the store has: each is prepared once for a connection."""
_POOLED: Final = "HF001"
_STANDBY: Final = (
    "no server of the store's URL can be written: each is a read-only standby, or has read-only transactions; "
    "name the primary, or all hosts: postgres://a,b/database"
)
_SLOW: Final = (
    "a pooler is in the way that does not translate prepared statements, so each command takes two round trips: "
    "use PgBouncer 1.21 or later with max_prepared_statements above 0"
)
_BROKEN: Final = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.ConnectionFailureError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InternalClientError,
)


class PostgresConnection:
    """One connection."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    @property
    def is_closed(self) -> bool:
        """True if it cannot be used any more."""
        return bool(self._driver.is_closed())

    async def fetch(self, statement: str, arguments: Sequence[Any]) -> list[Sequence[Any]]:
        """Run a statement; return its rows.

        Raises:
            Lost: no answer came; it may have been executed.
            Later, StoreError: it was not executed.
        """
        rows: list[Sequence[Any]] = await self._ask(self._driver.fetch(statement, *arguments))
        return rows

    async def fetch_each(self, statement: str, many: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        """Run a statement for each of several arguments, in one transaction and one round trip; return the rows of all. As `fetch`."""
        rows: list[Sequence[Any]] = await self._ask(self._driver.fetchmany(statement, many))
        return rows

    async def script(self, text: str) -> None:
        """Run several statements in one transaction. As `fetch`."""
        await self._ask(self._driver.execute(text))

    async def _ask(self, work: Any) -> Any:
        try:
            return await work
        except _BROKEN as error:
            self.end()
            raise Lost(str(error)) from error
        except asyncpg.PostgresError as error:
            raise translated(error) from error
        except BaseException:
            # Cancelled: an answer that comes later would belong to the next statement.
            self.end()
            raise

    def end(self) -> None:
        """Close it at once."""
        self._driver.terminate()

    async def aclose(self) -> None:
        """Close it in order."""
        with suppress(Exception):
            await self._driver.close(timeout=1)

    async def receive(self, channels: Sequence[str], on_message: Callable[[str], None]) -> None:
        """Receive wake-ups from now on. As `fetch`."""

        def take(_: object, __: int, ___: str, message: object) -> None:
            on_message(str(message))

        for channel in channels:
            await self._ask(self._driver.add_listener(channel, take))


class Link:
    """Opens connections to one address."""

    def __init__(
        self, url: str, observer: Observer, random: Random, credentials: Credentials | None = None
    ) -> None:
        self._url = url
        self._credentials = credentials
        self._observer = observer
        self._random = random
        self.is_prepared: bool | None = None
        """Statements are prepared once for a connection; None: it is not known yet whether they can be."""
        chosen = parse_qs(urlsplit(url).query).get("target_session_attrs")
        self._servers = None if chosen else "read-write"

    async def connect(self) -> PostgresConnection:
        """Open a connection for statements.

        Raises:
            Lost: there is no server, or it does not answer.
            Later, StoreUnavailable: it refuses.
        """
        if self.is_prepared is None:
            return await self._first()
        return PostgresConnection(await self._open(_STATEMENTS if self.is_prepared else 0))

    async def listen(self) -> PostgresConnection:
        """Open a connection for wake-ups. As `connect`."""
        return PostgresConnection(await self._open(0))

    def doubt(self, error: BaseException | None) -> None:
        """After a failure: if a pooler is in the way that was not there before, find out again."""
        if code_of(error) in POOLED:
            self.is_prepared = None

    async def _open(self, statements: int) -> Any:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                user, password = (None, None) if self._credentials is None else await self._credentials()
                driver = await asyncpg.connect(
                    self._url,
                    user=user,
                    password=password,
                    timeout=CONNECT_SECONDS,
                    statement_cache_size=statements,
                    max_cached_statement_lifetime=0,
                    max_cacheable_statement_size=0,
                    target_session_attrs=self._servers,
                    server_settings={"application_name": "holdfast"},
                )
        except asyncpg.TargetServerAttributeNotMatched as error:
            raise Later(_STANDBY) from error
        except asyncpg.ClientConfigurationError as error:
            raise StoreUnavailable(f"the store's URL cannot be used: {error}") from error
        except ssl.SSLError as error:
            raise Lost("TLS failed") from error
        except asyncpg.InvalidAuthorizationSpecificationError as error:
            raise translated(error) from error
        except _BROKEN as error:
            raise Lost(str(error)) from error
        except asyncpg.PostgresError as error:
            raise translated(error) from error
        found = driver.get_server_version()
        if found.major < LEAST_VERSION:
            driver.terminate()
            raise StoreUnavailable(
                f"the store needs PostgreSQL {LEAST_VERSION} or later; this is {found.major}"
            )
        return driver

    async def _first(self) -> PostgresConnection:
        """Open a connection, and find out whether statements can be prepared once for it."""
        driver = await self._open(_STATEMENTS)
        connection = PostgresConnection(driver)
        try:
            if await self._ask_server(connection, driver.get_server_pid()):
                self.is_prepared = True
                return connection
            is_translated = await self._ask_pooler(connection, driver)
        except BaseException:
            connection.end()
            raise
        connection.end()
        self._observer.note("store.pooled", prepared=is_translated, advice="" if is_translated else _SLOW)
        self.is_prepared = is_translated
        return await self.connect()

    async def _ask_server(self, connection: PostgresConnection, pid: int) -> bool:
        """Return True if the process that serves the connection is the one that the server named at the start."""
        # Not a query: that would be a prepared statement.
        ask = f"DO $$BEGIN IF pg_backend_pid() <> {pid} THEN RAISE EXCEPTION USING ERRCODE = '{_POOLED}'; END IF; END$$"
        try:
            await connection.script(ask)
        except Exception as error:
            if code_of(error.__cause__) == _POOLED:
                return False
            raise
        return True

    async def _ask_pooler(self, connection: PostgresConnection, driver: Any) -> bool:
        """Return True if a pooler gives prepared statements names of its own: then it knows them."""
        name = f"holdfast_{self._random.token(6)}"

        async def listed() -> bool:
            async with driver.transaction():
                mine = await driver.prepare(
                    "SELECT count(*) FROM pg_prepared_statements WHERE name = $1", name=name
                )
                found = await mine.fetchval(name)
                if found:
                    await driver.execute(f'DEALLOCATE "{name}"')
                return bool(found)

        return not await connection._ask(listed())
