"""What SQLite's errors mean to whoever waits for the store."""

import sqlite3
from pathlib import Path
from typing import Final

from holdfast.errors import StoreUnavailable

_WAITED: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_LASTING: Final = {
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
}
"""A connection that said one of these is not asked again; a new one may fare better."""
_SURROUNDINGS: Final = _WAITED | _LASTING | {sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM}


def _code(error: BaseException) -> int:
    """Return the primary code of an SQLite error; −1 of anything else."""
    code = getattr(error, "sqlite_errorcode", -1)
    return code & 0xFF if code >= 0 else -1


def is_busy(error: BaseException) -> bool:
    """Tell whether somebody else had the file's lock for too long."""
    return _code(error) in _WAITED


def is_lasting(error: BaseException) -> bool:
    """Tell whether the connection is spoiled."""
    return _code(error) in _LASTING


def is_surroundings(error: BaseException) -> bool:
    """Tell whether disk, file or lock failed, and not the command."""
    return _code(error) in _SURROUNDINGS


def unavailable(error: BaseException, path: Path) -> StoreUnavailable:
    """Return what a caller is told: nothing was done, and it may work later."""
    return StoreUnavailable(f"the SQLite store {path.name} cannot be used now: {error}")
