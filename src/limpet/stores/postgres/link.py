"""Opens connections with the driver, asyncpg: hosts, TLS, passwords, the server that can be written.

No other module knows the driver.

**Poolers.** A connection through PgBouncer in transaction mode is another one after each transaction, so no statement
can be prepared for it. The first connection finds out (`_finds_pooler`): behind a pooler the number of the process that
serves it is not the one that the server named at the start. Then each statement is sent in whole, still in one round
trip (`connection.py`); the server must read it again each time.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import asyncpg

from limpet.errors import StoreUnavailable
from limpet.ports import Observer
from limpet.stores.credentials import Credentials
from limpet.stores.postgres.connection import PostgresConnection
from limpet.stores.postgres.refusals import POOLED, code_of, translated
from limpet.stores.postgres.schema import LEAST_VERSION
from limpet.stores.postgres.wire import Description
from limpet.stores.shared.answers import Later, Lost

CONNECT_SECONDS: Final = 3.0
_FILES: Final = frozenset(("sslrootcert", "sslcert", "sslkey", "sslcrl"))
_POOLED: Final = "HF001"
_STANDBY: Final = (
    "no server of the store's URL can be written: each is a read-only standby, or has read-only transactions; "
    "name the primary, or all hosts: postgres://a,b/database"
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


class Link:
    """Opens connections to one address."""

    def __init__(self, url: str, observer: Observer, credentials: Credentials | None = None) -> None:
        self._url = url
        self._credentials = credentials
        self._observer = observer
        self.is_pooled: bool | None = None
        """A pooler in transaction mode is in the way; None: this is not known yet."""
        self._known: dict[str, Description] = {}
        self._options = dict(parse_qsl(urlsplit(url).query))
        self._servers = None if self._options.get("target_session_attrs") else "read-write"

    async def connect(self) -> PostgresConnection:
        """Open a connection.

        Raises:
            Lost: there is no server, or it does not answer.
            Later, StoreUnavailable: it refuses.
        """
        driver = await self._open()
        pid = driver.get_server_pid()
        connection = PostgresConnection(driver, self._known, is_shared=bool(self.is_pooled))
        if self.is_pooled is None:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    connection.is_shared = self.is_pooled = await _finds_pooler(connection, pid)
            except TimeoutError as error:
                raise Lost("the server does not answer") from error
            except BaseException:
                connection.end()
                raise
            if self.is_pooled:
                self._observer.note("store.pooled")
        return connection

    async def listen(self) -> PostgresConnection:
        """Open a connection for wake-ups. As `connect`."""
        return PostgresConnection(await self._open())

    def doubt(self, error: BaseException | None) -> None:
        """After a failure: if a pooler is in the way that was not there before, find out again."""
        if code_of(error) in POOLED:
            self.is_pooled = None

    async def _open(self) -> Any:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                user, password = (None, None) if self._credentials is None else await self._credentials()
                driver = await asyncpg.connect(
                    self._url,
                    user=user,
                    password=password,
                    timeout=CONNECT_SECONDS,
                    statement_cache_size=0,
                    target_session_attrs=self._servers,
                    server_settings={"application_name": "limpet"},
                )
        except asyncpg.TargetServerAttributeNotMatched as error:
            raise Later(_STANDBY) from error
        except asyncpg.ClientConfigurationError as error:
            raise StoreUnavailable(f"the store's URL cannot be used: {error}") from error
        except FileNotFoundError as error:
            # It does not name the file; a socket of the system that is absent is no parameter of these.
            if missing := self._missing_files():
                raise StoreUnavailable(
                    f"the store's URL names files that do not exist: {', '.join(missing)}"
                ) from error
            raise Lost(str(error)) from error
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

    def _missing_files(self) -> list[str]:
        named = {name: path for name, path in self._options.items() if name in _FILES}
        return [f"{name}={path}" for name, path in named.items() if not Path(path).exists()]


async def _finds_pooler(connection: PostgresConnection, pid: int) -> bool:
    """Return True if the process that serves the connection is not the one that the server named at the start."""
    # Not a query: that would be a prepared statement.
    ask = f"DO $$BEGIN IF pg_backend_pid() <> {pid} THEN RAISE EXCEPTION USING ERRCODE = '{_POOLED}'; END IF; END$$"
    try:
        await connection.script(ask)
    except Exception as error:
        if code_of(error.__cause__) == _POOLED:
            return True
        raise
    return False
