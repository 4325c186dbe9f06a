"""Operations on state: the fields of a session, or of an area that belongs to a principal.

A session's row in `area` is made with its first field and has no `due`: it is deleted with the session.
"""

from typing import Any, Final

import msgspec

from holdfast.errors import SessionGone
from holdfast.stores.areas import OWN, is_own, most_areas, most_bytes, most_of_one
from holdfast.stores.base import REMEMBERED_OPS, Cell
from holdfast.stores.kept import too_much
from holdfast.stores.rules import added, state_growth
from holdfast.stores.sqlite import kept
from holdfast.stores.sqlite.transaction import Transaction

_COUNT: Final = "SELECT count(*) FROM area WHERE due IS NOT NULL AND (substr(name, 1, ?) = ?) = ?"
_KINDS: Final = {own: (len(OWN), OWN, own) for own in (False, True)}
"""The arguments that select the areas of principals (True) or of handles."""
_ALIVE: Final = "(due IS NULL OR due > ?)"


def open_area(tx: Transaction, area: str, principal: str, ttl: float) -> bool:
    """Begin an area. A second call changes nothing."""
    sweep(tx)
    if tx.one("SELECT 1 FROM area WHERE name = ? AND due IS NOT NULL", area):
        return find_area(tx, area, principal)
    own_most = most_of_one(area, principal, tx.limits)
    if own_most is not None and tx.one(f"{_COUNT} AND principal = ?", *_KINDS[False], principal) >= own_most:
        return False
    if tx.one(_COUNT, *_KINDS[is_own(area)]) >= most_areas(area, tx.limits):
        return False
    _insert(tx, area, principal, ttl, tx.now + ttl)
    return True


def find_area(tx: Transaction, area: str, principal: str) -> bool:
    """Return True if this principal has such an area; its time starts again."""
    found = tx.one(
        "UPDATE area SET due = ? + ttl WHERE name = ? AND principal = ? AND due > ? RETURNING 1",
        tx.now, area, principal, tx.now,
    )  # fmt: skip
    return found is not None


def get_state(tx: Transaction, area: str, field: str) -> Cell | None:
    """Return a field."""
    _the_area(tx, area)
    return _cell(tx, area, field)


def set_state(
    tx: Transaction, area: str, field: str, value: bytes | None, *, op: str, version: int | None = None
) -> int:
    """Set or delete a field if it has the expected version; return the new version or −1."""
    owner = _the_area(tx, area)
    before = _result(tx, area, op)
    if before is not None:
        return before
    cell = _cell(tx, area, field)
    if version is not None and version != (cell.version if cell else 0):
        return _remember(tx, owner, op, -1)
    return _remember(tx, owner, op, _write(tx, owner, field, value, cell))


def add_state(tx: Transaction, area: str, field: str, by: int, *, op: str) -> int:
    """Add to an integer field; return its new value."""
    owner = _the_area(tx, area)
    before = _result(tx, area, op)
    if before is not None:
        return before
    cell = _cell(tx, area, field)
    total = added(field, cell, by)
    _write(tx, owner, field, msgspec.json.encode(total), cell)
    return _remember(tx, owner, op, total)


def sweep(tx: Transaction) -> None:
    """Forget the areas that are due."""
    for (name,) in tx.execute("SELECT name FROM area WHERE due <= ?", (tx.now,)).fetchall():
        forget(tx, name)


def forget(tx: Transaction, name: str) -> None:
    """Remove an area, or the fields of a session, with everything of it."""
    if tx.one("DELETE FROM area WHERE name = ? RETURNING 1", name):
        tx.execute("DELETE FROM cell WHERE area = ?", (name,))
        tx.execute("DELETE FROM op WHERE area = ?", (name,))


class _Area(msgspec.Struct, frozen=True):
    name: str
    principal: str
    bytes: int
    exists: bool


def _the_area(tx: Transaction, name: str) -> _Area:
    """Return an area or a session's fields. Raises SessionGone if there is neither."""
    row = tx.execute(
        "SELECT iif(due IS NULL, (SELECT principal FROM session WHERE key = name), principal), bytes"  # noqa: S608
        f" FROM area WHERE name = ? AND {_ALIVE}",
        (name, tx.now),
    ).fetchone()
    if row is not None:
        return _Area(name, row[0], row[1], exists=True)
    principal = tx.one("SELECT principal FROM session WHERE key = ?", name)
    if principal is None:
        raise SessionGone
    return _Area(name, principal, 0, exists=False)


def _insert(tx: Transaction, *values: Any) -> None:
    tx.execute(
        "INSERT OR IGNORE INTO area (name, principal, ttl, due, bytes, versions, ops)"
        " VALUES (?, ?, ?, ?, 0, 0, 0)",
        values,
    )


def _cell(tx: Transaction, name: str, field: str) -> Cell | None:
    row = tx.execute("SELECT value, version FROM cell WHERE area = ? AND field = ?", (name, field)).fetchone()
    return None if row is None else Cell(*row)


def _write(tx: Transaction, area: _Area, field: str, value: bytes | None, cell: Cell | None) -> int:
    more, total = state_growth(most_bytes(area.name, tx.limits), area.bytes, field, cell, value)
    if not kept.has_room(tx, area.principal, total):
        raise too_much(field, tx.limits)
    _ensure(tx, area)
    version: int = tx.one(
        "UPDATE area SET bytes = bytes + ?, versions = versions + 1 WHERE name = ? RETURNING versions",
        more, area.name,
    )  # fmt: skip
    if value is None:
        tx.execute("DELETE FROM cell WHERE area = ? AND field = ?", (area.name, field))
        return 0
    tx.execute(
        # Not OR REPLACE: that deletes the former row without its triggers.
        "INSERT INTO cell (area, field, value, version) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (area, field) DO UPDATE SET value = excluded.value, version = excluded.version",
        (area.name, field, value, version),
    )
    return version


def _ensure(tx: Transaction, area: _Area) -> None:
    if not area.exists:
        _insert(tx, area.name, "", None, None)


def _result(tx: Transaction, name: str, op: str) -> int | None:
    found = tx.one("SELECT result FROM op WHERE area = ? AND op = ?", name, op) if op else None
    return None if found is None else int(found)


def _remember(tx: Transaction, area: _Area, op: str, result: int) -> int:
    """Keep the result of an operation for a command that is sent again; the oldest results are deleted."""
    if op:
        _ensure(tx, area)
        number = tx.one("UPDATE area SET ops = ops + 1 WHERE name = ? RETURNING ops", area.name)
        # Text: a counter may be larger than SQLite's integers.
        values = (area.name, op, number, str(result))
        tx.execute("INSERT INTO op (area, op, n, result) VALUES (?, ?, ?, ?)", values)
        tx.execute("DELETE FROM op WHERE area = ? AND n <= ?", (area.name, number - REMEMBERED_OPS))
    return result
