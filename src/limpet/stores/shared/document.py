"""A document as its fields and numbers are stored, which notes what rules read and change.

Its tables and attributes are what the rules have made of them. What is known of the stored session is in `known`, its
numbers, and in the journals of the tables (`tables.py`).

**Reads.** A table notes the names that were read, absent ones too. A rule that goes through a whole table needs all of
the session (`NeedsAll`), and its commit is applied only if nothing else was written meanwhile (`tables.py`).
Comparisons of counters are noted as intervals (`numbers.py`).

**Fences** are made from the time, so that two replicas need not know each other's: a new fence is larger than the last
known one, and at least the time in microseconds. The commit tests that it is larger than the fence of every call that
got its turn (`core/rules/turns.py`): a call cannot come before one that runs.
"""

from collections.abc import Mapping
from math import inf
from struct import error
from typing import Any, Final

from typing_extensions import override

from limpet.core.lifecycle import SessionState
from limpet.core.records import SessionRecord
from limpet.core.rules.document import Document, Told
from limpet.stores.shared.commit import ADDED, PLACES, unpack
from limpet.stores.shared.fields import (
    BY_PREFIX,
    STATES,
    TABLES,
    VALUES,
    Unreadable,
    decode_record,
    decode_value,
    encode_variable,
)
from limpet.stores.shared.numbers import Counter
from limpet.stores.shared.tables import ABSENT, Logs, Table
from limpet.wire.shape import counted_cost

_HINT: Final = PLACES["hint"]
_FENCES: Final = 1_000_000
"""Fences in a second."""
_LEAST: Final = -inf
_ORDER: Final = 2e-6
"""Between the ends of two streams, so that their order is known."""


