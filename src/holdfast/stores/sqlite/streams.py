"""Operations on streams and their readers: open_stream, append, read, attach, detach."""

from holdfast.core.stream import NewEvents, Page, Position
from holdfast.stores.base import STANDALONE_FENCE, Attached, Probed, Refusal, WakeUp
from holdfast.stores.sqlite import lingering, logs, rows
from holdfast.stores.sqlite.exchanges import release
from holdfast.stores.sqlite.rows import find_exchange, find_session, save_exchange, save_session
from holdfast.stores.sqlite.transaction import Transaction, replica_of


def open_stream(tx: Transaction, key: str, stream: str, fence: int, tag: int) -> Position:
    """Start an exchange's stream. A second call returns the same stream."""
    _, exchange = rows.writable(tx, key, stream, fence)
    exchange.start(Position(1, tag))
    save_exchange(tx, exchange)
    return exchange.low


def append(tx: Transaction, key: str, stream: str, fence: int, events: NewEvents) -> Position:
    """Add events and send STREAM."""
    if fence == STANDALONE_FENCE:
        session = rows.the_session(tx, key)
        exchange = rows.standalone(tx, session)
    else:
        session, exchange = rows.writable(tx, key, stream, fence)
    return logs.append(tx, session, exchange, events)


def read(
    tx: Transaction, key: str, stream: str, cursor: Position, max_events: int, max_bytes: int
) -> Page | None:
    """Return the events after the cursor."""
    exchange = find_exchange(tx, rows.BY_KEYS, key, stream) or lingering.find(tx, key, stream)
    if exchange is None or not exchange.has_log:
        return None
    return logs.read(tx, exchange, cursor, max_events, max_bytes)


def attach(
    tx: Transaction,
    key: str,
    principal: str,
    stream: str | None,
    cursor: Position | None,
    since: int | None,
) -> Attached | Refusal:
    """Make the caller the stream's reader, in the place of the reader before it."""
    session = find_session(tx, rows.BY_PRINCIPAL, key, principal)
    if session is None:
        return Refusal.NO_SESSION
    is_standalone = stream is None or stream == session.record.standalone
    if is_standalone:
        exchange = rows.standalone(tx, session)
    else:
        found = find_exchange(tx, rows.BY_STREAM, session.sid, stream)
        if found is None or not found.has_log:
            return _refusal(session, stream, found)
        exchange = found
    if cursor is not None and not logs.proves(tx, exchange, cursor):
        return Refusal.UNRESUMABLE
    if cursor is None:
        cursor = exchange.sent if is_standalone else exchange.began
    if since is not None:
        if exchange.reader is not None and exchange.generation != since:
            return Refusal.BUSY
        cursor = max(cursor, exchange.sent)
        if exchange.reader is not None:
            return Attached(session.record, since, cursor, returned=False, finished=exchange.is_end(cursor))
    tx.must_live()
    returned = session.client_seen(tx.now)
    if exchange.reader is None:
        session.readers += 1
    else:
        tx.wake_elsewhere(WakeUp.TAKEN, key, exchange.stream, replica_of(exchange.reader))
    exchange.reader = tx.identity.owner
    exchange.generation += 1
    save_exchange(tx, exchange)
    save_session(tx, session)
    rows.follow(tx, session, exchange.stream)
    return Attached(session.record, exchange.generation, cursor, returned, exchange.is_end(cursor))


def _refusal(session: rows.SessionRow, stream: str | None, found: rows.ExchangeRow | None) -> Refusal:
    """Return why a stream without a log cannot be read."""
    if found is None:
        is_given_back = rows.withdrawn_in(session).get(stream or "", False)
        return Refusal.WITHDRAWN if is_given_back else Refusal.UNRESUMABLE
    return Refusal.UNBEGUN if found.running else Refusal.UNRESUMABLE


def detach(
    tx: Transaction, key: str, stream: str, generation: int, cursor: Position | None, *, broke: bool
) -> bool:
    """Remove the reader of a stream; the grace period begins if this break left no reader."""
    session = find_session(tx, rows.BY_KEY, key)
    exchange = find_exchange(tx, rows.BY_STREAM, session.sid, stream) if session else None
    if session is None or exchange is None or exchange.generation != generation or exchange.reader is None:
        return False
    exchange.reader = None
    if cursor is not None and exchange.has_log:
        logs.deliver(tx, exchange, cursor)
        if exchange.kept and exchange.sent == exchange.top:
            release(tx, exchange)
    save_exchange(tx, exchange)
    is_detached = session.reader_lost(tx.now, broke=broke)
    save_session(tx, session)
    rows.schedule(tx, session)
    return is_detached


def probe(tx: Transaction, key: str, stream: str) -> Probed | None:
    """Return where a stream is read, and send PROBE there."""
    session = find_session(tx, rows.BY_KEY, key)
    if session is None:
        return None
    withdrawn = rows.withdrawn_in(session)
    found = tx.execute(
        "SELECT running, kept, reader, word FROM exchange WHERE sid = ? AND stream = ?", (session.sid, stream)
    ).fetchone()
    if found is None:
        if not withdrawn.get(stream, False):
            return None
        return Probed(running=False, kept=False, reader="", word=0, withdrawn=True)
    running, kept, owner, word = found
    reader = replica_of(owner or "")
    if reader:
        tx.wake_elsewhere(WakeUp.PROBE, key, stream, reader)
    return Probed(bool(running), bool(kept), reader, word, withdrawn=stream in withdrawn)


def vouch(tx: Transaction, key: str, stream: str, *, alive: bool) -> None:
    """Record whether a stream's reader is alive."""
    tx.execute(
        "UPDATE exchange SET word = word / 2 * 2 + 2 + ?"
        " WHERE stream = ? AND sid = (SELECT sid FROM session WHERE key = ?)",
        (alive, stream, key),
    )
