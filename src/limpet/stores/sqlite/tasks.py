"""Tasks in the file."""

from collections.abc import Collection
from typing import Final

from limpet.core.rules.tasks import StoredTask, TaskBounds
from limpet.stores.base import Cell, OrphanTask, WakeUp
from limpet.stores.base.tasks import Swapped
from limpet.stores.sqlite.transaction import Transaction

_AT_ONCE: Final = 20
_OWN: Final = "SELECT count(*), coalesce(sum(length(value)), 0) FROM task WHERE principal = ?"
"""SQLite reads the length of a blob without the blob, and a principal has few tasks."""


def load(tx: Transaction, key: str) -> StoredTask | None:
    """Return a task, also one that has expired."""
    row = tx.execute("SELECT principal, value, version, expires, owner FROM task WHERE key = ?", (key,))
    found = row.fetchone()
    return None if found is None else StoredTask(*found)


def swap(
    tx: Transaction, key: str, before: StoredTask | None, after: StoredTask, most: TaskBounds | None
) -> Swapped:
    """Replace a task if it has still the same version, within the bounds, and send TASK."""
    if before is None:
        sweep(tx)
    found = load(tx, key)
    if found != before:
        return Swapped.DIFFERS
    if before is None:
        tx.must_live(after.owner)
    if most is not None:
        count, size = tx.execute("SELECT tasks, task_bytes FROM total").fetchone()
        own_count, own = tx.execute(_OWN, (after.principal,)).fetchone()
        if not most.allow(before, after, count, own_count, size, own):
            return Swapped.FULL
    tx.execute(
        "INSERT INTO task (key, principal, version, expires, value, owner) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET"
        " version = excluded.version, expires = excluded.expires, value = excluded.value, owner = excluded.owner",
        (key, after.principal, after.version, after.expires, after.value, after.owner),
    )
    _account(tx, before is None, len(after.value) - (len(before.value) if before else 0))
    if before is not None:
        tx.wake_elsewhere(WakeUp.TASK, key, "")
    return Swapped.DONE


def orphan_tasks(tx: Transaction, known: Collection[str] | None = None) -> list[OrphanTask]:
    """Return tasks whose owner was declared dead, and own ones that are not `known`.

    An owner without a lease is dead too.
    """
    mine = () if known is None else tx.execute("SELECT key FROM task WHERE owner = ?", (tx.identity.owner,))
    strays = [key for (key,) in mine if key not in (known or ())][:_AT_ONCE]
    found = tx.execute(
        "SELECT key, principal, owner, value, version FROM task WHERE expires > ? AND"  # noqa: S608 - question marks
        " (owner <> '' AND owner NOT IN (SELECT owner FROM lease WHERE until > 0)"
        f" OR key IN ({', '.join('?' * len(strays))})) LIMIT ?",
        (tx.now, *strays, _AT_ONCE),
    )
    return [
        OrphanTask(key, principal, owner, Cell(value, version))
        for key, principal, owner, value, version in found
    ]


def sweep(tx: Transaction) -> None:
    """Delete the tasks that have expired."""
    gone = tx.execute("DELETE FROM task WHERE expires <= ? RETURNING length(value)", (tx.now,)).fetchall()
    if gone:
        _account(tx, -len(gone), -sum(size for (size,) in gone))


def _account(tx: Transaction, tasks: int, size: int) -> None:
    tx.execute("UPDATE total SET tasks = tasks + ?, task_bytes = task_bytes + ?", (tasks, size))
