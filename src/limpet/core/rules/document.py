"""A session as a document: header numbers, and tables of named fields.

The values of the tables are frozen: a rule changes a field by putting another value into its table. Two values are not.
The record is shared with the sessions of the engine where store and engine are one process, which then see a new log
level at once. A log notes its own changes (`core.stream.Log`); its head (positions, bytes) is a field of its own, so
that a writer and a reader of one stream change different fields.

The numbers of the header are of three kinds. Counters (`running`, `calls`, `readers`, `outstanding`, `size`, `kept`)
only ever change by an addition. A rule changes them with `+=` and `-=` and compares them with `>`, `>=` or `not`: a
draft notes this (`stores/shared/numbers.py`). Times (`touched`, `settled`, `broke`) only grow. `fence` is the last
fence that was given; a rule that gives one adds 1 and reads what it has become, because a draft gives a larger one.
`hint` is the time at which a sweep examines the session next: it may be too early, never too late.
"""

from collections import OrderedDict
from collections.abc import Iterable
from enum import Enum
from math import inf
from typing import Final

from msgspec import Struct

from limpet.config import Limits
from limpet.core.empty_table import EMPTY
from limpet.core.lifecycle import SessionState
from limpet.core.records import STANDALONE_FENCE, SessionRecord, WakeUp
from limpet.core.rules.clock import SessionClock
from limpet.core.stream import Log, Position
from limpet.errors import Fenced, StreamClosed
from limpet.wire.jsonrpc import RequestId

_NONE: Final[frozenset[str]] = frozenset()


class ExchangeRecord(Struct, frozen=True, array_like=True, omit_defaults=True):
    """An exchange, or the standalone stream, which has no id and no owner."""

    id: RequestId | None
    digest: bytes
    control: bool
    fence: int
    owner: str
    """The incarnation of a replica that runs it."""
    reader: str
    """The incarnation of the replica that has its reader; empty if it has none. The POST that claims it is its first
    reader."""
    running: bool = True
    kept: bool = False
    """Its answer is kept for a repeat of the request."""
    kept_at: float = 0.0
    """Since when."""
    generation: int = 0
    """Of its reader."""
    word: int = 0
    """Answers to probes: changes with each one, odd if the reader was alive."""
    asks: tuple[str, ...] = ()
    """Its asks that are not withdrawn: an end finds them without all others of the session."""
    cancelled: bool = False
    """The client has cancelled it. A replica that missed the wake-up finds this."""

    @property
    def has_reader(self) -> bool:
        """Return True if a connection reads its stream, or waits for its answer."""
        return self.reader != ""


class Ask(Struct, frozen=True, array_like=True, omit_defaults=True):
    """A request to the client, and its answer after it has arrived."""

    stream: str
    owner: str
    """The incarnation that waits for the answer."""
    answer: bytes | None = None
    digest: bytes = b""


class Held(Struct, frozen=True, array_like=True):
    """The turn of a call that has ended, and whose handler still runs."""

    fence: int
    owner: str


class Index(Enum):
    """A change of an index that lies outside the document."""

    FINISHED = "finished"
    """The stream is complete, and may be forgotten when there is no room."""
    FORGOTTEN = "forgotten"
    """The stream is forgotten."""
    SUBSCRIBED = "subscribed"
    UNSUBSCRIBED = "unsubscribed"


Told = tuple[WakeUp | Index, str, str]
"""A wake-up or a change of an index: its kind, a name, and the incarnation that it is for (empty: all)."""


class At(Struct, frozen=True):
    """The circumstances of a command."""

    now: float
    me: str
    """The incarnation of the replica that sends it."""
    limits: Limits
    spare: int
    """Bytes that the logs of the whole store may still grow by, as far as it is known."""


