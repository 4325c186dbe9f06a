"""Errors of SQLite, translated for the callers of the store."""

import sqlite3
from pathlib import Path
from typing import Final

from limpet.errors import StoreUnavailable

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
"""A connection with one of these errors is closed; a new one may work."""
_SURROUNDINGS: Final = _WAITED | _LASTING | {sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM}


def _code(error: BaseException) -> int:
    """Return the primary code of an SQLite error; −1 of anything else."""
    code = getattr(error, "sqlite_errorcode", -1)
    return code & 0xFF if code >= 0 else -1


def is_busy(error: BaseException) -> bool:
    """Return True if another process held the file's lock for too long."""
    return _code(error) in _WAITED


def is_lasting(error: BaseException) -> bool:
    """Return True if the connection cannot be used any more."""
    return _code(error) in _LASTING


def is_surroundings(error: BaseException) -> bool:
    """Return True if disk, file or lock failed, and not the command."""
    return _code(error) in _SURROUNDINGS


def unavailable(error: BaseException, path: Path) -> StoreUnavailable:
    """Return the error for the caller: nothing was done, and it may succeed later."""
    reason = (
        error
        if path.exists()
        else "the file does not exist any more; restore it, or start this process again"
    )
    return StoreUnavailable(f"the SQLite store {path.name} cannot be used now: {reason}")