class _Value:
    """An attribute that is a single field, decoded when a rule reads it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, doc: "NotedDocument", owner: type) -> Any:
        return doc.value(self._name)

    def __set__(self, doc: "NotedDocument", value: Any) -> None:
        doc.values[self._name] = value


class NotedDocument(Document):
    """A document of fields and numbers, which notes what rules read and change."""

    __slots__ = (
        "_fence", "_record", "counters", "expires", "fresh", "gone_writers", "is_exact", "is_noting", "is_record_changed", "known", "known_bytes", "numbers", "odd",
        "opened_record", "raw", "reads", "record_bytes", "tables", "tests", "values", "variable", "version", "writers",
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
    turned: int
    state: SessionState
    told: tuple[Told, ...]
    known_bytes: bytes
    """The stored numbers, as they are known."""
    known: tuple[float, ...]
    numbers: tuple[float, ...]
    """The numbers of the commit that is under way."""
    logs: Logs
    finished: Table

    def __init__(self, numbers: bytes, fields: Mapping[str, bytes]) -> None:
        self.tables: dict[str, Table] = {}
        for name, codec in TABLES.items():
            self.tables[name] = (Logs if name == "logs" else Table)(codec)
            setattr(self, name, self.tables[name])
        self.odd: dict[str, bytes] = {}
        """Fields that this release would write in another way, as they are stored."""
        self.reads: set[str] = set()
        self.tests: dict[str, tuple[float, float]] = {}
        self.counters: dict[str, Counter] = {}
        """The counters that note how rules compare them, if rules are noted."""
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
        self.record_bytes: int = 0
        """The memory of the record, encoded and decoded: a client's description of 16 KiB takes some 300 KiB."""
        self.variable: bytes = b""
        self.raw: dict[str, bytes | None] = {}
        """The values of VALUES, as they are stored."""
        self.values: dict[str, Any] = {}
        """Those that rules have read, and may have changed."""
        self.fresh: set[str] = set()
        """Those that are known as of the last commit, if not all of the session is."""
        self.gone_writers: list[str] = []
        try:
            for name, value in fields.items():
                self.set_field(name, value)
            self._record: SessionRecord = decode_record(self.opened_record, self.variable)
        except (ValueError, KeyError, TypeError) as error:
            raise Unreadable("a session's record cannot be read") from error
        self.sort_finished()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} version {self.known[0]:.0f}>"

    # What is known

    def set_numbers(self, numbers: bytes) -> None:
        """Take the stored numbers."""
        self.known_bytes = numbers
        try:
            self.known = unpack(numbers)
            self.reset()
        except (error, ValueError, IndexError, OverflowError) as damaged:
            raise Unreadable("a session's numbers cannot be read") from damaged

    def reset(self) -> None:
        """Set the attributes to the known numbers."""
        (self.version, _, running, calls, readers, outstanding, size, kept, complete, fence, turned, self.touched, self.settled,
         self.broke, self.expires, self.hint, state, self.opened) = self.known  # fmt: skip
        self.running, self.calls, self.readers = int(running), int(calls), int(readers)
        self.outstanding, self.size, self.kept, self.complete = (
            int(outstanding),
            int(size),
            int(kept),
            int(complete),
        )
        self._fence, self.turned, self.state = int(fence), int(turned), STATES[int(state)]

    def set_field(self, name: str, value: bytes | None) -> None:
        """Take a stored field; None: it is absent."""
        prefix = name[:2]
        if prefix in BY_PREFIX:
            table = self.tables[BY_PREFIX[prefix]]
            codec = table.codec
            self.odd.pop(name, None)
            found = ABSENT if value is None else codec.decode(value)
            if value is not None and codec.encode(found) != value:
                self.odd[name] = value
            table.put(codec.key(name[2:]), found)
        elif prefix == "o:":
            self.writers[name[2:]] = int(value or 0)
        elif name == "r":
            self.opened_record = value or b""
            self.record_bytes = counted_cost(self.opened_record, len(self.opened_record))
        elif name == "m":
            self.variable = value or b""
            if hasattr(self, "_record"):
                self._record = decode_record(self.opened_record, self.variable)
        else:
            for attribute, field in VALUES.items():
                if field == name:
                    self.raw[attribute] = value

    def sort_finished(self) -> None:
        """Put the complete streams into the order of their ends."""
        finished = sorted(dict.items(self.finished), key=lambda item: (item[1], item[0]))
        dict.clear(self.finished)
        dict.update(self.finished, finished)

    def begin_noting(self, *, is_noting: bool) -> None:
        """Before rules: note what they read and compare, or only what they change."""
        if is_noting is not self.is_noting:
            self.is_noting = is_noting
            self.counters = {name: Counter() for name in ADDED} if is_noting else {}
            for table in self.tables.values():
                table.begin_noting(is_noting=is_noting)
        if is_noting:
            for name, counter in self.counters.items():
                counter.known = counter.value = getattr(self, name)
                counter.least, counter.most = _LEAST, inf
                setattr(self, name, counter)

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
        record = decode_record(self.opened_record, encode_variable(self._record, self.variable))
        record.level = record.level if level is None else level
        record.initialized = record.initialized if initialized is None else initialized
        self.record = record

    def value(self, name: str) -> Any:
        """Return one of the values that are single fields. A rule may change it in place."""
        values = self.values
        if name in values:
            return values[name]
        if self.is_noting:
            self.reads.add(name)
        found = decode_value(name, self.raw.get(name))
        if found is not None:
            values[name] = found
        return found

    withdrawn: Any = _Value()
    answered: Any = _Value()
    subscriptions: Any = _Value()

    def test(self, name: str, least: float, most: float) -> None:
        """Note that the rules decide in the same way while the stored number is in this interval."""
        low, high = self.tests.get(name, (-inf, inf))
        self.tests[name] = max(low, least), min(high, most)

    @property
    def fence(self) -> int:
        """The last fence that was given."""
        return self._fence

    @fence.setter
    def fence(self, fence: int) -> None:
        fence = max(fence, int(self.touched * _FENCES))
        if self.is_noting and "turned" not in self.tests:
            self.tests["turned"] = -inf, fence - 1
        self._fence = fence

    def end_noting(self) -> None:
        """After rules that were noted: the counters are plain numbers again."""
        for name, counter in self.counters.items():
            setattr(self, name, counter.value)
            if counter.most < inf or counter.least > _LEAST:
                self.tests[name] = counter.least, counter.most

    @override
    def add_finished(self, stream: str, now: float) -> None:
        last = next(reversed(dict.values(self.finished)), 0.0)
        super().add_finished(stream, max(now, last + _ORDER))

    @override
    def schedule(self, at: float = -inf) -> None:
        super().schedule(at)
        if self.is_noting and self.hint == self.known[_HINT]:
            # A sweep may have raised the stored hint meanwhile: then this commit has to lower it.
            self.test("hint", -inf, self.hint)

    def forget_writers(self, owner: str) -> None:
        """Forget the numbers of an incarnation that is dead."""
        self.gone_writers += [name for name in self.writers if name.rpartition("/")[0] == owner]
