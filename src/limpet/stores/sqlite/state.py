"""Operations on state: the fields of a session, or of an area that belongs to a principal.

A session's row in `area` is made with its first field and has no `due`: it is deleted with the session.
"""

from typing import Any, Final

import msgspec

from limpet.core.rules.areas import OWN, AreaBounds, is_own, room, use
from limpet.core.rules.state import Cell, FieldChange, StateFields, change
from limpet.errors import SessionGone
from limpet.stores.base import REMEMBERED_OPS
from limpet.stores.sqlite.transaction import Transaction

_COUNT: Final = "SELECT count(*) FROM area WHERE due IS NOT NULL AND (substr(name, 1, ?) = ?) = ?"
_KINDS: Final = {own: (len(OWN), OWN, own) for own in (False, True)}
"""The arguments that select the areas of principals (True) or of handles."""
_ALIVE: Final = "(due IS NULL OR due > ?)"


def open_area(tx: Transaction, area: str, principal: str, ttl: float) -> bool:
    """Begin an area. A second call changes nothing."""
    sweep(tx)
    if tx.one("SELECT 1 FROM area WHERE name = ? AND due IS NOT NULL", area):
        return find_area(tx, area, principal)
    others = tx.one(_COUNT, *_KINDS[is_own(area)])
    own = tx.one(f"{_COUNT} AND principal = ?", *_KINDS[False], principal)
    if not AreaBounds.of(area, principal, tx.limits).allow(others, own):
        return False
    _insert(tx, area, principal, ttl, tx.now + ttl)
    return True


def find_area(tx: Transaction, area: str, principal: str) -> bool:
    """Return True if this principal has such an area; its time starts again."""
    row = tx.execute("SELECT principal, ttl, due FROM area WHERE name = ? AND due IS NOT NULL", (area,))
    found = None if (owner := row.fetchone()) is None else _Owner(*owner)
    if found is None or not use(found, principal, tx.now):
        return False
    tx.execute("UPDATE area SET due = ? WHERE name = ?", (found.due, area))
    return True


def get_state(tx: Transaction, area: str, field: str) -> Cell | None:
    """Return a field."""
    _the_area(tx, area)
    return _cell(tx, area, field)


def change_state(tx: Transaction, area: str, wanted: FieldChange) -> int:
    """Apply the rule to the field that the change names."""
    owner = _the_area(tx, area)
    state = StateFields(owner.bytes, owner.versions, owner.held)
    before = _cell(tx, area, wanted.field)
    if before is not None:
        state.cells[wanted.field] = before
    known = tx.one("SELECT result FROM op WHERE area = ? AND op = ?", area, wanted.op)
    if known is not None:
        return int(known)
    sums = tx.one("SELECT bytes FROM kept WHERE principal = ?", owner.principal) or 0
    most = owner.held + tx.limits.principal_kept_bytes - sums
    result = change(state, wanted, room(area, tx.limits, most))
    _write(tx, area, owner, wanted.field, state.cells.get(wanted.field), before)
    number: int = tx.one(
        "UPDATE area SET bytes = ?, versions = ?, held = ?, ops = ops + 1 WHERE name = ? RETURNING ops",
        state.bytes, state.versions, state.kept, area,
    )  # fmt: skip
    tx.keep(owner.principal, state.kept - owner.held)
    # Text: a counter may be larger than SQLite's integers.
    tx.execute(
        "INSERT INTO op (area, op, n, result) VALUES (?, ?, ?, ?)", (area, wanted.op, number, str(result))
    )
    tx.execute("DELETE FROM op WHERE area = ? AND n <= ?", (area, number - REMEMBERED_OPS))
    return result


def sweep(tx: Transaction) -> None:
    """Forget the areas that are due."""
    for (name,) in tx.execute("SELECT name FROM area WHERE due <= ?", (tx.now,)).fetchall():
        forget(tx, name)


def forget(tx: Transaction, name: str, session_of: str = "") -> None:
    """Remove an area, or the fields of a session of this principal, with everything of it."""
    row = tx.execute("DELETE FROM area WHERE name = ? RETURNING principal, held", (name,)).fetchone()
    if row is not None:
        tx.keep(session_of or row[0], -row[1])
        tx.execute("DELETE FROM cell WHERE area = ?", (name,))
        tx.execute("DELETE FROM op WHERE area = ?", (name,))


class _Owner(msgspec.Struct):
    principal: str
    ttl: float
    due: float


class _Area(msgspec.Struct, frozen=True):
    principal: str
    name: str = ""
    bytes: int = 0
    versions: int = 0
    held: int = 0
    """The kept bytes of its fields."""


def _the_area(tx: Transaction, name: str) -> _Area:
    """Return an area or a session's fields. Raises SessionGone if there is neither."""
    row = tx.execute(
        "SELECT iif(due IS NULL, (SELECT principal FROM session WHERE key = name), principal), name, bytes, versions, held"  # noqa: S608
        f" FROM area WHERE name = ? AND {_ALIVE}",
        (name, tx.now),
    ).fetchone()
    if row is not None:
        return _Area(*row)
    principal = tx.one("SELECT principal FROM session WHERE key = ?", name)
    if principal is None:
        raise SessionGone
    return _Area(principal)


def _insert(tx: Transaction, *values: Any) -> None:
    tx.execute(
        "INSERT OR IGNORE INTO area (name, principal, ttl, due, bytes, versions, ops)"
        " VALUES (?, ?, ?, ?, 0, 0, 0)",
        values,
    )


def _cell(tx: Transaction, name: str, field: str) -> Cell | None:
    row = tx.execute("SELECT value, version FROM cell WHERE area = ? AND field = ?", (name, field)).fetchone()
    return None if row is None else Cell(*row)


def _write(
    tx: Transaction, area: str, owner: _Area, field: str, cell: Cell | None, before: Cell | None
) -> None:
    if not owner.name:
        _insert(tx, area, "", None, None)
    if cell is None and before is not None:
        tx.execute("DELETE FROM cell WHERE area = ? AND field = ?", (area, field))
    elif cell is not None and cell != before:
        tx.execute(
            "INSERT INTO cell (area, field, value, version) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (area, field) DO UPDATE SET value = excluded.value, version = excluded.version",
            (area, field, *cell),
        )
