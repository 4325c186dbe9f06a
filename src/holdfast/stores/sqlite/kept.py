"""The kept data of principals besides streams and tasks (`holdfast.core.rules.state`), counted by triggers of the file.

The row of a session or area has its kept bytes (`held`), and the table `kept` has the sum of each principal. The
triggers change both with every field and subscription, in the same transaction, also if many rows are
deleted at once and if an older release writes to the same file. So no operation has to count; one that adds data asks
`has_room` first.
"""

from collections.abc import Mapping
from typing import Final

from holdfast.core.rules.state import ENTRY_BYTES
from holdfast.stores.sqlite.transaction import Transaction

_SUM: Final = (
    "INSERT INTO kept (principal, bytes) VALUES ({row}.principal, {bytes})"
    " ON CONFLICT (principal) DO UPDATE SET bytes = bytes + excluded.bytes;"
    " DELETE FROM kept WHERE principal = {row}.principal AND bytes <= 0;"
)
"""Changes a principal's sum. With the last row of a principal its sum is deleted."""
_SIZES: Final = {
    "cell": f"({ENTRY_BYTES} + length(CAST({{row}}.field AS BLOB)) + length({{row}}.value))",
    "subscription": f"({ENTRY_BYTES} + length(CAST({{row}}.uri AS BLOB)))",
}
"""The bytes of a row."""
_EVENTS: Final = {
    "cell": ("INSERT", "UPDATE OF value", "DELETE"),
    "subscription": ("INSERT", "DELETE"),
}
"""The events that change them."""
_OWNERS: Final = {
    "cell": (
        "UPDATE session SET held = held + ({change}) WHERE key = {row}.area;"
        " UPDATE area SET held = held + ({change}) WHERE name = {row}.area AND due IS NOT NULL;"
    ),
    "subscription": "UPDATE session SET held = held + ({change}) WHERE sid = {row}.sid;",
}
"""A session's fields belong to its row in `session`: its row in `area` has no `due`."""


def _counting(table: str) -> dict[str, str]:
    """Return the triggers that count the rows of a table to their owner."""
    new, old = _SIZES[table].format(row="new"), _SIZES[table].format(row="old")
    changes = {"INSERT": ("new", new), "UPDATE": ("old", f"{new} - {old}"), "DELETE": ("old", f"-{old}")}
    made = {}
    for event in _EVENTS[table]:
        kind = event.partition(" ")[0]
        row, change = changes[kind]
        name = f"{table}_kept_{kind.lower()}"
        made[name] = (
            f"CREATE TRIGGER {name} AFTER {event} ON {table} WHEN ({change}) <> 0"
            f" BEGIN {_OWNERS[table].format(row=row, change=change)} END"
        )
    return made


def _summing(table: str) -> dict[str, str]:
    """Return the triggers that add the kept bytes of an owner to the sum of its principal."""
    change = _SUM.format(row="new", bytes="new.held - old.held")
    gone = _SUM.format(row="old", bytes="-old.held")
    return {
        f"{table}_held_update": f"CREATE TRIGGER {table}_held_update AFTER UPDATE OF held ON {table}"
        f" WHEN new.held <> old.held BEGIN {change} END",
        f"{table}_held_delete": f"CREATE TRIGGER {table}_held_delete AFTER DELETE ON {table}"
        f" WHEN old.held <> 0 BEGIN {gone} END",
    }


TRIGGERS: Final[Mapping[str, str]] = {
    **_summing("session"),
    **_summing("area"),
    **_counting("cell"),
    **_counting("subscription"),
}


def has_room(tx: Transaction, principal: str, change: int) -> bool:
    """Return True if a principal may keep so many more bytes."""
    if change <= 0:
        return True
    known: int = tx.one("SELECT bytes FROM kept WHERE principal = ?", principal) or 0
    return known + change <= tx.limits.principal_kept_bytes
