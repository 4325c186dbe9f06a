"""Documents and logs in the file: numbers, fields and events, compared and applied in a transaction.

`limpet.stores.shared` has the rules and their drafts; this keeps bytes (`stores/shared/shelf.py` says what a shelf
has to do). Each function is one step of a transaction, so a commit needs no other means to be atomic.

    session       numbers, and what the indexes need of them: principal, hint, detached
    field         the named fields, without meaning here; `f:…` is also an index of the complete streams by their ends
    event         the events of logs
    lingering     heads of the streams that a closed session has left; their events stay where they were
    subscription  the field `u`, by URI

The number of a writer's last commit would be a field that every commit changes. Nearly always the writer is the one
before, so the row of the session has the last writer and its number, and `o:<writer>` only those of the others.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Final

import msgspec

from limpet.core.records import Closed, SessionRecord, WakeUp
from limpet.core.rules.document import ExchangeRecord
from limpet.core.stream import Event, Position
from limpet.stores.base import LINGER_SECONDS, LINGER_SHARE
from limpet.stores.shared.commit import (
    PLACES,
    SIZE,
    Commit,
    CommitFate,
    Done,
    LostWrites,
    Reply,
    Stale,
    fate,
    merged,
    unpack,
)
from limpet.stores.shared.fields import TABLES
from limpet.stores.shared.shelf import Erasure, NotKept, Piece, Stored
from limpet.stores.sqlite import outbox, state
from limpet.stores.sqlite.transaction import Transaction

_SIGN: Final = 1 << 63
_SPAN: Final = 1 << 64
"""A tag has 64 bits without a sign, and SQLite's integers have one."""
_HINT, _SIZE, _STATE, _KEPT = (PLACES[name] for name in ("hint", "size", "state", "kept"))
_SWEPT: Final = 200
"""Sessions examined in one transaction: a sweep must not delay other commands for long."""
_PUT: Final = "INSERT INTO field (sid, name, value) VALUES (?, ?, ?) ON CONFLICT (sid, name) DO UPDATE SET value = excluded.value"
decode_exchange: Final[Callable[[bytes], ExchangeRecord]] = TABLES["exchanges"].decode
_uris: Final = msgspec.msgpack.Decoder(list[str]).decode


def readable(numbers: bytes) -> list[float]:
    """Return numbers that may be damaged: what cannot be read is 0."""
    return [one if isfinite(one) else 0.0 for one in unpack(numbers.ljust(SIZE, b"\0"))]


# Loading


