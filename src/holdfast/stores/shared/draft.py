"""A document that notes what rules read and change, and makes a commit of it.

It has two layers. What is known of the stored session is in the dicts `base` of its tables and in `known`, its numbers. What the rules have
changed since then is in the tables themselves and in the attributes. `accept` moves the changes into the first layer, after the commit;
`undo` forgets them.

**Reads.** A table notes the names that were read, absent ones too. A rule that goes through a whole table needs all of the session (`NeedsAll`),
and its commit is applied only if nothing else was written meanwhile (`tables.py`). Comparisons of counters are noted as intervals (`numbers.py`).

**Fences** are made from the time, so that two replicas need not know each other's: a new fence is larger than the last known one, and at least the time in
microseconds. The commit tests that it is larger than the stored one.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from math import inf
from struct import error
from typing import Any, Final

from typing_extensions import override

from holdfast.core.lifecycle import SessionState
from holdfast.core.records import SessionRecord
from holdfast.core.rules.document import Document, Told
from holdfast.core.stream import Position
from holdfast.stores.shared.commit import (
    ADDED,
    GROWING,
    NUMBERS,
    PLACES,
    SIZE,
    SLACK,
    Commit,
    NewEvent,
    pack,
    unpack,
)
from holdfast.stores.shared.fields import (
    BY_PREFIX,
    TABLES,
    VALUES,
    Unreadable,
    decode_record,
    decode_value,
    encode_record,
    encode_value,
    encode_variable,
)
from holdfast.stores.shared.numbers import Counter
from holdfast.stores.shared.tables import ABSENT, GONE, Noted, NotedLogs

_STATES: Final = (SessionState.ATTACHED, SessionState.DETACHED)
_FENCES: Final = 1_000_000
"""Fences in a second."""
_ORDER: Final = 2e-6
"""Between the ends of two streams, so that their order is known."""
_MOVING: Final = ("fence", "settled", "broke", "hint")
_CHANGING: Final = [(name, PLACES[name]) for name in (*ADDED, *GROWING, "hint", "state")]
_TOUCHED: Final = PLACES["touched"]
_DETACHED: Final = SessionState.DETACHED


class SharedDocument(Document):
    """A document of a session that other processes may change."""

    __slots__ = (
        "_fence", "_record", "counters", "expires", "gone_writers", "is_exact", "is_noting", "is_record_changed", "known", "known_bytes", "numbers", "opened_record",
        "raw", "reads", "tables", "tests", "values", "variable", "version", "writers",
    )  # fmt: skip

    version: float
    expires: float
    opened: float
    touched: float
    settled: float
    broke: float
    hint: float
    running: int
    calls: int
    readers: int
    outstanding: int
    size: int
    kept: int
    complete: int
    state: SessionState
    told: tuple[Told, ...]
    known_bytes: bytes
    """The stored numbers, as they are known."""
    known: tuple[float, ...]
    numbers: tuple[float, ...]
    """The numbers of the commit that is under way."""

    def __init__(self, numbers: bytes, fields: Mapping[str, bytes]) -> None:
        self.tables: dict[str, Noted] = {}
        for name, table in TABLES.items():
            noted = (NotedLogs if name == "logs" else Noted)(table)
            self.tables[name] = noted
            setattr(self, name, noted)
        self.reads: set[str] = set()
        self.tests: dict[str, tuple[float, float]] = {}
        self.counters: dict[str, Counter] = {}
        self.is_exact: bool = True
        """All of the session is known, as of `known`."""
        self.is_noting: bool = False
        """The commit compares what was read: else it depends on everything."""
        self.is_record_changed: bool = False
        self.told = ()
        self.writers: dict[str, int] = {}
        """The last commit of each writer."""
        self.set_numbers(numbers)
        self.opened_record: bytes = b""
        self.variable: bytes = b""
        self.raw: dict[str, bytes | None] = {}
        """The values of VALUES, as they are stored."""
        self.values: dict[str, Any] = {}
        """Those that rules have read, and may have changed."""
        self.gone_writers: list[str] = []
        try:
            for name, value in fields.items():
                self.set_field(name, value)
            self._record: SessionRecord = decode_record(self.opened_record, self.variable)
        except (ValueError, KeyError, TypeError) as error:
            raise Unreadable("a session's record cannot be read") from error
        finished = self.tables["finished"].base
        self.tables["finished"].base = dict(sorted(finished.items(), key=lambda item: (item[1], item[0])))

    def __repr__(self) -> str:
        return f"<SharedDocument version {self.known[0]:.0f}>"

    # What is known

    def set_numbers(self, numbers: bytes) -> None:
        """Take the stored numbers."""
        self.known_bytes = numbers
        try:
            self.known = unpack(numbers)
        except error as damaged:
            raise Unreadable("a session's numbers cannot be read") from damaged
        self._reset()

    def _reset(self) -> None:
        """Set the attributes to the known numbers."""
        (self.version, _, running, calls, readers, outstanding, size, kept, complete, fence, self.touched, self.settled, self.broke,
         self.expires, self.hint, state, self.opened) = self.known  # fmt: skip
        self.running, self.calls, self.readers = int(running), int(calls), int(readers)
        self.outstanding, self.size, self.kept, self.complete = (
            int(outstanding),
            int(size),
            int(kept),
            int(complete),
        )
        self._fence, self.state = int(fence), _STATES[int(state)]

    def set_field(self, name: str, value: bytes | None) -> None:
        """Take a stored field; None: it is absent."""
        prefix = name[:2]
        if prefix in BY_PREFIX:
            noted = self.tables[BY_PREFIX[prefix]]
            noted.put(noted.table.key(name[2:]), ABSENT if value is None else noted.table.decode(value))
        elif prefix == "o:":
            self.writers[name[2:]] = int(value or 0)
        elif name == "r":
            self.opened_record = value or b""
        elif name == "m":
            self.variable = value or b""
            if hasattr(self, "_record"):
                self._record = decode_record(self.opened_record, self.variable)
        else:
            for attribute, field in VALUES.items():
                if field == name:
                    self.raw[attribute] = value

    # What rules read and change

    @property
    def record(self) -> SessionRecord:
        """The record; its variable part is compared by every commit."""
        return self._record

    @record.setter
    def record(self, record: SessionRecord) -> None:
        self._record = record
        self.is_record_changed = True

    @override
    def change_record(self, level: str | None, initialized: bool | None) -> None:
        record = decode_record(self.opened_record, encode_variable(self._record))
        record.level = record.level if level is None else level
        record.initialized = record.initialized if initialized is None else initialized
        self.record = record

    def _value(self, name: str) -> Any:
        """Return one of the values that are single fields. A rule may change it in place."""
        values = self.values
        if name in values:
            return values[name]
        self.reads.add(name)
        raw = self.raw.get(name)
        if raw is None and name != "subscriptions":
            return None
        found = values[name] = decode_value(name, raw)
        return found

    @property
    def withdrawn(self) -> dict[str, bool] | None:
        """The streams that do not start."""
        found: dict[str, bool] | None = self._value("withdrawn")
        return found

    @withdrawn.setter
    def withdrawn(self, value: dict[str, bool] | None) -> None:
        self.values["withdrawn"] = value

    @property
    def answered(self) -> OrderedDict[str, tuple[bytes, float]] | None:
        """The digests of forgotten answers."""
        found: OrderedDict[str, tuple[bytes, float]] | None = self._value("answered")
        return found

    @answered.setter
    def answered(self, value: OrderedDict[str, tuple[bytes, float]] | None) -> None:
        self.values["answered"] = value

    @property
    def subscriptions(self) -> frozenset[str]:
        """The subscriptions."""
        found: frozenset[str] = self._value("subscriptions")
        return found

    @subscriptions.setter
    def subscriptions(self, value: frozenset[str]) -> None:
        self.values["subscriptions"] = value

    def _test(self, name: str, least: float, most: float) -> None:
        """Note that the rules decide in the same way while the stored number is in this interval."""
        low, high = self.tests.get(name, (-inf, inf))
        self.tests[name] = max(low, least), min(high, most)

    def _grown(self, name: str) -> float:
        """Return by how much rules have changed a number."""
        change: float = getattr(self, name) - self.known[PLACES[name]]
        return change

    @property
    def fence(self) -> int:
        """The last fence that was given."""
        return self._fence

    @fence.setter
    def fence(self, fence: int) -> None:
        if "fence" not in self.tests:
            fence = max(fence, int(self.touched * _FENCES))
            self.tests["fence"] = -inf, fence - 1
        self._fence = fence

    def begin_noting(self, *, is_noting: bool) -> None:
        """Before rules: note what they read and compare, or only what they change."""
        self.is_noting = is_noting
        if is_noting:
            for name in ADDED:
                counter = self.counters.get(name) or self.counters.setdefault(name, Counter())
                counter.begin(getattr(self, name))
                setattr(self, name, counter)

    def end_noting(self) -> None:
        """After rules: the counters are plain numbers again."""
        if self.is_noting:
            for name, counter in self.counters.items():
                setattr(self, name, counter.value)
                if counter.least > -inf or counter.most < inf:
                    self.tests[name] = counter.least, counter.most

    @override
    def add_finished(self, stream: str, now: float) -> None:
        last = max(self.tables["finished"].base.values(), default=0.0)
        for _, ended in self.tables["finished"].changes():
            last = last if ended is GONE else max(last, ended)
        super().add_finished(stream, max(now, last + _ORDER))

    def forget_writers(self, owner: str) -> None:
        """Forget the numbers of an incarnation that is dead."""
        self.gone_writers += [name for name in self.writers if name.rpartition("/")[0] == owner]

    # The commit

    def is_changed(self) -> bool:
        """Return True if the rules have changed anything."""
        known = self.known
        if self.touched != known[_TOUCHED]:
            return True
        return bool(
            self.gone_writers
            or self.is_record_changed
            or any(self._grown(name) for name in (*ADDED, *_MOVING))
            or _STATES[int(known[PLACES["state"]])] is not self.state
            or any(True for noted in self.tables.values() for _ in noted.changes())
            or any(True for _ in self._changed_values())
        )

    def _changed_values(self) -> Iterator[tuple[str, bytes | None]]:
        for name, value in self.values.items():
            written = encode_value(name, value)
            if written != self.raw.get(name):
                yield name, written

    def commit(self, writer: str, number: int, acknowledged: int, mark: float) -> Commit:
        """Make a commit of the changes."""
        self.numbers = (
            self.known[0] + 1, mark, self.running, self.calls, self.readers, self.outstanding, self.size, self.kept, self.complete,
            self.fence, self.touched, self.settled, self.broke, self.expires, self.hint, 1.0 if self.state is _DETACHED else 0.0, self.opened,
        )  # fmt: skip
        exact = self.known_bytes if self.is_exact else b""
        put: dict[str, bytes] = {}
        delete: list[str] = []
        is_whole = False
        for noted in self.tables.values():
            if dict.__len__(noted):
                table = noted.table
                for name, value in noted.changes():
                    if value is GONE:
                        delete.append(table.name(name))
                    else:
                        put[table.name(name)] = table.encode(value)
            is_whole = is_whole or noted.is_whole
        if self.values or self.is_record_changed or self.gone_writers:
            self._add_values(put, delete)
        commit = Commit(
            writer,
            number,
            acknowledged,
            exact,
            pack(*self.numbers) + self.known_bytes[SIZE:],
            put=put,
            delete=delete,
        )
        if dict.__len__(self.tables["logs"]):
            self._add_events(commit)
        if self.is_noting and not is_whole:
            self._add_conditions(commit, mark)
        return commit

    def _add_values(self, put: dict[str, bytes], delete: list[str]) -> None:
        """Add the fields that are in no table."""
        for name, written in self._changed_values():
            if written is None:
                delete.append(VALUES[name])
            else:
                put[VALUES[name]] = written
        if self.is_record_changed:
            put["m"] = encode_variable(self._record)
        delete += [f"o:{name}" for name in self.gone_writers]

    def _add_events(self, commit: Commit) -> None:
        logs = self.tables["logs"]
        events: list[NewEvent] = []
        cut: dict[str, int] = {}
        drop: list[str] = []
        for stream, log in logs.changes():
            before = logs.base.get(stream)
            if log is GONE:
                drop.append(stream)
                continue
            low = log.low.seq
            new = log.new
            events += new if not new or new[0].seq > low else [event for event in new if event.seq > low]
            if before is not None and low > before.low.seq:
                cut[stream] = low
        commit.events, commit.cut, commit.drop = events, cut, drop

    def _add_conditions(self, commit: Commit, mark: float) -> None:
        """Add what has to be compared, and the changes of numbers as differences."""
        compare: dict[str, bytes | None] = {"m": self.variable}
        for noted in self.tables.values():
            if noted.reads or dict.__len__(noted):
                table, base = noted.table, noted.base
                for name in noted.reads.union(name for name, _ in noted.changes()):
                    value = base.get(name, ABSENT)
                    compare[table.name(name)] = None if value is ABSENT else table.encode(value)
        for name in self.reads:
            compare[VALUES[name]] = self.raw.get(name)
        state = self.known[PLACES["state"]]
        self._test("state", state, state)
        changes: dict[str, float] = {"mark": mark}
        for name, place in _CHANGING:
            number, before = self.numbers[place], self.known[place]
            if number != before:
                changes[name] = number - before if name in ADDED else number
        hint = self.known[PLACES["hint"]]
        if self.hint > hint:
            self._test("hint", hint, hint)
        elif self.hint == hint and "settled" in changes:
            # `calls._look_again` has found that the hint is early, or that the session is not due before it.
            self._test("hint", -inf, max(hint, self.settled + self._record.idle))
        commit.compare, commit.tests, commit.changes = compare, self.tests, changes

    def accept(self, numbers: bytes, commit: Commit) -> None:
        """The commit is applied: its changes are the stored ones now."""
        for noted in self.tables.values():
            if dict.__len__(noted):
                noted.accept()
            if noted.reads:
                noted.reads.clear()
            noted.is_whole = False
        for name, written in list(self._changed_values()) if self.values else ():
            self.raw[name] = written
        for name in self.gone_writers:
            self.writers.pop(name, None)
        if self.is_record_changed:
            self.variable = encode_variable(self._record)
        self.writers[commit.writer] = commit.number
        self._clear()
        if numbers == commit.after:
            self.known, self.known_bytes = self.numbers, numbers
        else:
            self._inexact()
            self.set_numbers(numbers)

    def _clear(self) -> None:
        if self.tests:
            self.tests = {}
        if self.reads:
            self.reads.clear()
        if self.values:
            self.values = {}
        if self.gone_writers:
            self.gone_writers = []
        self.is_record_changed = False

    def _inexact(self) -> None:
        self.is_exact = False
        for noted in self.tables.values():
            noted.is_exact = False

    def undo(self) -> None:
        """Forget the changes of the rules."""
        for noted in self.tables.values():
            noted.undo()
        if self.is_record_changed:
            self._record = decode_record(self.opened_record, self.variable)
        self._clear()
        self.told = ()
        self._reset()

    def learn(self, numbers: bytes, fields: Mapping[str, bytes | None]) -> None:
        """Take some stored fields, which others have changed. Call `undo` before."""
        self._inexact()
        for name, value in fields.items():
            self.set_field(name, value)
        self.set_numbers(numbers)

    # What runs here

    def begun(self) -> Iterator[tuple[str, Position]]:
        """Return the streams that the rules have begun, and where."""
        logs = self.tables["logs"]
        for name, log in logs.changes():
            if log is not GONE and name not in logs.base:
                yield name, log.low

    def table_of(self, field: str) -> str:
        """Return the table of a field; empty if it is in none."""
        return BY_PREFIX.get(field[:2], "")

    def stored_entry(self, field: str) -> Any:
        """Return the stored entry of a table, by the name of its field; None if it is absent."""
        noted = self.tables[BY_PREFIX[field[:2]]]
        return noted.base.get(noted.table.key(field[2:]))


def opened(record: SessionRecord, now: float, mark: float) -> tuple[bytes, dict[str, bytes]]:
    """Return the numbers and fields of a new session."""
    doc = Document(record, now)
    doc.schedule()
    numbers = dict.fromkeys(NUMBERS, 0.0)
    numbers |= {"version": 1, "mark": mark, "touched": now, "opened": now, "hint": doc.hint}
    numbers["expires"] = max(now, doc.hint) + SLACK / 2
    fixed, variable = encode_record(record)
    return pack(*numbers.values()), {"r": fixed, "m": variable}
