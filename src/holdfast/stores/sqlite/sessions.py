"""Operations on sessions: open, find, change, close, sweep, subscriptions."""

from typing import Any, Final

import msgspec

from holdfast.core.lifecycle import SessionInput
from holdfast.core.rules.life import is_crowded
from holdfast.stores.base import Closed, Ending, Found, Listing, Refusal, SessionRecord, Status, Totals
from holdfast.stores.kept import growth
from holdfast.stores.sqlite import kept, lingering, outbox, replicas, rows, state, tasks
from holdfast.stores.sqlite.erasing import erase
from holdfast.stores.sqlite.rows import SessionRow, find_session, save_session, schedule
from holdfast.stores.sqlite.transaction import Transaction

SWEPT_AT_ONCE: Final = 200
"""Sessions examined in one transaction: a sweep must not delay other commands for long."""


def open_session(tx: Transaction, record: SessionRecord, *, evict: bool) -> list[Closed] | Refusal:
    """Keep a new session; evict the longest idle session of a principal that is at its limit."""
    if find_session(tx, rows.BY_KEY, record.key) is not None:
        return []
    evicted: list[Closed] = []
    if _is_crowded(tx, record.principal, evict=evict):
        idle = find_session(tx, rows.LONGEST_IDLE, record.principal) if evict else None
        if idle is None:
            return Refusal.FULL
        evicted.append(end(tx, idle, SessionInput.EVICTED))
    schedule(tx, rows.insert_session(tx, record))
    return evicted


def _is_crowded(tx: Transaction, principal: str, *, evict: bool) -> bool:
    own = tx.one("SELECT count(*) FROM session WHERE principal = ?", principal) if evict else 0
    return is_crowded(tx.limits, tx.one("SELECT sessions FROM total"), own)


def find(tx: Transaction, key: str, principal: str) -> Found | None:
    """Return the session if it is open and belongs to this principal. Counts as a sign of the client."""
    session = find_session(tx, rows.BY_PRINCIPAL, key, principal)
    if session is None:
        return None
    returned = session.client_seen(tx.now)
    save_session(tx, session)
    return Found(session.record, returned)


def look(tx: Transaction, key: str) -> Status | None:
    """Return an open session."""
    row = tx.execute(rows.BY_KEY, (key,)).fetchone()
    return None if row is None else _status(tx, row)


def sessions_after(tx: Transaction, after: str, limit: int) -> Listing:
    """Return the sessions that follow in the order of their keys."""
    found = tx.execute(rows.AFTER, (after, limit)).fetchall()
    listed = [status for row in found if (status := _status(tx, row)) is not None]
    return Listing(listed, found[-1][1] if len(found) == limit else "")


def _status(tx: Transaction, row: tuple[Any, ...]) -> Status | None:
    """Return the status of a row; None if its record cannot be read: the next operation that writes removes it."""
    try:
        session = SessionRow(row)
    except msgspec.DecodeError:
        return None
    held: int = tx.one("SELECT held FROM session WHERE sid = ?", session.sid)
    return session.status(tx.now, log_bytes=session.bytes, kept_bytes=held)


def totals(tx: Transaction) -> Totals:
    """Return the totals of all sessions."""
    sessions, size = tx.execute("SELECT sessions, bytes FROM total").fetchone()
    detached = tx.one("SELECT count(*) FROM session WHERE detached = 1")
    return Totals(sessions, detached, size, tx.one("SELECT coalesce(sum(bytes), 0) FROM kept"))


def change(tx: Transaction, key: str, level: str | None, initialized: bool | None) -> None:  # noqa: FBT001 - None: leave it
    """Set the named fields."""
    session = find_session(tx, rows.BY_KEY, key)
    if session is None:
        return
    given = {"level": level, "initialized": initialized}
    rows.change_record(tx, session, **{name: value for name, value in given.items() if value is not None})


def take_home(tx: Transaction, key: str, expected: str) -> SessionRecord | None:
    """Make this replica the home if the home is `expected`."""
    session = find_session(tx, rows.BY_KEY, key)
    if session is None:
        return None
    replica = tx.identity.replica
    if session.record.home == expected != replica:
        rows.change_record(tx, session, home=replica)
        session.record.home = replica
    return session.record


def close(tx: Transaction, key: str, reason: SessionInput, ending: Ending | None) -> Closed | None:
    """Close a session once. Its exchanges in flight end too."""
    session = find_session(tx, rows.BY_KEY, key)
    return None if session is None else end(tx, session, reason, ending)


def sweep(tx: Transaction) -> tuple[list[Closed], bool]:
    """Close some of the sessions that are due; True if there may be more."""
    tasks.sweep(tx)
    state.sweep(tx)
    replicas.sweep(tx)
    outbox.sweep(tx)
    lingering.sweep(tx)
    tx.tidy()
    due = tx.execute(rows.DUE, (tx.now, SWEPT_AT_ONCE)).fetchall()
    closed: list[Closed] = []
    for row in due:
        session = rows.read_session(tx, row)
        if session is None:
            continue
        reason = session.ends_now(tx.now)
        if reason is None:
            schedule(tx, session, at=session.next_look(tx.now), afresh=True)
        else:
            closed.append(end(tx, session, reason))
    return closed, len(due) == SWEPT_AT_ONCE


def end(tx: Transaction, session: SessionRow, reason: SessionInput, ending: Ending | None = None) -> Closed:
    """Remove a session with everything of it, except streams that have a reader."""
    lingering.keep(tx, session, ending)
    erase(tx, session.sid, session.key, session.bytes)
    return outbox.post(tx, session.record, reason)


def sessions(tx: Transaction, principal: str | None) -> list[str]:
    """Return the keys of all open sessions, or of one principal's, the oldest first."""
    if principal is None:
        found = tx.execute("SELECT key FROM session ORDER BY sid")
    else:
        found = tx.execute("SELECT key FROM session WHERE principal = ? ORDER BY sid", (principal,))
    return [key for (key,) in found]


def subscribe(tx: Transaction, key: str, uri: str) -> bool:
    """Remember a subscription."""
    row = tx.execute("SELECT sid, principal FROM session WHERE key = ?", (key,)).fetchone()
    if row is None:
        return False
    sid, principal = row
    if tx.one("SELECT 1 FROM subscription WHERE uri = ? AND sid = ?", uri, sid):
        return True
    [(count, size)] = tx.execute(
        "SELECT count(*), coalesce(sum(length(CAST(uri AS BLOB))), 0) FROM subscription WHERE sid = ?", (sid,)
    )
    more = len(uri.encode())
    if count >= tx.limits.subscriptions or size + more > tx.limits.subscription_bytes:
        return False
    if not kept.has_room(tx, principal, growth(None, more)):
        return False
    tx.execute("INSERT INTO subscription (uri, sid) VALUES (?, ?)", (uri, sid))
    return True


def unsubscribe(tx: Transaction, key: str, uri: str) -> None:
    """Forget a subscription."""
    tx.execute(
        "DELETE FROM subscription WHERE uri = ? AND sid = (SELECT sid FROM session WHERE key = ?)", (uri, key)
    )


def subscriptions(tx: Transaction, key: str) -> list[str]:
    """Return the resources that a session subscribed to."""
    found = tx.execute(
        "SELECT uri FROM subscription JOIN session USING (sid) WHERE key = ? ORDER BY uri", (key,)
    )
    return [uri for (uri,) in found]


def subscribers(tx: Transaction, uri: str) -> list[str]:
    """Return the sessions that subscribed."""
    found = tx.execute("SELECT key FROM subscription JOIN session USING (sid) WHERE uri = ?", (uri,))
    return [key for (key,) in found]
