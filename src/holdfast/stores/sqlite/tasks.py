"""Operations on tasks: open_task, get_task, set_task, orphan_tasks."""

from collections.abc import Collection
from typing import Final

from holdfast.stores.base import Cell, OrphanTask, Refusal, WakeUp
from holdfast.stores.rules import check_task, has_task_room
from holdfast.stores.sqlite.transaction import Transaction

_AT_ONCE: Final = 20


def open_task(tx: Transaction, key: str, principal: str, value: bytes, *, ttl: float) -> Refusal | None:
    """Keep a new task if there is room for it."""
    sweep(tx)
    if tx.one("SELECT 1 FROM task WHERE key = ?", key):
        return None
    tx.must_live(tx.identity.owner)
    count = tx.one("SELECT tasks FROM total")
    own = tx.one("SELECT count(*) FROM task WHERE principal = ?", principal)
    is_full = count >= tx.limits.tasks or own >= tx.limits.tasks_per_principal
    if is_full or not _has_room(tx, principal, len(value)):
        return Refusal.FULL
    tx.execute(
        "INSERT INTO task (key, principal, version, expires, value, owner) VALUES (?, ?, 1, ?, ?, ?)",
        (key, principal, tx.now + ttl, value, tx.identity.owner),
    )
    _account(tx, 1, len(value))
    return None


def get_task(tx: Transaction, key: str, principal: str) -> Cell | None:
    """Return a task of this principal that has not expired."""
    row = tx.execute(
        "SELECT value, version FROM task WHERE key = ? AND principal = ? AND expires > ?",
        (key, principal, tx.now),
    ).fetchone()
    return None if row is None else Cell(*row)


def set_task(
    tx: Transaction, key: str, principal: str, value: bytes, *, version: int, ttl: float, ends: bool = False
) -> int:
    """Change a task that still has this version, and send TASK."""
    cell = get_task(tx, key, principal)
    if cell is None:
        return -1
    if cell != Cell(value, version + 1):
        if cell.version != version:
            return -1
        growth = max(len(value) - len(cell.value), 0)
        check_task(tx.limits, value, ends=ends, has_room=lambda: _has_room(tx, principal, growth))
        tx.execute(
            "UPDATE task SET value = ?, version = ?, expires = max(expires, ?), owner = iif(?, '', owner)"
            " WHERE key = ?",
            (value, version + 1, tx.now + ttl, ends, key),
        )
        _account(tx, 0, len(value) - len(cell.value))
    tx.wake(WakeUp.TASK, key, "")
    tx.wake_elsewhere(WakeUp.TASK, key, "")
    return version + 1


def _has_room(tx: Transaction, principal: str, size: int) -> bool:
    # SQLite reads the length of a blob without the blob, and a principal has few tasks.
    own = tx.one("SELECT coalesce(sum(length(value)), 0) FROM task WHERE principal = ?", principal)
    return has_task_room(tx.limits, size, store=tx.one("SELECT task_bytes FROM total"), own=own)


def orphan_tasks(tx: Transaction, known: Collection[str] | None = None) -> list[OrphanTask]:
    """Return tasks whose owner was declared dead, and own ones that are not `known`. An owner without a lease is dead too."""
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
