"""The views of operators on the sessions of the file, without loading documents."""

from typing import Any, Final

from holdfast.core.lifecycle import SessionState
from holdfast.core.records import SessionRecord, Status
from holdfast.core.rules.document import Document
from holdfast.stores.base import Listing, Totals
from holdfast.stores.shared.commit import NUMBERS, unpack
from holdfast.stores.shared.fields import decode_record
from holdfast.stores.sqlite.transaction import Transaction

_RECORD: Final = "SELECT name, value FROM field WHERE sid = ? AND name IN ('r', 'm')"
_SESSION: Final = "SELECT key, sid, numbers, coalesce((SELECT held FROM area WHERE name = key AND due IS NULL), 0) FROM session "


def record_of(tx: Transaction, sid: int) -> SessionRecord | None:
    """Return the record of a session; None if it cannot be read."""
    fields = dict(tx.execute(_RECORD, (sid,)).fetchall())
    try:
        return decode_record(fields["r"], fields["m"])
    except (KeyError, ValueError):
        return None


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
    if record is None:
        return None
    known: dict[str, Any] = dict(zip(NUMBERS, unpack(numbers), strict=True))
    doc = Document(record, known["opened"])
    doc.touched, doc.settled, doc.broke = known["touched"], known["settled"], known["broke"]
    doc.readers, doc.running = int(known["readers"]), int(known["running"])
    doc.state = SessionState.DETACHED if known["state"] else SessionState.ATTACHED
    return doc.status(tx.now, log_bytes=int(known["size"]), kept_bytes=int(known["kept"]) + held)


def totals(tx: Transaction) -> Totals:
    """Return the totals of all sessions."""
    sessions, size = tx.execute("SELECT sessions, bytes FROM total").fetchone()
    detached = tx.one("SELECT count(*) FROM session WHERE detached = 1")
    return Totals(sessions, detached, size + tx.grown, tx.one("SELECT coalesce(sum(bytes), 0) FROM kept"))
