"""The logs: events appended, trimmed and read, within the bytes of stream, session and store.

The contract says which data is forgotten first (`stores/base/streams.py`, decision 4).
"""

from typing import Final

from holdfast.core.rules.streams import cut_to, over_budget
from holdfast.core.stream import Continuity, Event, NewEvents, Page, Position
from holdfast.errors import StreamClosed
from holdfast.stores.base import WakeUp
from holdfast.stores.sqlite.rows import (
    BY_SID,
    BY_STREAM,
    LARGEST,
    LEAST_NEEDED,
    ExchangeRow,
    SessionRow,
    find_exchange,
    find_session,
    save_exchange,
    save_session,
    signed,
)
from holdfast.stores.sqlite.transaction import Transaction

_TAGS: Final = 1 << 64


def append(
    tx: Transaction,
    session: SessionRow,
    exchange: ExchangeRow,
    events: NewEvents,
    *,
    final: bool = False,
) -> Position:
    """Add events, keep within all budgets, send STREAM, and save both rows."""
    if not exchange.has_log:
        raise StreamClosed
    last = events[-1][0]
    if exchange.top.tag == last and exchange.top.seq > exchange.low.seq:
        return exchange.top
    before, seq = exchange.bytes, exchange.top.seq
    tx.execute_many(
        "INSERT INTO event (xid, seq, tag, data) VALUES (?, ?, ?, ?)",
        [(exchange.xid, seq + n, signed(tag), data) for n, (tag, data) in enumerate(events, 1)],
    )
    exchange.top = Position(seq + len(events), last)
    exchange.bytes += sum(len(data) for _, data in events)
    exchange.closed = int(final)
    _trim(tx, exchange, tx.limits.stream_bytes)
    total = _account(tx, session, exchange.bytes - before)
    save_exchange(tx, exchange)
    if _over(tx, session, total) > 0:
        _make_room(tx, session, exchange, total)
    save_session(tx, session)
    tx.wake(WakeUp.STREAM, session.key, exchange.stream, exchange.reader)
    return exchange.top


def _make_room(tx: Transaction, session: SessionRow, exchange: ExchangeRow, total: int) -> None:
    while _over(tx, session, total) > 0 and (dropped := drop_finished(tx, session)) is not None:
        total = dropped
    while total > tx.limits.streams_bytes and (dropped := _drop_oldest_finished(tx, session)) is not None:
        total = dropped
    while (over := _over(tx, session, total)) > 0:
        largest = find_exchange(tx, LARGEST, session.sid)
        if largest is None:
            return
        log = exchange if largest.xid == exchange.xid else largest
        freed = _trim(tx, log, cut_to(log.bytes, over))
        if not freed:
            return
        save_exchange(tx, log)
        total = _account(tx, session, -freed)


def _over(tx: Transaction, session: SessionRow, total: int) -> int:
    """Return by how many bytes the session or the whole store is over its budget."""
    return over_budget(tx.limits, session.bytes, total)


def _account(tx: Transaction, session: SessionRow, change: int) -> int:
    """Count bytes; return those of the whole store."""
    session.bytes += change
    total: int = tx.one("UPDATE total SET bytes = bytes + ? RETURNING bytes", change)
    return total


def _trim(tx: Transaction, exchange: ExchangeRow, max_bytes: int) -> int:
    """Drop the oldest events down to the bounds, never the newest one; return the bytes freed."""
    freed, count, max_events = 0, exchange.top.seq - exchange.low.seq, tx.limits.stream_events
    if count <= max_events and exchange.bytes <= max_bytes:
        return 0
    low = exchange.low
    oldest = tx.execute(
        "SELECT seq, tag, length(data) FROM event WHERE xid = ? ORDER BY seq LIMIT ?",
        (exchange.xid, count - 1),
    )
    for seq, tag, size in oldest:
        if count <= max_events and exchange.bytes - freed <= max_bytes:
            break
        low, freed, count = Position(seq, tag % _TAGS), freed + size, count - 1
    oldest.close()
    tx.execute("DELETE FROM event WHERE xid = ? AND seq <= ?", (exchange.xid, low.seq))
    exchange.low = low
    exchange.bytes -= freed
    return freed


# Finished streams


