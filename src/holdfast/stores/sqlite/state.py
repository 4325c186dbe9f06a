"""Operations on state: the fields of a session, or of a scope that belongs to a principal.

A session's row in `scope` is made with its first field and has no `due`: it is deleted with the session.
"""

from typing import Any, Final

import msgspec

from holdfast.errors import SessionGone
from holdfast.stores.base import REMEMBERED_OPS, Cell
from holdfast.stores.kept import too_much
from holdfast.stores.rules import added, state_growth
from holdfast.stores.scopes import OWN, is_own, most_bytes, most_of_one, most_scopes
from holdfast.stores.sqlite import kept
from holdfast.stores.sqlite.transaction import Transaction

_COUNT: Final = "SELECT count(*) FROM scope WHERE due IS NOT NULL AND (substr(name, 1, ?) = ?) = ?"
_KINDS: Final = {own: (len(OWN), OWN, own) for own in (False, True)}
"""The arguments that select the scopes of principals (True) or of handles."""
_ALIVE: Final = "(due IS NULL OR due > ?)"


def open_scope(tx: Transaction, scope: str, principal: str, ttl: float) -> bool:
    """Begin a scope. A second call changes nothing."""
    sweep(tx)
    if tx.one("SELECT 1 FROM scope WHERE name = ? AND due IS NOT NULL", scope):
        return find_scope(tx, scope, principal)
    own_most = most_of_one(scope, principal, tx.limits)
    if own_most is not None and tx.one(f"{_COUNT} AND principal = ?", *_KINDS[False], principal) >= own_most:
        return False
    if tx.one(_COUNT, *_KINDS[is_own(scope)]) >= most_scopes(scope, tx.limits):
        return False
    _insert(tx, scope, principal, ttl, tx.now + ttl)
    return True


def find_scope(tx: Transaction, scope: str, principal: str) -> bool:
    """Return True if this principal has such a scope; its time starts again."""
    found = tx.one(
        "UPDATE scope SET due = ? + ttl WHERE name = ? AND principal = ? AND due > ? RETURNING 1",
        tx.now, scope, principal, tx.now,
    )  # fmt: skip
    return found is not None


def get_state(tx: Transaction, scope: str, field: str) -> Cell | None:
    """Return a field."""
    _the_scope(tx, scope)
    return _cell(tx, scope, field)


def set_state(
    tx: Transaction, scope: str, field: str, value: bytes | None, *, op: str, version: int | None = None
) -> int:
    """Set or delete a field if it has the expected version; return the new version or −1."""
    owner = _the_scope(tx, scope)
    before = _result(tx, scope, op)
    if before is not None:
        return before
    cell = _cell(tx, scope, field)
    if version is not None and version != (cell.version if cell else 0):
        return _remember(tx, owner, op, -1)
    return _remember(tx, owner, op, _write(tx, owner, field, value, cell))


def add_state(tx: Transaction, scope: str, field: str, by: int, *, op: str) -> int:
    """Add to an integer field; return its new value."""
    owner = _the_scope(tx, scope)
    before = _result(tx, scope, op)
    if before is not None:
        return before
    cell = _cell(tx, scope, field)
    total = added(field, cell, by)
    _write(tx, owner, field, msgspec.json.encode(total), cell)
    return _remember(tx, owner, op, total)


def sweep(tx: Transaction) -> None:
    """Forget the scopes that are due."""
    for (name,) in tx.execute("SELECT name FROM scope WHERE due <= ?", (tx.now,)).fetchall():
        forget(tx, name)


def forget(tx: Transaction, name: str) -> None:
    """Remove a scope, or the fields of a session, with everything of it."""
    if tx.one("DELETE FROM scope WHERE name = ? RETURNING 1", name):
        tx.execute("DELETE FROM cell WHERE scope = ?", (name,))
        tx.execute("DELETE FROM op WHERE scope = ?", (name,))


class _Scope(msgspec.Struct, frozen=True):
    name: str
    principal: str
    bytes: int
    exists: bool


def _the_scope(tx: Transaction, name: str) -> _Scope:
    """Return a scope or a session's fields. Raises SessionGone if there is neither."""
    row = tx.execute(
        "SELECT iif(due IS NULL, (SELECT principal FROM session WHERE key = name), principal), bytes"  # noqa: S608
        f" FROM scope WHERE name = ? AND {_ALIVE}",
        (name, tx.now),
    ).fetchone()
    if row is not None:
        return _Scope(name, row[0], row[1], exists=True)
    principal = tx.one("SELECT principal FROM session WHERE key = ?", name)
    if principal is None:
        raise SessionGone
    return _Scope(name, principal, 0, exists=False)


def _insert(tx: Transaction, *values: Any) -> None:
    tx.execute(
        "INSERT OR IGNORE INTO scope (name, principal, ttl, due, bytes, versions, ops)"
        " VALUES (?, ?, ?, ?, 0, 0, 0)",
        values,
    )


def _cell(tx: Transaction, name: str, field: str) -> Cell | None:
    row = tx.execute(
        "SELECT value, version FROM cell WHERE scope = ? AND field = ?", (name, field)
    ).fetchone()
    return None if row is None else Cell(*row)


def _write(tx: Transaction, scope: _Scope, field: str, value: bytes | None, cell: Cell | None) -> int:
    more, total = state_growth(most_bytes(scope.name, tx.limits), scope.bytes, field, cell, value)
    if not kept.has_room(tx, scope.principal, total):
        raise too_much(field, tx.limits)
    _ensure(tx, scope)
    version: int = tx.one(
        "UPDATE scope SET bytes = bytes + ?, versions = versions + 1 WHERE name = ? RETURNING versions",
        more, scope.name,
    )  # fmt: skip
    if value is None:
        tx.execute("DELETE FROM cell WHERE scope = ? AND field = ?", (scope.name, field))
        return 0
    tx.execute(
        # Not OR REPLACE: that deletes the former row without its triggers.
        "INSERT INTO cell (scope, field, value, version) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (scope, field) DO UPDATE SET value = excluded.value, version = excluded.version",
        (scope.name, field, value, version),
    )
    return version


def _ensure(tx: Transaction, scope: _Scope) -> None:
    if not scope.exists:
        _insert(tx, scope.name, "", None, None)


def _result(tx: Transaction, name: str, op: str) -> int | None:
    found = tx.one("SELECT result FROM op WHERE scope = ? AND op = ?", name, op) if op else None
    return None if found is None else int(found)


def _remember(tx: Transaction, scope: _Scope, op: str, result: int) -> int:
    """Keep the result of an operation for a command that is sent again; the oldest results are deleted."""
    if op:
        _ensure(tx, scope)
        number = tx.one("UPDATE scope SET ops = ops + 1 WHERE name = ? RETURNING ops", scope.name)
        # Text: a counter may be larger than SQLite's integers.
        values = (scope.name, op, number, str(result))
        tx.execute("INSERT INTO op (scope, op, n, result) VALUES (?, ?, ?, ?)", values)
        tx.execute("DELETE FROM op WHERE scope = ? AND n <= ?", (scope.name, number - REMEMBERED_OPS))
    return result
