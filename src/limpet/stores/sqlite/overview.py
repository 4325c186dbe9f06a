"""The views of operators on the sessions of the file, without loading documents."""

from collections.abc import Sequence
from typing import Any, Final

from limpet.core.records import Status
from limpet.stores.base import Listing, Totals
from limpet.stores.shared.commit import SIZE, unpack
from limpet.stores.shared.fields import listing_of, status_of
from limpet.stores.sqlite.transaction import Transaction

_SESSION: Final = (
    "SELECT key, numbers, coalesce((SELECT held FROM area WHERE name = key AND due IS NULL), 0),"
    " (SELECT value FROM field WHERE sid = s.sid AND name = 'r'), (SELECT value FROM field WHERE sid = s.sid AND name = 'm') FROM session s "
)


def _rows(tx: Transaction, which: str, *values: Any) -> list[Sequence[Any]]:
    found = tx.execute(_SESSION + which, values)
    return [(key, unpack(numbers) if len(numbers) >= SIZE else (), *rest) for key, numbers, *rest in found]


def look(tx: Transaction, key: str) -> Status | None:
    """Return an open session."""
    rows = _rows(tx, "WHERE key = ?", key)
    return status_of(rows[0], tx.now) if rows else None


def sessions_after(tx: Transaction, after: str, limit: int) -> Listing:
    """Return the sessions that follow in the order of their keys."""
    return listing_of(_rows(tx, "WHERE key > ? ORDER BY key LIMIT ?", after, limit), limit, tx.now)


def totals(tx: Transaction) -> Totals:
    """Return the totals of all sessions."""
    sessions, size = tx.execute("SELECT sessions, bytes FROM total").fetchone()
    detached = tx.one("SELECT count(*) FROM session WHERE detached = 1")
    return Totals(sessions, detached, size + tx.grown, tx.one("SELECT coalesce(sum(bytes), 0) FROM kept"))
