"""The views of operators on the sessions of the file, without loading documents."""

from typing import Final

from limpet.core.records import SessionRecord, Status
from limpet.stores.base import Listing, Totals
from limpet.stores.shared.commit import unpack
from limpet.stores.shared.fields import readable_record, status_of
from limpet.stores.sqlite.transaction import Transaction

_RECORD: Final = "SELECT name, value FROM field WHERE sid = ? AND name IN ('r', 'm')"
_SESSION: Final = "SELECT key, sid, numbers, coalesce((SELECT held FROM area WHERE name = key AND due IS NULL), 0) FROM session "


def record_of(tx: Transaction, sid: int) -> SessionRecord | None:
    """Return the record of a session; None if it cannot be read."""
    fields = dict(tx.execute(_RECORD, (sid,)).fetchall())
    return readable_record(fields.get("r"), fields.get("m"))


def look(tx: Transaction, key: str) -> Status | None:
    """Return an open session."""
    row = tx.execute(_SESSION + "WHERE key = ?", (key,)).fetchone()
    return None if row is None else _status(tx, *row)


def sessions_after(tx: Transaction, after: str, limit: int) -> Listing:
    """Return the sessions that follow in the order of their keys."""
    found = tx.execute(_SESSION + "WHERE key > ? ORDER BY key LIMIT ?", (after, limit)).fetchall()
    listed = [status for row in found if (status := _status(tx, *row)) is not None]
    return Listing(listed, found[-1][0] if len(found) == limit else "")


def _status(tx: Transaction, _: str, sid: int, numbers: bytes, held: int) -> Status | None:
    """Return the status of a session; None if its record cannot be read: the next command that uses it removes it."""
    record = record_of(tx, sid)
    return None if record is None else status_of(record, unpack(numbers), held, tx.now)


def totals(tx: Transaction) -> Totals:
    """Return the totals of all sessions."""
    sessions, size = tx.execute("SELECT sessions, bytes FROM total").fetchone()
    detached = tx.one("SELECT count(*) FROM session WHERE detached = 1")
    return Totals(sessions, detached, size + tx.grown, tx.one("SELECT coalesce(sum(bytes), 0) FROM kept"))
