"""The places of sessions: how many there may be, in all and of one principal, and who makes room."""

from collections.abc import Mapping
from math import inf

from limpet.core.lifecycle import SessionInput
from limpet.core.records import Closed, Refusal, SessionRecord
from limpet.core.rules.life import is_crowded
from limpet.stores.shared.commit import PLACES
from limpet.stores.shared.fields import readable_record
from limpet.stores.sqlite import outbox, shelf
from limpet.stores.sqlite.transaction import Transaction

_RUNNING, _READERS, _TOUCHED = PLACES["running"], PLACES["readers"], PLACES["touched"]


def take(
    tx: Transaction, record: SessionRecord, numbers: bytes, fields: Mapping[str, bytes], *, evict: bool
) -> list[Closed] | Refusal:
    """Keep a new session; evict the longest idle session of a principal that is at its limit."""
    if tx.one("SELECT 1 FROM session WHERE key = ?", record.key):
        return []
    evicted: list[Closed] = []
    own = tx.one("SELECT count(*) FROM session WHERE principal = ?", record.principal) if evict else 0
    if is_crowded(tx.limits, tx.one("SELECT sessions FROM total"), own):
        closed = _evict(tx, record.principal) if evict else None
        if closed is None:
            return Refusal.FULL
        evicted.append(closed)
    shelf.create(tx, record, numbers, fields)
    return evicted


def _evict(tx: Transaction, principal: str) -> Closed | None:
    """Close the session of a principal that has been idle the longest: without call and reader, so without stream."""
    oldest, found = inf, None
    for sid, key, blob in tx.execute(
        "SELECT sid, key, numbers FROM session WHERE principal = ? ORDER BY sid", (principal,)
    ):
        numbers = shelf.readable(blob)
        if not numbers[_RUNNING] and not numbers[_READERS] and numbers[_TOUCHED] < oldest:
            oldest, found = numbers[_TOUCHED], (sid, key, blob)
    if found is None:
        return None
    sid, key, blob = found
    fields = dict(
        tx.execute("SELECT name, value FROM field WHERE sid = ? AND name IN ('r', 'm')", (sid,)).fetchall()
    )
    record = readable_record(fields.get("r"), fields.get("m"))
    shelf.forget(tx, key, sid, blob)
    if record is None:
        tx.poisoned.append(key)
        return _evict(tx, principal)
    closed = Closed(record, SessionInput.EVICTED, f"{key}.{sid}")
    outbox.post(tx, closed)
    return closed
