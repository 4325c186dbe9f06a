"""Operations on state (`stores/shared/state.py`), and on areas: their places, and when they end.

The row of a session in `area` is made with its first field and has no `due`: it is deleted with the session.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from limpet.core.rules.areas import AreaBounds, is_own, use
from limpet.stores.base import REMEMBERED_OPS, Cell
from limpet.stores.shared.state import StateWrite, StoredState
from limpet.stores.sqlite.transaction import Transaction

_COUNT: Final = "SELECT count(*) FROM area WHERE due IS NOT NULL AND own = ?"
_CELL: Final = "SELECT value, version FROM cell WHERE area = ? AND field = ?"


class _Owner(msgspec.Struct):
    principal: str
    ttl: float
    due: float


def open_area(tx: Transaction, area: str, principal: str, ttl: float) -> bool:
    """Begin an area. A second call changes nothing."""
    sweep(tx)
    if tx.one("SELECT 1 FROM area WHERE name = ? AND due IS NOT NULL", area):
        return find_area(tx, area, principal)
    own = tx.one(f"{_COUNT} AND principal = ?", 0, principal)
    if not AreaBounds.of(area, principal, tx.limits).allow(tx.one(_COUNT, is_own(area)), own):
        return False
    facts = (area, principal, is_own(area), ttl, tx.now + ttl)
    tx.execute("INSERT OR IGNORE INTO area (name, principal, own, ttl, due) VALUES (?, ?, ?, ?, ?)", facts)
    return True


def find_area(tx: Transaction, area: str, principal: str) -> bool:
    """Return True if this principal has such an area; its time starts again."""
    row = tx.execute("SELECT principal, ttl, due FROM area WHERE name = ? AND due IS NOT NULL", (area,))
    found = None if (owner := row.fetchone()) is None else _Owner(*owner)
    if found is None or not use(found, principal, tx.now):
        return False
    tx.execute("UPDATE area SET due = ? WHERE name = ?", (found.due, area))
    return True


def _stored(tx: Transaction, name: str) -> tuple[str, bytes] | None:
    """Return whose state it is, and its head; None if there is no such session or area."""
    area = "SELECT principal, head FROM area WHERE name = ? AND (due IS NULL OR due > ?)"
    session = "SELECT principal, x'' FROM session WHERE key = ?"
    found: tuple[str, bytes] | None = (
        tx.execute(area, (name, tx.now)).fetchone() or tx.execute(session, (name,)).fetchone()
    )
    return found


def load(tx: Transaction, area: str, fields: Sequence[str], ops: Sequence[str]) -> StoredState | None:
    """Return the head, and these fields and results."""
    if (found := _stored(tx, area)) is None:
        return None
    cells = {name: Cell(*row) for name in fields if (row := tx.execute(_CELL, (area, name)).fetchone())}
    results = {op: tx.one("SELECT result FROM op WHERE area = ? AND op = ?", area, op) for op in ops}
    made = {op: int(result) for op, result in results.items() if result is not None}
    return StoredState(found[1], cells, made)


def apply(tx: Transaction, area: str, fields: Sequence[str], write: StateWrite) -> StoredState | bool | None:
    """Compare, and apply a write."""
    found = load(tx, area, fields, list(write.results))
    if found is None:
        return None
    if found.head != write.known or found.results or not found.cells.keys().isdisjoint(write.absent):
        return found
    [principal, _] = _stored(tx, area) or ("", b"")
    if not tx.may_keep(principal, write.grows):
        return False
    tx.keep(principal, write.grows)
    last: int = tx.one(
        "INSERT INTO area (name, principal, head, held, ops) VALUES (?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE"
        " SET head = excluded.head, held = held + excluded.held, ops = ops + excluded.ops RETURNING ops",
        area, principal, write.head, write.grows, len(write.results),
    )  # fmt: skip
    tx.execute_many(
        "INSERT INTO cell (area, field, value, version) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (area, field) DO UPDATE SET value = excluded.value, version = excluded.version",
        [(area, name, *cell) for name, cell in write.put.items()],
    )
    tx.execute_many("DELETE FROM cell WHERE area = ? AND field = ?", [(area, name) for name in write.delete])
    # Text: a counter may be larger than SQLite's integers.
    made = enumerate(write.results.items(), last - len(write.results) + 1)
    tx.execute_many(
        "INSERT INTO op (area, op, n, result) VALUES (?, ?, ?, ?)",
        [(area, op, number, str(result)) for number, (op, result) in made],
    )
    tx.execute("DELETE FROM op WHERE area = ? AND n <= ?", (area, last - REMEMBERED_OPS))
    return True


def sweep(tx: Transaction) -> None:
    """Forget the areas that are due."""
    for (name,) in tx.execute("SELECT name FROM area WHERE due <= ?", (tx.now,)).fetchall():
        forget(tx, name)


def forget(tx: Transaction, area: str) -> None:
    """Remove an area, or the state of a session, with everything of it."""
    row = tx.execute("DELETE FROM area WHERE name = ? RETURNING principal, held", (area,)).fetchone()
    if row is not None:
        tx.keep(row[0], -row[1])
        tx.execute("DELETE FROM cell WHERE area = ?", (area,))
        tx.execute("DELETE FROM op WHERE area = ?", (area,))