def finish(tx: Transaction, session: SessionRow, exchange: ExchangeRow) -> None:
    """Count a stream among the finished ones of its session, and forget the least needed beyond their limit."""
    exchange.finished = tx.one(
        "SELECT coalesce(max(finished), 0) + 1 FROM exchange WHERE finished IS NOT NULL"
    )
    tx.execute("UPDATE exchange SET finished = ? WHERE xid = ?", (exchange.finished, exchange.xid))
    count = tx.one("SELECT count(*) FROM exchange WHERE sid = ? AND finished IS NOT NULL", session.sid)
    while count > tx.limits.finished_streams and drop_finished(tx, session) is not None:
        count -= 1
    save_session(tx, session)


def deliver(tx: Transaction, exchange: ExchangeRow, cursor: Position) -> None:
    """Record how far a reader has read; a finished stream that was read to its end is needed least."""
    exchange.sent = max(exchange.sent, cursor)
    if exchange.finished is not None:
        tx.execute(
            "UPDATE exchange SET needed = ? WHERE xid = ?", (exchange.sent != exchange.top, exchange.xid)
        )


def drop_finished(tx: Transaction, session: SessionRow) -> int | None:
    """Forget the session's finished stream that matters least; return the store's bytes, or None if no stream has finished."""
    exchange = find_exchange(tx, LEAST_NEEDED, session.sid)
    return None if exchange is None else forget(tx, session, exchange)


def _drop_oldest_finished(tx: Transaction, session: SessionRow) -> int | None:
    """Forget the finished stream that ended first, of any session. A stream that has a reader is kept."""
    row = tx.execute(
        "SELECT sid, stream FROM exchange WHERE finished IS NOT NULL AND reader IS NULL ORDER BY finished LIMIT 1"
    ).fetchone()
    if row is None:
        return None
    owner = session if row[0] == session.sid else find_session(tx, BY_SID, row[0])
    exchange = find_exchange(tx, BY_STREAM, *row)
    if owner is None or exchange is None:
        return None
    total = forget(tx, owner, exchange)
    save_session(tx, owner)
    return total


def forget(tx: Transaction, session: SessionRow, exchange: ExchangeRow) -> int:
    """Remove an exchange with its log; the caller saves the session. Returns the store's bytes."""
    tx.execute("DELETE FROM exchange WHERE xid = ?", (exchange.xid,))
    session.readers -= exchange.reader is not None
    if not exchange.has_log:
        return 0
    tx.execute("DELETE FROM event WHERE xid = ?", (exchange.xid,))
    return _account(tx, session, -exchange.bytes)


# Reading


def proves(tx: Transaction, exchange: ExchangeRow, cursor: Position) -> bool:
    """Return True if the cursor can have been a position of this log, as `Log.proves` does."""
    if cursor.seq == exchange.low.seq:
        return cursor.tag == exchange.low.tag
    if cursor.seq < exchange.low.seq:
        return exchange.first is not None and cursor.seq >= exchange.first
    if cursor.seq > exchange.top.seq:
        return False
    tag = tx.one("SELECT tag FROM event WHERE xid = ? AND seq = ?", exchange.xid, cursor.seq)
    return tag is not None and tag % _TAGS == cursor.tag


def read(tx: Transaction, exchange: ExchangeRow, cursor: Position, max_events: int, max_bytes: int) -> Page:
    """Return the events after `cursor`, as `Log.read` does."""
    if not proves(tx, exchange, cursor):
        return Page(Continuity.FORK, [], None, finished=False)
    continuity, missed, start = Continuity.OK, None, cursor.seq
    if start < exchange.low.seq:
        continuity, missed, start = Continuity.GAP, (cursor.seq + 1, exchange.low.seq), exchange.low.seq
    events: list[Event] = []
    size, end = 0, start
    if start < exchange.top.seq:
        rows = tx.execute(
            "SELECT seq, tag, data FROM event WHERE xid = ? AND seq > ? ORDER BY seq LIMIT ?",
            (exchange.xid, start, max_events),
        )
        for seq, tag, data in rows:
            size += len(data)
            if events and size > max_bytes:
                break
            end = seq
            events.append(Event(Position(seq, tag % _TAGS), data))
        rows.close()
    return Page(continuity, events, missed, finished=bool(exchange.closed) and end == exchange.top.seq)
