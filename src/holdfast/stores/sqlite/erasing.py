"""Removing a session with everything of it, also one whose record cannot be read.

A damaged record must cost its own session only: a sweep that found it would otherwise fail as a whole,
again and again. It is removed without being read; its client gets the same answer as for an unknown session.
"""

from holdfast.stores.base import WakeUp
from holdfast.stores.sqlite import state
from holdfast.stores.sqlite.transaction import Transaction


def erase(tx: Transaction, sid: int, key: str, size: int) -> None:
    """Remove the rows of a session, and send CLOSED."""
    own = (sid,)
    # First: its kept bytes leave the total of its principal at once, and not row by row.
    tx.execute("DELETE FROM session WHERE sid = ?", own)
    tx.execute("DELETE FROM event WHERE xid IN (SELECT xid FROM exchange WHERE sid = ?)", own)
    tx.execute("DELETE FROM exchange WHERE sid = ?", own)
    tx.execute("DELETE FROM ask WHERE sid = ?", own)
    tx.execute("DELETE FROM held WHERE sid = ?", own)
    tx.execute("DELETE FROM subscription WHERE sid = ?", own)
    tx.execute("UPDATE total SET sessions = sessions - 1, bytes = bytes - ?", (size,))
    state.forget(tx, key)
    tx.wake(WakeUp.CLOSED, key, "")


def set_aside(tx: Transaction, sid: int, key: str, size: int) -> None:
    """Remove a session that cannot be read; this is logged after the commit."""
    erase(tx, sid, key, size)
    tx.poisoned.append(key)
