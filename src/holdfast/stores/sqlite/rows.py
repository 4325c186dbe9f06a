"""Sessions and exchanges as rows: loaded whole, changed as objects, saved inside the same transaction."""

import builtins
from math import inf
from typing import Any, Final

import msgspec

from holdfast.core.lifecycle import SessionState
from holdfast.core.rules.calls import remember_withdrawn
from holdfast.core.rules.clock import SessionClock
from holdfast.core.stream import Position
from holdfast.errors import Fenced, SessionGone, StreamClosed
from holdfast.stores.base import Claim, SessionRecord
from holdfast.stores.rules import id_text
from holdfast.stores.sqlite.erasing import set_aside
from holdfast.stores.sqlite.transaction import Transaction

_SIGN: Final = 1 << 63
_SPAN: Final = 1 << 64

encode_record: Final = msgspec.json.Encoder().encode
decode_record: Final = msgspec.json.Decoder(SessionRecord).decode
_withdrawn: Final = msgspec.json.Decoder(dict[str, bool])


def signed(tag: int) -> int:
    """Return a tag of 64 bits as SQLite's integers hold it."""
    return tag - _SPAN if tag >= _SIGN else tag


def _position(seq: int, tag: int) -> Position:
    return Position(seq, tag % _SPAN)


class SessionRow(SessionClock):
    """One row of `session`."""

    __slots__ = (
        "broke", "bytes", "calls", "detached", "fence", "hint", "key", "opened", "outstanding", "readers",
        "record", "running", "settled", "sid", "touched", "withdrawn",
    )  # fmt: skip

    sid: int
    key: str
    detached: int
    opened: float
    touched: float
    settled: float
    broke: float
    hint: float
    fence: int
    running: int
    calls: int
    readers: int
    bytes: int
    outstanding: int
    withdrawn: str
    """The streams that do not start, as `remember_withdrawn` keeps them, in JSON; empty: none."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        (
            self.sid, self.key, record, self.detached, self.opened, self.touched, self.settled, self.broke,
            self.hint, self.fence, self.running, self.calls, self.readers, self.bytes, self.outstanding,
            self.withdrawn,
        ) = row  # fmt: skip
        self.record: SessionRecord = decode_record(record)

    @property
    def state(self) -> SessionState:
        """The state of the session."""
        return SessionState.DETACHED if self.detached else SessionState.ATTACHED

    @state.setter
    def state(self, state: SessionState) -> None:
        self.detached = int(state is SessionState.DETACHED)


_SESSION = (
    "SELECT sid, key, record, detached, opened, touched, settled, broke, hint, fence, running, calls, readers,"
    " bytes, outstanding, withdrawn FROM session "
)
BY_KEY: Final = _SESSION + "WHERE key = ?"
BY_PRINCIPAL: Final = _SESSION + "WHERE key = ? AND principal = ?"
BY_SID: Final = _SESSION + "WHERE sid = ?"
LONGEST_IDLE: Final = (
    _SESSION + "WHERE principal = ? AND running = 0 AND readers = 0 ORDER BY touched, sid LIMIT 1"
)
AFTER: Final = _SESSION + "WHERE key > ? ORDER BY key LIMIT ?"
DUE: Final = _SESSION + "WHERE hint <= ? ORDER BY hint LIMIT ?"


def find_session(tx: Transaction, statement: str, *values: Any) -> SessionRow | None:
    """Return the session that a statement of this module names."""
    row = tx.execute(statement, values).fetchone()
    return None if row is None else read_session(tx, row)


def read_session(tx: Transaction, row: tuple[Any, ...]) -> SessionRow | None:
    """Return the session of a row; None if its record cannot be read, and then the session is removed."""
    try:
        return SessionRow(row)
    except msgspec.DecodeError:
        sid, key, *_, size, _, _ = row
        set_aside(tx, sid, key, size)
        return None


def the_session(tx: Transaction, key: str) -> SessionRow:
    """Return an open session. Raises SessionGone if there is no such session."""
    session = find_session(tx, BY_KEY, key)
    if session is None:
        raise SessionGone
    return session


def insert_session(tx: Transaction, record: SessionRecord) -> SessionRow:
    """Begin a session."""
    tx.execute(
        "INSERT INTO session (key, principal, record, detached, opened, touched, settled, broke, hint, fence,"
        " running, calls, readers, bytes, outstanding)"
        " VALUES (?, ?, ?, 0, ?, ?, 0, 0, ?, 0, 0, 0, 0, 0, 0)",
        (record.key, record.principal, encode_record(record), tx.now, tx.now, inf),
    )
    tx.execute("UPDATE total SET sessions = sessions + 1")
    return the_session(tx, record.key)


def save_session(tx: Transaction, session: SessionRow) -> None:
    """Write the fields that change with the work of a session. Its record and its hint are written where they change."""
    tx.execute(
        "UPDATE session SET detached = ?, touched = ?, settled = ?, broke = ?, fence = ?, running = ?, calls = ?,"
        " readers = ?, bytes = ?, outstanding = ? WHERE sid = ?",
        (
            session.detached, session.touched, session.settled, session.broke, session.fence, session.running,
            session.calls, session.readers, session.bytes, session.outstanding, session.sid,
        ),
    )  # fmt: skip


def withdrawn_in(session: SessionRow) -> dict[str, bool]:
    """Return the streams of a session that do not start (`remember_withdrawn`)."""
    return _withdrawn.decode(session.withdrawn) if session.withdrawn else {}


def withdraw(tx: Transaction, session: SessionRow, stream: str, *, surely: bool) -> None:
    """Remember that an exchange does not start."""
    known = withdrawn_in(session)
    remember_withdrawn(known, stream, surely=surely)
    _save_withdrawn(tx, session, known)


def follow(tx: Transaction, session: SessionRow, stream: str) -> None:
    """Forget that a stream was given back: a connection waits for it again."""
    known = withdrawn_in(session)
    if known.pop(stream, None) is not None:
        _save_withdrawn(tx, session, known)


def _save_withdrawn(tx: Transaction, session: SessionRow, known: dict[str, bool]) -> None:
    session.withdrawn = msgspec.json.encode(known).decode()
    tx.execute("UPDATE session SET withdrawn = ? WHERE sid = ?", (session.withdrawn, session.sid))


def change_record(tx: Transaction, session: SessionRow, **changes: object) -> None:
    """Set fields of a session's record; fields that this release does not know stay unchanged."""
    before = tx.one("SELECT record FROM session WHERE sid = ?", session.sid)
    after = msgspec.json.encode(msgspec.json.decode(before) | changes)
    tx.execute("UPDATE session SET record = ? WHERE sid = ?", (after, session.sid))


