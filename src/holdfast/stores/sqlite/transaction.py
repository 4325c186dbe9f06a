"""One transaction: its statements, its moment, and the bells that ring once it is committed.

Every operation of the store is a plain function whose first parameter is a transaction. It looks,
decides, and only then writes: one that raises an error of this package has written nothing, so the
others of its batch stay as they are.
"""

import sqlite3
from typing import Any

from holdfast.config import Limits
from holdfast.stores.base import Ring

Rung = tuple[Ring, str, str]

_RINGS_KEPT = 10.0
"""Seconds. Whoever looks less often than this has lost bells, which costs time and never a message."""
_VACUUM_AFTER = 256
_VACUUM_PAGES = 1_024


class Transaction:
    """What an operation works with. It lives in the worker's thread."""

    __slots__ = ("_origin", "execute", "limits", "now", "rings")

    def __init__(self, connection: sqlite3.Connection, limits: Limits, origin: str) -> None:
        self.execute = connection.execute
        self.limits = limits
        self.now = 0.0
        self.rings: list[Rung] = []
        self._origin = origin

    def one(self, statement: str, *values: Any) -> Any:
        """Return the first column of the first row, or None."""
        row = self.execute(statement, values).fetchone()
        return None if row is None else row[0]

    def ring(self, what: Ring, key: str, name: str) -> None:
        """Ring here and in the other processes, once this is committed."""
        self.rings.append((what, key, name))

    def ring_elsewhere(self, rings: list[Rung]) -> None:
        """Leave bells for the other processes, as the last thing before the commit."""
        for what, key, name in dict.fromkeys(rings):
            self.execute(
                "INSERT INTO ring (origin, at, what, key, name) VALUES (?, ?, ?, ?, ?)",
                (self._origin, self.now, what.value, key, name),
            )

    def tidy(self) -> None:
        """Forget old bells and give free pages back to the file system."""
        self.execute("DELETE FROM ring WHERE at < ?", (self.now - _RINGS_KEPT,))
        if self.one("PRAGMA freelist_count") > _VACUUM_AFTER:
            # Each step of this statement frees one page, so all have to be fetched.
            self.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
