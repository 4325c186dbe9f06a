"""Operations on streams and their readers: open_stream, append, read, attach, detach."""

from holdfast.core.lifecycle import Input, State, step
from holdfast.core.stream import Page, Position
from holdfast.stores.base import Attached, Refusal
from holdfast.stores.sqlite import logs, rows
from holdfast.stores.sqlite.exchanges import release
from holdfast.stores.sqlite.rows import find_exchange, find_session, save_exchange, save_session
from holdfast.stores.sqlite.sessions import come_back
from holdfast.stores.sqlite.transaction import Transaction

STANDALONE_FENCE = -1


def open_stream(tx: Transaction, key: str, stream: str, fence: int, tag: int) -> Position:
    """Start an exchange's stream; started twice it is the same one."""
    session = rows.the_session(tx, key)
    exchange = rows.checked(find_exchange(tx, rows.BY_STREAM, session.sid, stream), fence)
    exchange.start(Position(1, tag))
    save_exchange(tx, exchange)
    return exchange.low


def append(tx: Transaction, key: str, stream: str, fence: int, tag: int, data: bytes) -> Position:
    """Add an event and ring."""
    session = rows.the_session(tx, key)
    if fence == STANDALONE_FENCE:
        exchange = rows.standalone(tx, session)
    else:
        exchange = rows.checked(find_exchange(tx, rows.BY_STREAM, session.sid, stream), fence)
    return logs.append(tx, session, exchange, tag, data)


def read(
    tx: Transaction, key: str, stream: str, cursor: Position, max_events: int, max_bytes: int
) -> Page | None:
    """Return what follows the cursor."""
    exchange = find_exchange(tx, rows.BY_KEYS, key, stream)
    if exchange is None or not exchange.has_log:
        return None
    return logs.read(tx, exchange, cursor, max_events, max_bytes)


def attach(
    tx: Transaction, key: str, principal: str, stream: str | None, cursor: Position | None
) -> Attached | Refusal:
    """Make the caller the stream's reader, and whoever read it before no longer."""
    session = find_session(tx, rows.BY_PRINCIPAL, key, principal)
    if session is None:
        return Refusal.NO_SESSION
    is_standalone = stream is None or stream == session.record.standalone
    if is_standalone:
        exchange = rows.standalone(tx, session)
    else:
        found = find_exchange(tx, rows.BY_STREAM, session.sid, stream)
        if found is None:
            return Refusal.UNRESUMABLE
        exchange = found
    if not exchange.has_log or (cursor is not None and not logs.proves(tx, exchange, cursor)):
        return Refusal.UNRESUMABLE
    if cursor is None:
        cursor = exchange.sent if is_standalone else exchange.low
    returned = come_back(tx, session)
    session.readers += not exchange.reader
    exchange.reader = 1
    exchange.generation += 1
    save_exchange(tx, exchange)
    save_session(tx, session)
    return Attached(session.record, exchange.generation, cursor, returned)


def detach(
    tx: Transaction, key: str, stream: str, generation: int, cursor: Position | None, *, broke: bool
) -> bool:
    """Give the reader's place back; start the grace if this break left nobody."""
    session = find_session(tx, rows.BY_KEY, key)
    exchange = find_exchange(tx, rows.BY_STREAM, session.sid, stream) if session else None
    if session is None or exchange is None or exchange.generation != generation or not exchange.reader:
        return False
    exchange.reader = 0
    session.readers -= 1
    session.touched = tx.now
    if cursor is not None and exchange.has_log:
        logs.deliver(tx, exchange, cursor)
        if exchange.kept and exchange.sent == exchange.top:
            release(tx, exchange)
    save_exchange(tx, exchange)
    before = session.state
    after = before
    if broke and not session.readers:
        session.broke = session.touched
        after = step(before, Input.BROKE)
        session.detached = int(after is State.DETACHED)
    save_session(tx, session)
    rows.schedule(tx, session)
    return after is not before