def schedule(tx: Transaction, session: SessionRow, *, at: float = -inf, afresh: bool = False) -> None:
    """Set `hint`, when a sweep examines the session next. An earlier hint stays: a change would cost a write."""
    due = max(at, session.due()[0])
    if afresh or due < session.hint:
        session.hint = due
        tx.execute("UPDATE session SET hint = ? WHERE sid = ?", (due, session.sid))


class ExchangeRow:
    """One row of `exchange`: its claim, its log if it has one, its reader. The standalone stream has no id."""

    __slots__ = (
        "asks", "bytes", "closed", "control", "digest", "fence", "finished", "first", "generation", "holds", "id",
        "kept", "low", "owner", "reader", "running", "sent", "stream", "top", "xid",
    )  # fmt: skip

    xid: int
    stream: str
    id: str | None
    digest: builtins.bytes | None
    control: int
    fence: int
    holds: int
    running: int
    kept: int
    owner: str
    """The incarnation that runs it."""
    reader: str | None
    """The incarnation whose connection reads its stream."""
    generation: int
    asks: int
    first: int | None
    bytes: int
    closed: int
    finished: int | None

    def __init__(self, row: tuple[Any, ...]) -> None:
        (
            self.xid, self.stream, self.id, self.digest, self.control, self.fence, self.holds, self.running,
            self.kept, self.owner, self.reader, self.generation, self.asks, self.first, low, low_tag, top, top_tag, sent,
            sent_tag, self.bytes, self.closed, self.finished,
        ) = row  # fmt: skip
        self.low: Position = _position(low, low_tag)
        self.top: Position = _position(top, top_tag)
        self.sent: Position = _position(sent, sent_tag)

    @property
    def has_log(self) -> bool:
        """Its stream exists."""
        return self.first is not None

    @property
    def began(self) -> Position:
        """The position before the first event of its log, as `Log.start`."""
        return Position(self.first or 0, self.low.tag)

    def is_end(self, cursor: Position) -> bool:
        """Return True if the log is complete and has nothing after this position, as `Log.is_end` does."""
        return bool(self.closed) and cursor.seq == self.top.seq

    def start(self, position: Position) -> None:
        """Begin the log, if it has not begun."""
        if self.first is None:
            self.first = position.seq
            self.low = self.top = self.sent = position


