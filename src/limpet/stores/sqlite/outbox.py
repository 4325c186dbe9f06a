"""Messages that must arrive: closings for listeners, at least once, and announcements for all replicas.

A closing is written in the transaction that closes the session. The caller that closed it calls the listeners and
then reports the closing, which deletes the row. If that process dies in between, the row stays: after 30 seconds
`unreported_closings` hands it to another replica, which calls the listeners instead. So each closing is reported at
least once while any replica is alive, and sometimes twice; the event's name identifies the repeat.

An announcement is a numbered row. A replica reads the rows after its cursor, so no list of readers is needed.
Rows are deleted after ten minutes, or when there are a thousand newer ones.
"""

from typing import Final

import msgspec

from limpet.core.lifecycle import SessionInput
from limpet.stores.base import UNREPORTED_SECONDS, Announced, Closed, SessionRecord, WakeUp
from limpet.stores.sqlite.transaction import Transaction

_AT_ONCE: Final = 100
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(SessionRecord).decode
_CLOSINGS: Final = 100_000
"""Closings kept if no replica ever reports them; the oldest are deleted first."""
_NEWS: Final = 1_000
_NEWS_SECONDS: Final = 600.0


def post(tx: Transaction, closed: Closed) -> None:
    """Keep a closing until it is reported."""
    tx.execute(
        "INSERT INTO closing (event, at, record, reason) VALUES (?, ?, ?, ?)",
        (closed.event, tx.now, _encode(closed.record), closed.reason.value),
    )


def is_posted(tx: Transaction, event: str) -> bool:
    """Return True if there is a closing of this name that was not reported yet."""
    return tx.one("SELECT 1 FROM closing WHERE event = ?", event) is not None


def closing_reported(tx: Transaction, closed: Closed) -> None:
    """Forget a closing that was reported."""
    tx.execute("DELETE FROM closing WHERE event = ?", (closed.event,))


def unreported_closings(tx: Transaction) -> list[Closed]:
    """Return closings that were not reported for a while."""
    rows = tx.execute(
        "UPDATE closing SET at = ? WHERE n IN (SELECT n FROM closing WHERE at <= ? ORDER BY n LIMIT ?)"
        " RETURNING event, record, reason",
        (tx.now, tx.now - UNREPORTED_SECONDS, _AT_ONCE),
    ).fetchall()
    found = [_closed(tx, *row) for row in rows]
    return [closed for closed in found if closed is not None]


def _closed(tx: Transaction, event: str, blob: bytes, reason: str) -> Closed | None:
    """Return a closing; None if it cannot be read, and then it is forgotten."""
    try:
        return Closed(_decode(blob), SessionInput(reason), event)
    except ValueError:
        tx.execute("DELETE FROM closing WHERE event = ?", (event,))
        tx.poisoned.append(f"closing {event}")
        return None


def announce(tx: Transaction, name: str, event: bytes) -> None:
    """Announce an event to all replicas, this one included."""
    if tx.one("SELECT 1 FROM news WHERE name = ?", name):
        return
    tx.execute("INSERT INTO news (name, at, event) VALUES (?, ?, ?)", (name, tx.now, event))
    tx.wake(WakeUp.NEWS, "", "")
    tx.wake_elsewhere(WakeUp.NEWS, "", "")


def announced(tx: Transaction, after: str) -> Announced:
    """Return the announcements after a cursor; without a cursor, the cursor to begin with."""
    if not after:
        return Announced(_newest(tx), [])
    found = tx.execute(
        "SELECT n, event FROM news WHERE n > ? ORDER BY n LIMIT ?", (int(after), _AT_ONCE)
    ).fetchall()
    first = found[0][0] if found else int(_newest(tx)) + 1
    cursor = found[-1][0] if found else first - 1
    return Announced(str(cursor), [event for _, event in found], first > int(after) + 1)


def _newest(tx: Transaction) -> str:
    """Return the number of the newest announcement, which may be forgotten."""
    return str(tx.one("SELECT seq FROM sqlite_sequence WHERE name = 'news'") or 0)


def sweep(tx: Transaction) -> None:
    """Forget old announcements, and closings beyond their bound."""
    newest = tx.one("SELECT max(n) FROM news")
    if newest is not None:
        tx.execute("DELETE FROM news WHERE at < ? OR n <= ?", (tx.now - _NEWS_SECONDS, newest - _NEWS))
    last = tx.one("SELECT max(n) FROM closing")
    if last is not None:
        tx.execute("DELETE FROM closing WHERE n <= ?", (last - _CLOSINGS,))