def stored(tx: Transaction, key: str, known: bytes = b"") -> Stored | None:
    """Return a session; without its fields if its numbers are the known ones."""
    row = tx.execute("SELECT sid, numbers, writer, number FROM session WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    sid, numbers, writer, number = row
    return Stored(numbers, None if numbers == known else _fields(tx, sid, writer, number))


def _fields(tx: Transaction, sid: int, writer: str, number: int) -> dict[str, bytes]:
    fields = dict(tx.execute("SELECT name, value FROM field WHERE sid = ?", (sid,)).fetchall())
    if writer:
        fields[f"o:{writer}"] = b"%d" % number
    return fields


# Changing


def create(tx: Transaction, record: SessionRecord, numbers: bytes, fields: Mapping[str, bytes]) -> bool:
    """Keep a new session. False if there is one under this key."""
    sid = tx.execute(
        "INSERT INTO session (key, principal, numbers, writer, number, hint, detached) VALUES (?, ?, ?, '', 0, ?, 0)"
        " ON CONFLICT DO NOTHING RETURNING sid",
        (record.key, record.principal, numbers, unpack(numbers)[_HINT]),
    ).fetchone()
    if sid is None:
        return False
    tx.execute_many(_PUT, [(sid[0], name, value) for name, value in fields.items()])
    tx.execute("UPDATE total SET sessions = sessions + 1")
    return True


def commit(tx: Transaction, key: str, commit: Commit) -> Reply:
    """Apply a commit, if the session is the known one, or the fields and numbers that its rules have read are."""
    row = tx.execute(
        "SELECT sid, principal, numbers, writer, number FROM session WHERE key = ?", (key,)
    ).fetchone()
    if row is None:
        return None
    sid, principal, before, writer, number = row
    after = commit.after
    if before != commit.exact:
        last = number if writer == commit.writer else int(_field(tx, sid, f"o:{commit.writer}") or 0)
        verdict = fate(commit, last)
        if verdict is not CommitFate.APPLY:
            return Done(before, sent_before=True) if verdict is CommitFate.BEFORE else LostWrites()
        if commit.compare is None:
            return Stale(before, _fields(tx, sid, writer, number))
        differing = {
            name: value for name, known in commit.compare.items() if (value := _field(tx, sid, name)) != known
        }
        found = merged(commit, before)
        if differing or found is None:
            return Stale(before, differing)
        after = found
    if not commit.frees and any(name[:2] == "x:" for name in commit.put):
        tx.must_live(commit.writer.rpartition("/")[0])
    if commit.keeps > 0 and not tx.may_keep(principal, commit.keeps):
        raise NotKept
    if writer != commit.writer:
        # First: the commit may forget the writer before.
        _change_writer(tx, sid, writer, number, commit.writer)
    _apply(tx, sid, commit)
    _index(tx, sid, principal, before, after)
    tx.execute(
        "UPDATE session SET numbers = ?, writer = ?, number = ? WHERE sid = ?",
        (after, commit.writer, commit.number, sid),
    )
    tell(tx, key, commit.told)
    return Done(after)


def _field(tx: Transaction, sid: int, name: str) -> bytes | None:
    found: bytes | None = tx.one("SELECT value FROM field WHERE sid = ? AND name = ?", sid, name)
    return found


def _apply(tx: Transaction, sid: int, wanted: Commit) -> None:
    """Store the fields and events of a commit."""
    if "u" in wanted.put or "u" in wanted.delete:
        _subscribe(tx, sid, wanted.put.get("u"))
    for name, value in wanted.put.items():
        tx.execute(_PUT, (sid, name, value))
    for name in wanted.delete:
        tx.execute("DELETE FROM field WHERE sid = ? AND name = ?", (sid, name))
    for stream in wanted.drop:
        tx.execute("DELETE FROM event WHERE sid = ? AND stream = ?", (sid, stream))
    if wanted.events:
        _append(tx, sid, wanted.events)
    for stream, seq in wanted.cut.items():
        tx.execute("DELETE FROM event WHERE sid = ? AND stream = ? AND seq <= ?", (sid, stream, seq))


def _append(tx: Transaction, sid: int, events: Mapping[str, Sequence[Event]]) -> None:
    tx.execute_many(
        "INSERT INTO event (sid, stream, seq, tag, data) VALUES (?, ?, ?, ?, ?)",
        [
            (sid, stream, seq, tag if tag < _SIGN else tag - _SPAN, data)
            for stream, added in events.items()
            for (seq, tag), data in added
        ],
    )


def _subscribe(tx: Transaction, sid: int, value: bytes | None) -> None:
    """Carry the subscriptions of a session over to their index."""
    now = set() if value is None else set(_uris(value))
    before = {uri for (uri,) in tx.execute("SELECT uri FROM subscription WHERE sid = ?", (sid,))}
    tx.execute_many(
        "DELETE FROM subscription WHERE uri = ? AND sid = ?", [(uri, sid) for uri in before - now]
    )
    tx.execute_many("INSERT INTO subscription (uri, sid) VALUES (?, ?)", [(uri, sid) for uri in now - before])


def _index(tx: Transaction, sid: int, principal: str, before: bytes, after: bytes) -> None:
    """Carry the numbers that have changed over to the indexes and totals."""
    was, now = unpack(before), unpack(after)
    if was[_HINT] != now[_HINT] or was[_STATE] != now[_STATE]:
        tx.execute(
            "UPDATE session SET hint = ?, detached = ? WHERE sid = ?", (now[_HINT], int(now[_STATE]), sid)
        )
    if was[_SIZE] != now[_SIZE]:
        tx.count_bytes(int(now[_SIZE] - was[_SIZE]))
    if was[_KEPT] != now[_KEPT]:
        tx.keep(principal, int(now[_KEPT] - was[_KEPT]))


def _change_writer(tx: Transaction, sid: int, before: str, number: int, after: str) -> None:
    if before:
        tx.execute(_PUT, (sid, f"o:{before}", b"%d" % number))
    tx.execute("DELETE FROM field WHERE sid = ? AND name = ?", (sid, f"o:{after}"))


def tell(tx: Transaction, key: str, told: Iterable[tuple[WakeUp, str, str]]) -> None:
    """Send wake-ups in other processes once this is committed."""
    for kind, name, replica in told:
        tx.wake_elsewhere(kind, key, name, replica)


# Closing


def remove(tx: Transaction, key: str, erasure: Erasure) -> bool:
    """End a session that is exactly the known one."""
    row = tx.execute("SELECT sid, numbers FROM session WHERE key = ?", (key,)).fetchone()
    if row is None or row[1] != erasure.exact:
        return outbox.is_posted(tx, erasure.event)
    sid = row[0]
    if erasure.events:
        _append(tx, sid, erasure.events)
    streams = list(erasure.left)
    forget(tx, key, sid, erasure.exact, streams)
    _leave(tx, key, sid, erasure)
    tell(tx, key, erasure.told)
    outbox.post(tx, Closed(erasure.record, erasure.reason, erasure.event))
    return True


def forget(tx: Transaction, key: str, sid: int, numbers: bytes, kept: Sequence[str] = ()) -> None:
    """Remove the rows of a session, except the events of these streams, and send CLOSED."""
    principal: str = tx.one("DELETE FROM session WHERE sid = ? RETURNING principal", sid)
    tx.execute("DELETE FROM field WHERE sid = ?", (sid,))
    tx.execute("DELETE FROM subscription WHERE sid = ?", (sid,))
    places = ", ".join("?" * len(kept))
    tx.execute(f"DELETE FROM event WHERE sid = ? AND stream NOT IN ({places})", (sid, *kept))  # noqa: S608 - question marks
    tx.execute("UPDATE total SET sessions = sessions - 1")
    known = readable(numbers)
    tx.count_bytes(-int(known[_SIZE]))
    tx.keep(principal, -int(known[_KEPT]))
    state.forget(tx, key)
    tx.wake_elsewhere(WakeUp.CLOSED, key, "")


def _leave(tx: Transaction, key: str, sid: int, erasure: Erasure) -> None:
    """Keep the streams that a session has left, and forget the oldest ones while all together have too many bytes."""
    if not erasure.left:
        return
    size = erasure.size // len(erasure.left)
    tx.execute_many(
        "INSERT INTO lingering (sid, key, stream, head, bytes, until) VALUES (?, ?, ?, ?, ?, ?)",
        [(sid, key, stream, head, size, tx.now + LINGER_SECONDS) for stream, head in erasure.left.items()],
    )
    most = tx.limits.streams_bytes // LINGER_SHARE
    while tx.one("SELECT coalesce(sum(bytes), 0) FROM lingering") > most:
        _forget_left(tx, "n = (SELECT min(n) FROM lingering)")


def _forget_left(tx: Transaction, which: str, *values: Any) -> None:
    gone = tx.execute(f"DELETE FROM lingering WHERE {which} RETURNING sid, stream", values).fetchall()  # noqa: S608 - of this module
    tx.execute_many("DELETE FROM event WHERE sid = ? AND stream = ?", gone)


def sweep(tx: Transaction) -> None:
    """Forget the streams of closed sessions whose time is over."""
    _forget_left(tx, "until <= ?", tx.now)


def discard(tx: Transaction, key: str) -> None:
    """Remove a session that cannot be read.

    A damaged field must cost its own session only: a sweep that found it would otherwise fail as a whole, again and
    again.
    """
    row = tx.execute("SELECT sid, numbers FROM session WHERE key = ?", (key,)).fetchone()
    if row is not None:
        forget(tx, key, *row)


# Reading logs


def piece(tx: Transaction, key: str, stream: str, seq: int, max_events: int, max_bytes: int) -> Piece | None:
    """Return the events of a log after a number."""
    row = tx.execute(
        "SELECT sid, value FROM session JOIN field USING (sid) WHERE key = ? AND name = ?", (key, f"l:{stream}")
    ).fetchone() or tx.execute(
        "SELECT sid, head FROM lingering WHERE key = ? AND stream = ? AND until > ? ORDER BY n DESC", (key, stream, tx.now)
    ).fetchone()  # fmt: skip
    if row is None:
        return None
    sid, head = row
    found = tx.execute(
        "SELECT seq, tag, data FROM event WHERE sid = ? AND stream = ? AND seq >= ? ORDER BY seq LIMIT ?",
        (sid, stream, seq, max_events + 1),
    ).fetchall()
    tag = found.pop(0)[1] % _SPAN if found and found[0][0] == seq else None
    del found[max_events:]
    size = 0
    for count, (_, _, data) in enumerate(found):
        size += len(data)
        if count and size > max_bytes:
            del found[count:]
            break
    return Piece(head, tag, [Event(Position(number, mark % _SPAN), data) for number, mark, data in found])


def sizes(tx: Transaction, key: str, stream: str) -> list[tuple[int, int, int]]:
    """Return number, tag and size of each event of a stream."""
    found = tx.execute(
        "SELECT seq, tag, length(data) FROM event JOIN session USING (sid) WHERE key = ? AND stream = ? ORDER BY seq",
        (key, stream),
    )
    return [(seq, tag % _SPAN, size) for seq, tag, size in found]


# Indexes


def due(tx: Transaction) -> list[str]:
    """Return some of the sessions whose hint has passed."""
    found = tx.execute("SELECT key FROM session WHERE hint <= ? ORDER BY hint LIMIT ?", (tx.now, _SWEPT))
    return [key for (key,) in found]


def sessions(tx: Transaction, principal: str | None = None) -> list[str]:
    """Return the keys of all open sessions, or of one principal's, the oldest first."""
    if principal is None:
        found = tx.execute("SELECT key FROM session ORDER BY sid")
    else:
        found = tx.execute("SELECT key FROM session WHERE principal = ? ORDER BY sid", (principal,))
    return [key for (key,) in found]


def subscribers(tx: Transaction, uri: str) -> list[str]:
    """Return the sessions that subscribed."""
    found = tx.execute("SELECT key FROM subscription JOIN session USING (sid) WHERE uri = ?", (uri,))
    return [key for (key,) in found]


def oldest_finished(tx: Transaction) -> tuple[str, str] | None:
    """Return the complete stream without a reader that ended first: the key of its session, and its name."""
    for sid, name in tx.execute("SELECT sid, name FROM field WHERE name GLOB 'f:*' ORDER BY value"):
        exchange = _field(tx, sid, f"x:{name[2:]}")
        if exchange is not None and not decode_exchange(exchange).reader:
            key: str = tx.one("SELECT key FROM session WHERE sid = ?", sid)
            return key, name[2:]
    return None
