"""The file: its tables, its format version, and how a connection to it is opened.

The format's number is in the file (`user_version`), and a file of a later format is refused
with a clear error. An earlier one is upgraded when it is opened, one step after
another, in one transaction; there is no way back. An addition that older releases can ignore is no new
format: it is added where it is missing, and older releases continue to use the file, also side by side.
"""

import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Final

from limpet.errors import ConfigError
from limpet.stores.sqlite.failures import is_busy, is_surroundings, unavailable
from limpet.stores.sqlite_address import Synchronous

APPLICATION: Final = 0x4C696D31
"""`application_id`: tells our files from other programs' databases."""
BUSY_MS: Final = 10
"""How long SQLite itself waits for a lock. Its waits grow longer and longer, which is unfair to the process that has
waited longest, so it gives up early and is asked again."""
OPEN_MS: Final = 5_000
"""How long opening waits for a process that creates, upgrades or closes the same file."""
_SWITCHES: Final = 50
"""How often a new file is switched to WAL, while other processes do it too."""
_STATEMENTS: Final = 256
"""More than there are in this package: each is prepared once."""

_FIRST_TABLES: Final = """
CREATE TABLE total (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    sessions INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    tasks INTEGER NOT NULL DEFAULT 0,
    task_bytes INTEGER NOT NULL DEFAULT 0,
    incarnations INTEGER NOT NULL DEFAULT 0
);
INSERT INTO total (one) VALUES (1);

CREATE TABLE session (
    sid INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    principal TEXT NOT NULL,
    numbers BLOB NOT NULL,
    writer TEXT NOT NULL,
    number INTEGER NOT NULL,
    hint REAL NOT NULL,
    detached INTEGER NOT NULL
);
CREATE INDEX session_principal ON session (principal);
CREATE INDEX session_hint ON session (hint);
CREATE INDEX session_detached ON session (detached) WHERE detached = 1;

CREATE TABLE field (
    sid INTEGER NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (sid, name)
) WITHOUT ROWID;
CREATE INDEX field_finished ON field (value) WHERE name GLOB 'f:*';

CREATE TABLE event (
    sid INTEGER NOT NULL,
    stream TEXT NOT NULL,
    seq INTEGER NOT NULL,
    tag INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (sid, stream, seq)
) WITHOUT ROWID;

CREATE TABLE lingering (
    n INTEGER PRIMARY KEY,
    sid INTEGER NOT NULL,
    key TEXT NOT NULL,
    stream TEXT NOT NULL,
    head BLOB NOT NULL,
    bytes INTEGER NOT NULL,
    until REAL NOT NULL
);
CREATE INDEX lingering_key ON lingering (key, stream);

CREATE TABLE subscription (
    uri TEXT NOT NULL,
    sid INTEGER NOT NULL,
    PRIMARY KEY (uri, sid)
) WITHOUT ROWID;
CREATE INDEX subscription_session ON subscription (sid);

CREATE TABLE area (
    name TEXT NOT NULL PRIMARY KEY,
    principal TEXT NOT NULL,
    own INTEGER NOT NULL DEFAULT 0,
    ttl REAL,
    due REAL,
    head BLOB NOT NULL DEFAULT x'',
    held INTEGER NOT NULL DEFAULT 0,
    ops INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX area_due ON area (due) WHERE due IS NOT NULL;
CREATE INDEX area_principal ON area (principal) WHERE due IS NOT NULL;

CREATE TABLE cell (
    area TEXT NOT NULL,
    field TEXT NOT NULL,
    value BLOB NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (area, field)
) WITHOUT ROWID;

CREATE TABLE op (
    area TEXT NOT NULL,
    op TEXT NOT NULL,
    n INTEGER NOT NULL,
    result TEXT NOT NULL,
    PRIMARY KEY (area, op)
) WITHOUT ROWID;
CREATE INDEX op_age ON op (area, n);

CREATE TABLE task (
    key TEXT NOT NULL PRIMARY KEY,
    principal TEXT NOT NULL,
    version INTEGER NOT NULL,
    expires REAL NOT NULL,
    value BLOB NOT NULL,
    owner TEXT NOT NULL DEFAULT ''
);
CREATE INDEX task_principal ON task (principal);
CREATE INDEX task_owner ON task (owner) WHERE owner <> '';
CREATE INDEX task_expires ON task (expires);

CREATE TABLE ring (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    origin TEXT NOT NULL,
    target TEXT NOT NULL,
    at REAL NOT NULL,
    what TEXT NOT NULL,
    key TEXT NOT NULL,
    name TEXT NOT NULL
);

CREATE TABLE lease (
    owner TEXT NOT NULL PRIMARY KEY,
    replica TEXT NOT NULL,
    until REAL NOT NULL,
    since REAL NOT NULL,
    renewed REAL NOT NULL,
    seconds REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE inbox (
    n INTEGER PRIMARY KEY,
    replica TEXT NOT NULL,
    name TEXT NOT NULL,
    expires REAL NOT NULL,
    payload BLOB NOT NULL,
    UNIQUE (replica, name)
);

CREATE TABLE news (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    at REAL NOT NULL,
    event BLOB NOT NULL
);

CREATE TABLE secret (
    name TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL,
    until REAL
) WITHOUT ROWID;

CREATE TABLE closing (
    n INTEGER PRIMARY KEY,
    event TEXT NOT NULL UNIQUE,
    at REAL NOT NULL,
    record BLOB NOT NULL,
    reason TEXT NOT NULL
);

CREATE TABLE notice (
    replica TEXT NOT NULL PRIMARY KEY,
    until REAL NOT NULL,
    value BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE kept (
    principal TEXT NOT NULL PRIMARY KEY,
    bytes INTEGER NOT NULL
) WITHOUT ROWID;
"""