class Document(SessionClock):
    """All data of one session. There may be 100,000 of them: tables that most sessions do not need are made late."""

    __slots__ = (
        "answered", "asks", "broke", "calls", "complete", "exchanges", "fence", "finished", "held", "hint", "ids", "kept", "logs", "opened",
        "outstanding", "readers", "record", "running", "settled", "size", "state", "subscriptions", "told", "touched", "turned", "withdrawn",
    )  # fmt: skip

    def __init__(self, record: SessionRecord, now: float) -> None:
        self.record: SessionRecord = record
        self.state: SessionState = SessionState.ATTACHED
        self.opened: float = now
        self.touched: float = now
        self.hint: float = inf
        self.settled: float = 0.0
        self.broke: float = 0.0
        self.fence: int = 0
        self.turned: int = 0
        """The largest fence of a call that got its turn."""
        self.running: int = 0
        self.calls: int = 0
        self.readers: int = 0
        self.outstanding: int = 0
        """Asks without an answer."""
        self.size: int = 0
        """The bytes of its logs."""
        self.kept: int = 0
        """The bytes of its state and its subscriptions, as `limpet.core.rules.state` counts them."""
        self.complete: int = 0
        """Complete streams: the length of `finished`."""
        self.exchanges: dict[str, ExchangeRecord] = EMPTY
        self.ids: dict[RequestId, str] = EMPTY
        """The stream that uses an id."""
        self.logs: dict[str, Log] = EMPTY
        self.finished: dict[str, float] = EMPTY
        """Complete streams, in the order of their ends, and when each ended."""
        self.held: dict[str, Held] = EMPTY
        """Calls that keep their turn after their end."""
        self.asks: dict[str, Ask] = EMPTY
        self.answered: OrderedDict[str, tuple[bytes, float]] | None = None
        """The digest of each answer whose ask is forgotten, and the time until which it is kept. Oldest first."""
        self.subscriptions: frozenset[str] = _NONE
        self.withdrawn: dict[str, bool] | None = None
        """The streams that do not start, oldest first; True: it is certain that nothing of the exchange ran."""
        self.told: tuple[Told, ...] = ()
        """What the store has to do besides, in this order. A rule adds to it, and the commit empties it."""

    def add(self, stream: str, exchange: ExchangeRecord) -> None:
        """Add an exchange, which uses its id from now on."""
        if self.exchanges is EMPTY:
            self.exchanges = {}
        self.exchanges[stream] = exchange
        if exchange.id is not None:
            if self.ids is EMPTY:
                self.ids = {}
            self.ids[exchange.id] = stream

    def add_log(self, stream: str, position: Position) -> None:
        """Begin the log of a stream."""
        if self.logs is EMPTY:
            self.logs = {}
        self.logs[stream] = Log(position)

    def add_ask(self, name: str, ask: Ask) -> None:
        """Add an ask."""
        if self.asks is EMPTY:
            self.asks = {}
        self.asks[name] = ask

    def add_finished(self, stream: str, now: float) -> None:
        """Note that a stream is complete."""
        if self.finished is EMPTY:
            self.finished = {}
        self.finished[stream] = now
        self.complete += 1

    def change_record(self, level: str | None, initialized: bool | None) -> None:  # noqa: FBT001
        """Set the fields of the record that are not None, for all that have the record."""
        if level is not None:
            self.record.level = level
        if initialized is not None:
            self.record.initialized = initialized

    def schedule(self, at: float = -inf) -> None:
        """Let a sweep examine the session when it is due, but not before `at`, unless it does so earlier anyway."""
        due = max(at, self.due()[0])
        self.hint = min(self.hint, due)

    def standalone(self) -> ExchangeRecord:
        """Return the standalone stream, which begins with the first call that needs it."""
        name = self.record.standalone
        exchange = self.exchanges.get(name)
        if exchange is None:
            exchange = ExchangeRecord(None, b"", True, STANDALONE_FENCE, "", "", running=False)  # noqa: FBT003
            self.add(name, exchange)
            self.add_log(name, Position(0, 0))
        return exchange

    def in_flight(self) -> Iterable[tuple[str, ExchangeRecord]]:
        """Return the exchanges in flight, with their streams.

        There are few of them, and there may be many that have ended.
        """
        return [(stream, one) for stream, one in self.exchanges.items() if one.running]

    def writable(self, stream: str, fence: int) -> ExchangeRecord:
        """Return an exchange in flight, if this fence may write it.

        Raises:
            Fenced: another fence owns it, or it was never claimed.
            StreamClosed: it has ended.
        """
        exchange = self.exchanges.get(stream)
        if exchange is None or exchange.fence != fence:
            raise Fenced
        if not exchange.running:
            raise StreamClosed
        return exchange


def replica_of(owner: str) -> str:
    """Return the name of the replica of an incarnation."""
    return owner.rpartition(".")[0]


def is_dead_with(owner: str, dead: str) -> bool:
    """Return True if an incarnation is dead because `dead` is: the same one, or an earlier one of its replica."""
    if owner == dead:
        return True
    (name, _, number), (replica, _, last) = owner.rpartition("."), dead.rpartition(".")
    return name == replica and name != "" and int(number) < int(last)