EXCHANGE: Final = (
    "SELECT xid, stream, id, digest, control, exchange.fence, holds, exchange.running, kept, owner, reader,"
    " generation, asks, first, low, low_tag, top, top_tag, sent, sent_tag, exchange.bytes, closed, finished FROM exchange "
)
BY_STREAM: Final = EXCHANGE + "WHERE sid = ? AND stream = ?"
BY_KEYS: Final = EXCHANGE + "JOIN session USING (sid) WHERE key = ? AND stream = ?"
BY_ID: Final = EXCHANGE + "WHERE sid = ? AND id = ? AND holds = 1"
LARGEST: Final = EXCHANGE + "WHERE sid = ? AND first IS NOT NULL ORDER BY exchange.bytes DESC, xid LIMIT 1"
LEAST_NEEDED: Final = (
    EXCHANGE + "WHERE sid = ? AND finished IS NOT NULL AND reader IS NULL ORDER BY needed, finished LIMIT 1"
)


def find_exchange(tx: Transaction, statement: str, *values: Any) -> ExchangeRow | None:
    """Return the exchange that a statement of this module names."""
    row = tx.execute(statement, values).fetchone()
    return None if row is None else ExchangeRow(row)


def insert_exchange(tx: Transaction, session: SessionRow, claim: Claim, *, running: bool) -> ExchangeRow:
    """Register an exchange; it has the session's newest fence and holds its id."""
    # The POST that claims an exchange is its first reader.
    values = (
        session.sid, claim.stream, id_text(claim.id), claim.digest, claim.control, session.fence, 1, running,
        tx.identity.owner, tx.identity.owner if running else None,
    )  # fmt: skip
    return _insert(tx, values)


def standalone(tx: Transaction, session: SessionRow) -> ExchangeRow:
    """Return the stream for messages that belong to no request; it is created at the first use."""
    name = session.record.standalone
    found = find_exchange(tx, BY_STREAM, session.sid, name)
    if found is None:
        found = _insert(tx, (session.sid, name, None, None, False, -1, 0, False, "", None))
        found.start(Position(0, 0))
        save_exchange(tx, found)
    return found


def _insert(tx: Transaction, values: tuple[Any, ...]) -> ExchangeRow:
    xid = tx.execute(
        "INSERT INTO exchange (sid, stream, id, digest, control, fence, holds, running, owner, reader, kept,"
        " generation, asks, low, low_tag, top, top_tag, sent, sent_tag, bytes, closed, needed)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)",
        values,
    ).lastrowid
    _, *claimed, owner, reader = values
    return ExchangeRow((xid, *claimed, 0, owner, reader, 0, 0, None, *(0,) * 8, None))


def save_exchange(tx: Transaction, exchange: ExchangeRow) -> None:
    """Write the fields that change with the work of an exchange; indexed fields are written where they change."""
    tx.execute(
        "UPDATE exchange SET fence = ?, running = ?, kept = ?, reader = ?, generation = ?, asks = ?, first = ?, low = ?,"
        " low_tag = ?, top = ?, top_tag = ?, sent = ?, sent_tag = ?, bytes = ?, closed = ? WHERE xid = ?",
        (
            exchange.fence, exchange.running, exchange.kept, exchange.reader, exchange.generation, exchange.asks,
            exchange.first, exchange.low.seq, signed(exchange.low.tag), exchange.top.seq, signed(exchange.top.tag),
            exchange.sent.seq, signed(exchange.sent.tag), exchange.bytes, exchange.closed, exchange.xid,
        ),
    )  # fmt: skip


def set_holds(tx: Transaction, exchange: ExchangeRow, *, holds: bool) -> None:
    """Give an exchange its request id, or free the id. The id must be free, or belong to this exchange."""
    if bool(exchange.holds) is not holds:
        exchange.holds = int(holds)
        tx.execute("UPDATE exchange SET holds = ? WHERE xid = ?", (holds, exchange.xid))


def writable(tx: Transaction, key: str, stream: str, fence: int) -> tuple[SessionRow, ExchangeRow]:
    """Return a session and its exchange, if this fence may write it. Raises SessionGone, Fenced or StreamClosed if not."""
    session = the_session(tx, key)
    return session, checked(find_exchange(tx, BY_STREAM, session.sid, stream), fence)


def checked(exchange: ExchangeRow | None, fence: int) -> ExchangeRow:
    """Return the exchange, if this fence may write it. Raises Fenced or StreamClosed if not."""
    if exchange is None or exchange.fence != fence:
        raise Fenced
    if not exchange.running:
        raise StreamClosed
    return exchange
