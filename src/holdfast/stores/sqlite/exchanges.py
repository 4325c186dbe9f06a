"""Operations on exchanges: claim, give_back, settle, keep, cancel."""

from typing import Final

from holdfast.core.lifecycle import SessionState
from holdfast.core.rules.calls import claimed_already, duplicate, is_stale
from holdfast.core.stream import before_terminal
from holdfast.errors import StreamClosed
from holdfast.stores.base import Claim, Claimed, Duplicate, Refusal, WakeUp
from holdfast.stores.rules import id_text
from holdfast.stores.sqlite import asks, logs, rows
from holdfast.stores.sqlite.rows import (
    ExchangeRow,
    SessionRow,
    find_exchange,
    find_session,
    save_exchange,
    save_session,
    schedule,
    set_holds,
)
from holdfast.stores.sqlite.transaction import Transaction
from holdfast.wire.jsonrpc import RequestId

_KEPT: Final = 1
"""Added to the time since which an answer is kept: 0 means that it is not."""


def claim(tx: Transaction, key: str, principal: str, wanted: Claim) -> Claimed | Duplicate | Refusal:
    """Register the exchange if its id is free and there is room."""
    session = find_session(tx, rows.BY_PRINCIPAL, key, principal)
    if session is None:
        return Refusal.NO_SESSION
    mine = find_exchange(tx, rows.BY_STREAM, session.sid, wanted.stream)
    is_withdrawn = bool(session.withdrawn) and wanted.stream in rows.withdrawn_in(session)
    if mine is not None:
        if mine.running and mine.owner == tx.identity.owner:
            if is_withdrawn:
                _unclaim(tx, session, mine)
                return Refusal.WITHDRAWN
            return Claimed(session.record, mine.fence, returned=False)
        return claimed_already(
            wanted.stream,
            running=bool(mine.running),
            has_reader=mine.reader is not None,
        )
    if is_withdrawn:
        rows.withdraw(tx, session, wanted.stream, surely=True)
        return Refusal.WITHDRAWN
    holder = find_exchange(tx, rows.BY_ID, session.sid, id_text(wanted.id))
    if holder is not None and not session.record.isolate:
        verdict = duplicate(
            wanted,
            holder.stream,
            holder.digest,
            running=bool(holder.running),
            has_reader=holder.reader is not None,
            stale=is_stale(holder.kept - _KEPT, session.record.grace, tx.now),
        )
        if verdict is not None:
            return verdict
    is_busy = session.calls >= tx.limits.running + tx.limits.queued
    if not wanted.control and is_busy:
        if holder is not None and not session.record.isolate:
            release(tx, holder)
        return Refusal.BUSY
    return _register(tx, session, wanted, holder)


def _register(tx: Transaction, session: SessionRow, wanted: Claim, holder: ExchangeRow | None) -> Claimed:
    tx.must_live()
    if holder is not None:
        release(tx, holder)
    returned = session.client_seen(tx.now)
    session.fence += 1
    session.running += 1
    session.calls += not wanted.control
    session.readers += 1
    rows.insert_exchange(tx, session, wanted, running=True)
    save_session(tx, session)
    return Claimed(session.record, session.fence, returned)


def _kept(tx: Transaction) -> int:
    """Return the value of the column for an answer that is kept from now on."""
    return int(tx.now) + _KEPT


def release(tx: Transaction, exchange: ExchangeRow) -> None:
    """Free the request id of an exchange, if it has the id, and the answer that was kept for a repeat."""
    set_holds(tx, exchange, holds=False)
    if exchange.kept:
        exchange.kept = 0
        save_exchange(tx, exchange)


def give_back(tx: Transaction, key: str, stream: str, fence: int) -> None:
    """End an exchange of which nothing ran, and remember its name."""
    session = find_session(tx, rows.BY_KEY, key)
    if session is None:
        return
    exchange = find_exchange(tx, rows.BY_STREAM, session.sid, stream)
    if exchange is None or (exchange.running and not fence):
        rows.withdraw(tx, session, stream, surely=fence > 0)
    elif exchange.running and exchange.fence == fence:
        _unclaim(tx, session, exchange)


