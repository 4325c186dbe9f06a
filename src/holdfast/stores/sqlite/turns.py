"""Operations on turns: the calls of a session one after another, in the order of their fences."""

from typing import Final

from holdfast.stores.base import WakeUp
from holdfast.stores.sqlite import rows
from holdfast.stores.sqlite.rows import find_session
from holdfast.stores.sqlite.transaction import Transaction

_FIRST: Final = (
    "SELECT stream, owner FROM exchange WHERE sid = ? AND running = 1 AND control = 0 AND id IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM held WHERE held.sid = exchange.sid AND held.fence < exchange.fence)"
    " ORDER BY fence LIMIT 1"
)
_HOLD: Final = "INSERT OR REPLACE INTO held (sid, stream, fence, owner) VALUES (?, ?, ?, ?)"


def turn(tx: Transaction, key: str, stream: str, fence: int) -> bool:
    """Return True if a call may start."""
    session, _ = rows.writable(tx, key, stream, fence)
    return bool(tx.one(_FIRST, session.sid) == stream)


def hold_turn(tx: Transaction, key: str, stream: str, fence: int) -> None:
    """Keep the turn of a call after its end."""
    session, _ = rows.writable(tx, key, stream, fence)
    tx.execute(_HOLD, (session.sid, stream, fence, tx.identity.owner))


def pass_turn(tx: Transaction, key: str, stream: str, fence: int) -> None:
    """End a turn, and send TURN for the next call."""
    session = find_session(tx, rows.BY_KEY, key)
    if session is None:
        return
    tx.execute("DELETE FROM held WHERE sid = ? AND stream = ? AND fence = ?", (session.sid, stream, fence))
    following = tx.execute(_FIRST, (session.sid,)).fetchone()
    if following is not None:
        tx.wake(WakeUp.TURN, key, *following)


def drop(tx: Transaction, owner: str) -> None:
    """End the turns that a dead replica held. A call that waits for one checks again in a moment."""
    tx.execute("DELETE FROM held WHERE owner = ?", (owner,))