FIRST: Final = 1
"""The format of the first release."""
MIGRATIONS: Final = (_FIRST_TABLES,)
"""The first script makes a file of format FIRST, each further one a file of the next format. Only ever appended to."""
FORMAT: Final = FIRST + len(MIGRATIONS) - 1
"""The format of the files that this release writes."""

ADDITIONS: Final[Mapping[str, str]] = {}
"""Additions without a new format, by name: a table, an index, a trigger, or `table.column`, with the statement that
adds it.

An older release neither reads nor writes them, and may serve the same file: a column needs a default, and a missing
row or table must mean the same as before the addition.
"""


def prepare(
    path: Path, migrations: tuple[str, ...] = MIGRATIONS, additions: Mapping[str, str] = ADDITIONS
) -> None:
    """Create the file, or upgrade it, and check that it can be used.

    Raises:
        ConfigError: the file is not ours, of a later format, without columns of its format, or has no directory.
        StoreUnavailable: it cannot be opened or read.
    """
    if not path.parent.is_dir():
        raise ConfigError(
            f"the directory of the SQLite store does not exist: {path.parent} "
            "(sqlite:///x.db is relative to the working directory, sqlite:////x.db is absolute)"
        )
    try:
        # SQLite gives the files beside this one the same permissions.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(path, timeout=OPEN_MS / 1_000, isolation_level=None)
        try:
            _create(connection, path, migrations, additions)
            if lacking := sorted(_names_of(migrations) - _names(connection)):
                raise ConfigError(
                    f"{path} was made by another version of Limpet: it has no {lacking[0]}; name another file"
                )
        finally:
            connection.close()
    except (OSError, sqlite3.Error) as error:
        raise unavailable(error, path) from error


def _create(
    connection: sqlite3.Connection, path: Path, migrations: tuple[str, ...], additions: Mapping[str, str]
) -> None:
    """Upgrade an empty or older file to the newest format, with all additions."""
    # Works in an empty file only, and must come before everything else.
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    _use_wal(connection)
    newest = FIRST + len(migrations) - 1
    if _format(connection, path, newest) == newest and not _missing(connection, additions):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been faster.
        found = _format(connection, path, newest)
        for script in migrations[found and found - FIRST + 1 :]:
            for statement in script.split(";\n"):
                connection.execute(statement)
        for statement in _missing(connection, additions):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {newest}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL.

    If two processes do it at the same time, SQLite refuses one of them at once, without the time limit for locks. So
    this one waits for the other's lock by a transaction, which has the time limit, and tries again.
    """
    for attempt in range(_SWITCHES):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not is_busy(error) or attempt == _SWITCHES - 1:
                raise
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        else:
            return


def _missing(connection: sqlite3.Connection, additions: Mapping[str, str]) -> list[str]:
    """Return the statements for additions that the file does not have yet."""
    names = _names(connection)
    return [statement for name, statement in additions.items() if name not in names]


def _names(connection: sqlite3.Connection) -> set[str]:
    """Return the names of the tables, indexes and triggers of a file, and `table.column` of each column."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    for table in tables:
        columns = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        names.update(f"{table}.{column}" for (column,) in columns)
    return names


@cache
def _names_of(migrations: tuple[str, ...]) -> set[str]:
    """Return the names in a file of the newest format."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript("".join(migrations))
        return _names(connection)


def _format(connection: sqlite3.Connection, path: Path, newest: int) -> int:
    """Return the format of a file that is ours, or empty and of format 0."""
    [tables] = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    [application] = connection.execute("PRAGMA application_id").fetchone()
    if tables and application != APPLICATION:
        raise ConfigError(f"{path} is another program's database; name a separate file for the store")
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > newest:
        raise ConfigError(
            f"{path} was written by a later Limpet (format {found}, this one knows {newest}): "
            "upgrade this one, or name another file"
        )
    return found


def connect(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    """Open a prepared file for one thread.

    The last process that closes a file locks it for a moment, and so does one that repairs it: opening waits for it.

    Raises:
        StoreUnavailable: another file is in its place, without our tables.
    """
    connection = sqlite3.connect(
        # `rw`: a file that was deleted is an error, not a new and empty store.
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=OPEN_MS / 1_000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS,
    )
    try:
        connection.execute(f"PRAGMA synchronous = {synchronous.upper()}")
        connection.execute("PRAGMA journal_size_limit = 4194304")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("SELECT one FROM total").fetchone()
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error) and not is_surroundings(error):
            raise unavailable(error, path) from error
        raise
    return connection