def _unclaim(tx: Transaction, session: SessionRow, exchange: ExchangeRow) -> None:
    end(tx, session, exchange, None, tag=0, keep=False)
    rows.withdraw(tx, session, exchange.stream, surely=True)


def settle(
    tx: Transaction, key: str, stream: str, fence: int, terminal: bytes | None, *, tag: int, keep: bool
) -> None:
    """End an exchange, with or without a stream."""
    session = rows.the_session(tx, key)
    exchange = find_exchange(tx, rows.BY_STREAM, session.sid, stream)
    if exchange is None and terminal is None and fence <= session.fence:
        return
    if terminal is not None and exchange is not None and _has_settled(exchange, fence, tag):
        return
    exchange = rows.checked(exchange, fence)
    if exchange.id is None:
        raise StreamClosed
    end(tx, session, exchange, terminal, tag=tag, keep=keep)


def end(
    tx: Transaction,
    session: SessionRow,
    exchange: ExchangeRow,
    terminal: bytes | None,
    *,
    tag: int,
    keep: bool,
) -> None:
    """End an exchange that is in flight, and save everything."""
    exchange.running = 0
    session.running -= 1
    session.calls -= not exchange.control
    session.settled = session.touched = tx.now
    if exchange.asks:
        asks.forget_all(tx, session, exchange)
    exchange.kept = _kept(tx) if keep and terminal is not None else 0
    if terminal is None:
        logs.forget(tx, session, exchange)
        save_session(tx, session)
    else:
        set_holds(tx, exchange, holds=keep and bool(exchange.holds))
        _write_end(tx, session, exchange, tag, terminal)
    # `hint` is when the next sweep examines the session. If it is too early, that sweep sets it again. It is too late
    # if a sweep found this exchange running and moved the hint to the end of the session's lifetime.
    if session.hint > session.settled + session.record.idle or session.state is SessionState.DETACHED:
        schedule(tx, session)


def _has_settled(exchange: ExchangeRow, fence: int, tag: int) -> bool:
    """Return True if exactly this end of an exchange is written already."""
    return bool(exchange.fence == fence and exchange.closed and exchange.top.tag == tag)


def _write_end(
    tx: Transaction, session: SessionRow, exchange: ExchangeRow, tag: int, terminal: bytes
) -> None:
    exchange.start(before_terminal(tag))
    logs.append(tx, session, exchange, [(tag, terminal)], final=True)
    logs.finish(tx, session, exchange)


def keep(tx: Transaction, key: str, stream: str, wanted: Claim, terminal: bytes | None, *, tag: int) -> None:
    """Keep a settled exchange's answer for a repeat, unless its id is in use again or a reader has received it."""
    session = find_session(tx, rows.BY_KEY, key)
    if session is None or find_exchange(tx, rows.BY_ID, session.sid, id_text(wanted.id)) is not None:
        return
    exchange = find_exchange(tx, rows.BY_STREAM, session.sid, stream)
    if exchange is None:
        if terminal is not None:
            exchange = rows.insert_exchange(tx, session, wanted, running=False)
            exchange.kept = _kept(tx)
            _write_end(tx, session, exchange, tag, terminal)
        return
    if not exchange.has_log or exchange.sent == exchange.top:
        return
    exchange.kept = _kept(tx)
    save_exchange(tx, exchange)
    set_holds(tx, exchange, holds=True)


def cancel(tx: Transaction, key: str, principal: str, request_id: RequestId) -> None:
    """Send CANCEL for the exchange in flight under this id, if there is exactly one."""
    matches = tx.execute(
        "SELECT xid, stream, owner FROM exchange JOIN session USING (sid)"
        " WHERE key = ? AND principal = ? AND id = ? AND exchange.running = 1 LIMIT 2",
        (key, principal, id_text(request_id)),
    ).fetchall()
    if len(matches) == 1:
        [(xid, stream, owner)] = matches
        # For an owner that misses the wake-up.
        tx.execute("UPDATE exchange SET cancelled = 1 WHERE xid = ?", (xid,))
        tx.wake(WakeUp.CANCEL, key, stream, owner)
