"""One transaction: its statements, its time, and the wake-ups that are sent once it is committed.

Every operation of the store is a plain function whose first parameter is a transaction. It reads, decides, and only
then writes. So an operation that raises an error of this package has written nothing, and the other operations of its
batch stay as they are.
"""

import sqlite3
from collections.abc import Callable
from typing import Any, Final

from limpet.config import Limits
from limpet.stores.base import WakeUp
from limpet.stores.base.replicas import lease_ended

AddressedWakeUp = tuple[WakeUp, str, str]

WAKEUP_SECONDS = 10.0
"""How long the wake-ups for other processes are kept. A process that misses some loses time, never a message."""
ALL_PROCESSES = ""
_IS_DEAD: Final = "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM lease WHERE owner = ? AND until > 0)"


class Identity:
    """The name of this process among those that share the file, and its incarnation."""

    __slots__ = ("owner", "replica")

    owner: str
    """The replica and its incarnation: the owner of work in the file."""
    replica: str

    def __init__(self, replica: str) -> None:
        self.rename(replica)

    def rename(self, replica: str) -> None:
        """Become another replica, which owns nothing yet."""
        self.replica = replica
        self.owner = f"{replica}.0"

    @property
    def incarnation(self) -> int:
        """The number of the lease; 0 where none was taken yet."""
        return int(self.owner.rpartition(".")[2])


Step = Callable[["Transaction"], Any]
"""An operation, with all its arguments except the transaction."""


class Transaction:
    """The object through which an operation reads and writes. It is used in the worker's thread only."""

    __slots__ = ("_away", "_on_bytes", "execute", "execute_many", "grown", "identity", "is_tidied", "limits", "now", "poisoned", "wakeups")  # fmt: skip

    def __init__(
        self,
        connection: sqlite3.Connection,
        limits: Limits,
        identity: Identity,
        on_bytes: Callable[[int], None],
    ) -> None:
        self._on_bytes = on_bytes
        self.execute: Final = connection.execute
        self.execute_many: Final = connection.executemany
        self.limits: Limits = limits
        self.identity: Identity = identity
        self.now: float = 0.0
        self.wakeups: list[AddressedWakeUp] = []
        """Of the operation that runs, for this process."""
        self.grown: int = 0
        """By how many bytes all logs have grown in this transaction."""
        self.is_tidied: bool = False
        """Something was swept: check whether the file can shrink."""
        self.poisoned: list[str] = []
        """Keys of sessions that were removed because they could not be read."""
        self._away: dict[tuple[str, AddressedWakeUp], None] = {}

    def begin(self) -> None:
        """Clear the data of the transaction before."""
        self._away.clear()
        self.grown = 0
        self.is_tidied = False
        self.poisoned = []

    def one(self, statement: str, *values: Any) -> Any:
        """Return the first column of the first row, or None."""
        row = self.execute(statement, values).fetchone()
        return None if row is None else row[0]

    def must_live(self, owner: str) -> None:
        """Check that an incarnation was not declared dead. Every operation that gives it work does this first.

        The lease of a dead owner without work is deleted, and reapers find orphans by leases. So work that a dead
        incarnation begins later would never be found.

        Raises:
            StoreUnavailable: it was declared dead, or gave its lease back.
        """
        if not owner.endswith(".0") and self.one(_IS_DEAD, owner):
            raise lease_ended()

    def wake(self, kind: WakeUp, key: str, name: str) -> None:
        """Send a wake-up in this process once this is committed."""
        self.wakeups.append((kind, key, name))

    def wake_elsewhere(self, kind: WakeUp, key: str, name: str, replica: str = ALL_PROCESSES) -> None:
        """Send a wake-up in another process, or in all others, once this is committed."""
        if replica != self.identity.replica:
            self._away[replica, (kind, key, name)] = None

    def count_bytes(self, change: int) -> None:
        """Count bytes of logs. Their total changes once, before the commit."""
        self.grown += change

    def may_keep(self, principal: str, more: int) -> bool:
        """Return True if a principal may keep so many more bytes."""
        kept = self.one("SELECT bytes FROM kept WHERE principal = ?", principal) or 0
        return more <= max(self.limits.principal_kept_bytes - kept, 0)

    def keep(self, principal: str, change: int) -> None:
        """Count kept bytes of a principal (`limpet.core.rules.state`)."""
        if change:
            self.execute(
                "INSERT INTO kept (principal, bytes) VALUES (?, ?)"
                " ON CONFLICT (principal) DO UPDATE SET bytes = bytes + excluded.bytes",
                (principal, change),
            )
        if change < 0:
            self.execute("DELETE FROM kept WHERE principal = ? AND bytes <= 0", (principal,))

    def finish(self) -> None:
        """Write the total of bytes, and the wake-ups for other processes, as the last step before the commit."""
        if self.grown:
            self._on_bytes(self.one("UPDATE total SET bytes = bytes + ? RETURNING bytes", self.grown))
        for replica, (kind, key, name) in self._away:
            self.execute(
                "INSERT INTO ring (origin, target, at, what, key, name) VALUES (?, ?, ?, ?, ?, ?)",
                (self.identity.replica, replica, self.now, kind.value, key, name),
            )

    def tidy(self) -> None:
        """Delete old wake-ups."""
        self.execute("DELETE FROM ring WHERE at < ?", (self.now - WAKEUP_SECONDS,))
        self.is_tidied = True
