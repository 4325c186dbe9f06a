"""Streams of closed sessions that still have a reader: kept for some seconds, so that the reader can read to the end.

The session's row is deleted, and its number may be used again. So these streams get another number, below zero.
They are bounded in bytes, because a client can close sessions faster than the streams expire.
"""

from typing import Final

from holdfast.core.stream import Position
from holdfast.stores.base import LINGER_SECONDS, LINGER_SHARE, Ending, WakeUp
from holdfast.stores.rules import id_from
from holdfast.stores.sqlite import rows
from holdfast.stores.sqlite.rows import ExchangeRow, SessionRow
from holdfast.stores.sqlite.transaction import Transaction

_READ: Final = (
    rows.EXCHANGE
    + "WHERE sid = ? AND reader IS NOT NULL AND first IS NOT NULL AND id IS NOT NULL ORDER BY xid"
)
_BY_KEYS: Final = (
    rows.EXCHANGE + "JOIN lingering ON sid = -lingering.n WHERE key = ? AND stream = ? AND until > ?"
)


def keep(tx: Transaction, session: SessionRow, ending: Ending | None) -> None:
    """Take the streams that have a reader out of a session that is about to be removed; those in flight end."""
    found = [ExchangeRow(row) for row in tx.execute(_READ, (session.sid,)).fetchall()]
    kept = [exchange for exchange in found if exchange.closed or (exchange.running and ending is not None)]
    if not kept:
        return
    until = tx.now + LINGER_SECONDS
    number = tx.execute("INSERT INTO lingering (key, until) VALUES (?, ?)", (session.key, until)).lastrowid
    for exchange in kept:
        if exchange.running and ending is not None:
            _end(tx, exchange, ending)
            tx.wake(WakeUp.STREAM, session.key, exchange.stream, exchange.reader)
        exchange.running, exchange.reader = 0, None
        rows.save_exchange(tx, exchange)
        tx.execute(
            "UPDATE exchange SET sid = -?, holds = 0, owner = '', finished = NULL WHERE xid = ?",
            (number, exchange.xid),
        )
    _make_room(tx)


def _make_room(tx: Transaction) -> None:
    """Forget the oldest streams while all together have too many bytes."""
    most = tx.limits.streams_bytes // LINGER_SHARE
    while tx.one("SELECT coalesce(sum(bytes), 0) FROM exchange WHERE sid < 0") > most:
        _forget(tx, tx.one("SELECT min(n) FROM lingering"))


def _end(tx: Transaction, exchange: ExchangeRow, ending: Ending) -> None:
    exchange.top = Position(exchange.top.seq + 1, ending.tag)
    exchange.closed = 1
    message = ending.message(id_from(exchange.id or ""))
    exchange.bytes += len(message)
    tx.execute(
        "INSERT INTO event (xid, seq, tag, data) VALUES (?, ?, ?, ?)",
        (exchange.xid, exchange.top.seq, rows.signed(ending.tag), message),
    )


def find(tx: Transaction, key: str, stream: str) -> ExchangeRow | None:
    """Return a stream that is still kept."""
    return rows.find_exchange(tx, _BY_KEYS, key, stream, tx.now)


def sweep(tx: Transaction) -> None:
    """Forget the streams whose time is over."""
    for (number,) in tx.execute("SELECT n FROM lingering WHERE until <= ?", (tx.now,)).fetchall():
        _forget(tx, number)


def _forget(tx: Transaction, number: int) -> None:
    tx.execute("DELETE FROM event WHERE xid IN (SELECT xid FROM exchange WHERE sid = -?)", (number,))
    tx.execute("DELETE FROM exchange WHERE sid = -?", (number,))
    tx.execute("DELETE FROM lingering WHERE n = ?", (number,))
