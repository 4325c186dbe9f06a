"""Operations on asks: ask, answer, take_answer, withdraw."""

from typing import Final

from holdfast.core.rules.asks import answered
from holdfast.stores.base import REMEMBERED_ANSWERS, REMEMBERED_SECONDS, Answered, Refusal, WakeUp
from holdfast.stores.sqlite import rows
from holdfast.stores.sqlite.rows import (
    ExchangeRow,
    SessionRow,
    find_exchange,
    find_session,
    save_exchange,
    save_session,
)
from holdfast.stores.sqlite.transaction import Transaction

_DIGESTS: Final = "FROM ask WHERE sid = ? AND until IS NOT NULL"
"""Asks of which only the digests of their answers are kept: no stream, an empty answer, and the end of that time."""


def ask(tx: Transaction, key: str, name: str, stream: str) -> bool:
    """Register an ask if the session has a place for it."""
    session = rows.the_session(tx, key)
    if tx.one("SELECT 1 FROM ask WHERE sid = ? AND ask = ?", session.sid, name):
        return True
    if session.outstanding >= tx.limits.asks:
        return False
    if stream == session.record.standalone:
        exchange: ExchangeRow | None = rows.standalone(tx, session)
    else:
        exchange = find_exchange(tx, rows.BY_STREAM, session.sid, stream)
    if exchange is not None:
        if exchange.asks >= REMEMBERED_ANSWERS and _is_full(tx, session, stream):
            return False
        exchange.asks += 1
        save_exchange(tx, exchange)
    tx.execute(
        "INSERT INTO ask (sid, ask, stream, owner) VALUES (?, ?, ?, ?)",
        (session.sid, name, stream, tx.identity.owner),
    )
    session.outstanding += 1
    save_session(tx, session)
    return True


def _is_full(tx: Transaction, session: SessionRow, stream: str) -> bool:
    """Return True if a stream keeps as many answers as it may. A withdrawn ask has no stream."""
    count: int = tx.one(
        "SELECT count(*) FROM ask WHERE sid = ? AND stream = ? AND answer IS NOT NULL", session.sid, stream
    )
    return count >= REMEMBERED_ANSWERS


def answer(
    tx: Transaction, key: str, principal: str, name: str, digest: bytes, payload: bytes
) -> Answered | Refusal:
    """Keep the first answer."""
    session = find_session(tx, rows.BY_PRINCIPAL, key, principal)
    if session is None:
        return Refusal.NO_SESSION
    known = tx.execute(
        "SELECT aid, owner, answer IS NOT NULL, digest FROM ask WHERE sid = ? AND ask = ?"
        " AND (until IS NULL OR until > ?)",
        (session.sid, name, tx.now),
    ).fetchone()
    if known is None:
        return Answered.UNKNOWN
    aid, owner, is_answered, first = known
    if is_answered:
        return answered(first, digest)
    tx.execute("UPDATE ask SET answer = ?, digest = ? WHERE aid = ?", (payload, digest, aid))
    session.outstanding -= 1
    save_session(tx, session)
    tx.wake(WakeUp.ANSWER, key, name, owner)
    return Answered.FIRST


def take_answer(tx: Transaction, key: str, name: str) -> bytes | None:
    """Return an ask's answer."""
    found: bytes | None = tx.one(
        "SELECT answer FROM ask JOIN session USING (sid) WHERE key = ? AND ask = ? AND until IS NULL",
        key,
        name,
    )
    return found


def withdraw(tx: Transaction, key: str, name: str) -> None:
    """Forget an ask."""
    session = find_session(tx, rows.BY_KEY, key)
    if session is not None and _forget(tx, session, "ask", name):
        save_session(tx, session)


def forget_all(tx: Transaction, session: SessionRow, exchange: ExchangeRow) -> None:
    """Forget the asks of an exchange that has ended; the caller saves the session."""
    _forget(tx, session, "stream", exchange.stream)
    exchange.asks = 0


def _forget(tx: Transaction, session: SessionRow, column: str, value: str) -> int:
    """Forget asks; the digests of their answers stay for a while. Returns the number of freed places."""
    these = f"WHERE sid = ? AND {column} = ? AND until IS NULL"
    kept = tx.execute(
        f"UPDATE ask SET stream = '', answer = x'', until = ? {these} AND answer IS NOT NULL",  # noqa: S608 - a column's name
        (tx.now + REMEMBERED_SECONDS, session.sid, value),
    ).rowcount
    freed = tx.execute(f"DELETE FROM ask {these}", (session.sid, value)).rowcount  # noqa: S608
    session.outstanding -= freed
    if kept:
        tx.execute(f"DELETE {_DIGESTS} AND until <= ?", (session.sid, tx.now))
        tx.execute(
            f"DELETE {_DIGESTS} AND aid NOT IN (SELECT aid {_DIGESTS} ORDER BY until DESC, aid DESC LIMIT ?)",
            (session.sid, session.sid, REMEMBERED_ANSWERS),
        )
    return freed
