"""Operations on asks: ask, answer, take_answer, withdraw."""

from typing import Final

from holdfast.stores.base import Answered, Refusal, Ring
from holdfast.stores.sqlite import rows
from holdfast.stores.sqlite.rows import (
    Exchange,
    Session,
    find_exchange,
    find_session,
    save_exchange,
    save_session,
)
from holdfast.stores.sqlite.transaction import Transaction

REMEMBERED_ANSWERS: Final = 256
"""Answered asks of a stream kept so that an equal answer is accepted again and another refused."""


def ask(tx: Transaction, key: str, name: str, stream: str) -> bool:
    """Register an ask if the session has a place for it."""
    session = rows.the_session(tx, key)
    if tx.one("SELECT 1 FROM ask WHERE sid = ? AND ask = ?", session.sid, name):
        return True
    if session.outstanding >= tx.limits.asks:
        return False
    tx.execute(
        "INSERT INTO ask (sid, ask, stream, owner) VALUES (?, ?, ?, ?)",
        (session.sid, name, stream, tx.seat.owner),
    )
    session.outstanding += 1
    save_session(tx, session)
    if stream == session.record.standalone:
        exchange: Exchange | None = rows.standalone(tx, session)
    else:
        exchange = find_exchange(tx, rows.BY_STREAM, session.sid, stream)
    if exchange is not None:
        exchange.asks += 1
        save_exchange(tx, exchange)
        if exchange.asks > REMEMBERED_ANSWERS:
            _drop_answered(tx, session, stream)
    return True


def _drop_answered(tx: Transaction, session: Session, stream: str) -> None:
    """Forget the oldest answered ask of a stream that remembers too many."""
    count = tx.one("SELECT count(*) FROM ask WHERE sid = ? AND stream = ?", session.sid, stream)
    if count > REMEMBERED_ANSWERS:
        tx.execute(
            "DELETE FROM ask WHERE aid = (SELECT aid FROM ask WHERE sid = ? AND stream = ? AND answer IS NOT NULL"
            " ORDER BY aid LIMIT 1)",
            (session.sid, stream),
        )


def answer(
    tx: Transaction, key: str, principal: str, name: str, digest: bytes, payload: bytes
) -> Answered | Refusal:
    """Keep the first answer."""
    session = find_session(tx, rows.BY_PRINCIPAL, key, principal)
    if session is None:
        return Refusal.NO_SESSION
    known = tx.execute(
        "SELECT aid, owner, answer IS NOT NULL, digest FROM ask WHERE sid = ? AND ask = ?",
        (session.sid, name),
    ).fetchone()
    if known is None:
        return Answered.UNKNOWN
    aid, owner, is_answered, first = known
    if is_answered:
        return Answered.AGAIN if first == digest else Answered.CONFLICT
    tx.execute("UPDATE ask SET answer = ?, digest = ? WHERE aid = ?", (payload, digest, aid))
    session.outstanding -= 1
    save_session(tx, session)
    tx.ring(Ring.ANSWER, key, name, owner)
    return Answered.FIRST


def take_answer(tx: Transaction, key: str, name: str) -> bytes | None:
    """Return an ask's answer."""
    found: bytes | None = tx.one(
        "SELECT answer FROM ask JOIN session USING (sid) WHERE key = ? AND ask = ?", key, name
    )
    return found


def withdraw(tx: Transaction, key: str, name: str) -> None:
    """Forget an ask."""
    session = find_session(tx, rows.BY_KEY, key)
    if session is None:
        return
    waited = tx.one("DELETE FROM ask WHERE sid = ? AND ask = ? RETURNING answer IS NULL", session.sid, name)
    if waited:
        session.outstanding -= 1
        save_session(tx, session)


def forget_all(tx: Transaction, session: Session, exchange: Exchange) -> None:
    """Forget the asks of an exchange that has ended; the caller saves the session."""
    gone = tx.execute(
        "DELETE FROM ask WHERE sid = ? AND stream = ? RETURNING answer IS NULL",
        (session.sid, exchange.stream),
    ).fetchall()
    session.outstanding -= sum(waited for (waited,) in gone)
    exchange.asks = 0
