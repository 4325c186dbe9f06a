"""Commits: made of what rules have read and changed, and accepted or undone when the reply comes.

**Exact again.** What a commit has compared and written is known as of that commit, also where others have written other
fields (`Table.fresh`). If rules read nothing else, their commit depends on the numbers alone, as if all of the session
were known. So a call that a replica claims and ends, with nothing of others in between, compares fields once.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from math import inf
from operator import ne
from typing import Any, Final

from limpet.core.lifecycle import SessionState
from limpet.core.records import SessionRecord
from limpet.core.rules.document import Document, Told
from limpet.core.stream import Event
from limpet.stores.shared.commit import (
    ADD,
    HOW,
    NUMBERS,
    PLACES,
    SET,
    SIZE,
    SLACK,
    Commit,
    Done,
    pack,
)
from limpet.stores.shared.document import NotedDocument
from limpet.stores.shared.fields import (
    BY_PREFIX,
    TABLES,
    VALUES,
    decode_record,
    encode_record,
    encode_value,
    encode_variable,
    kept_members,
)
from limpet.stores.shared.tables import ABSENT, Table

_MARK, _HINT, _STATE, _SETTLED = (PLACES[name] for name in ("mark", "hint", "state", "settled"))
_CHANGED: Final = tuple(PLACES.values())
_HOW: Final = tuple(None if name in {"version", "mark", "opened"} else HOW[name] for name in NUMBERS)
"""How each number is merged; None: in its own way."""
_DETACHED: Final = SessionState.DETACHED


class SharedDocument(NotedDocument):
    """A document of a session that other processes may change."""

    __slots__ = ("written",)

    known: tuple[float, ...]
    known_bytes: bytes
    numbers: tuple[float, ...]
    variable: bytes
    tests: dict[str, tuple[float, float]]
    values: dict[str, Any]
    gone_writers: list[str]
    is_record_changed: bool
    is_exact: bool
    fresh: set[str]
    told: tuple[Told, ...]

    def _numbers(self) -> tuple[float, ...]:
        """Return the numbers as rules have made them, without the first two."""
        return (
            self.running, self.calls, self.readers, self.outstanding, self.size, self.kept, self.complete, self._fence, self.turned,
            self.touched, self.settled, self.broke, self.expires, self.hint, 1.0 if self.state is _DETACHED else 0.0, self.opened,
        )  # fmt: skip

    def collect(self) -> bool:
        """After rules: collect what they have made. Return True if they have changed anything."""
        if self.is_noting:
            self.end_noting()
        self.numbers = self._numbers()
        self.written: list[Table] = [table for table in self.tables.values() if table.journal]
        """The tables that rules have changed."""
        return bool(
            self.numbers != self.known[2:]
            or self.gone_writers
            or self.is_record_changed
            or any(table.changes() for table in self.written)
            or any(True for _ in self._changed_values())
        )

    def _changed_values(self) -> Iterator[tuple[str, bytes | None]]:
        for name, value in self.values.items():
            written = encode_value(name, value)
            if written != self.raw.get(name):
                yield name, written

    def commit(
        self, writer: str, number: int, acknowledged: int, mark: float, *, compares: bool = True
    ) -> Commit:
        """Make a commit of the collected changes. Without `compares`, an exact one has no other conditions."""
        self.numbers = (self.known[0] + 1, mark, *self.numbers)
        put: dict[str, bytes] = {}
        delete: list[str] = []
        for table in self.written:
            codec = table.codec
            prefix, text, encode = codec.prefix, codec.text, codec.encode
            for name, _, after in table.changes():
                if after is not ABSENT:
                    put[prefix + text(name)] = encode(after)
                else:
                    delete.append(prefix + text(name))
        is_exact = self.is_exact or (self.is_noting and self._is_fresh())
        if self.odd:
            self._keep_members(put)
        if self.values or self.is_record_changed or self.gone_writers:
            self._add_values(put, delete)
        commit = Commit(
            writer,
            number,
            acknowledged,
            self.known_bytes if is_exact else b"",
            pack(*self.numbers) + self.known_bytes[SIZE:],
            put=put,
            delete=delete,
        )
        if self.logs.journal:
            self._add_events(commit)
        if self.is_noting and (compares or not is_exact):
            self._add_conditions(commit, mark)
        return commit

    def _is_fresh(self) -> bool:
        """Return True if everything that was read or written is known as of the last commit."""
        return self.reads <= self.fresh and all(
            table.names <= table.fresh and table.journal.keys() <= table.fresh
            for table in self.tables.values()
        )

    def _keep_members(self, put: dict[str, bytes]) -> None:
        """Write fields with the members that a later release has added."""
        for name in self.odd.keys() & put.keys():
            codec = TABLES[BY_PREFIX[name[:2]]]
            entry = dict.get(self.tables[BY_PREFIX[name[:2]]], codec.key(name[2:]))
            put[name] = kept_members(codec, entry, self.odd[name])

    def _add_values(self, put: dict[str, bytes], delete: list[str]) -> None:
        """Add the fields that are in no table."""
        for name, written in self._changed_values():
            if written is None:
                delete.append(VALUES[name])
            else:
                put[VALUES[name]] = written
        if self.is_record_changed:
            put["m"] = encode_variable(self._record, self.variable)
        delete += [f"o:{name}" for name in self.gone_writers]

    def _add_events(self, commit: Commit) -> None:
        events: dict[str, Sequence[Event]] = {}
        cut: dict[str, int] = {}
        drop: list[str] = []
        for stream, before, log in self.logs.changes():
            if log is ABSENT:
                drop.append(stream)
                continue
            low = log.low.seq
            new = log.new
            if new:
                is_kept = new[0].position.seq > low
                events[stream] = new if is_kept else [event for event in new if event.position.seq > low]
            if before is not ABSENT and low > before.low.seq:
                cut[stream] = low
        commit.events, commit.cut, commit.drop = events, cut, drop

    def _add_conditions(self, commit: Commit, mark: float) -> None:
        """Add what has to be compared, and the changes of numbers as differences; nothing if a whole table was read."""
        if any(table.is_whole for table in self.tables.values()):
            return
        compare: dict[str, bytes | None] = {"m": self.variable}
        odd = self.odd
        for table in self.tables.values():
            names, journal = table.names, table.journal
            if not names and not journal:
                continue
            codec = table.codec
            for name in names if names >= journal.keys() else names | journal.keys():
                value = journal[name] if name in journal else dict.get(table, name, ABSENT)
                field = codec.prefix + codec.text(name)
                compare[field] = None if value is ABSENT else odd.get(field) or codec.encode(value)
        for name in self.reads:
            compare[VALUES[name]] = self.raw.get(name)
        commit.compare = compare
        commit.conditions = self._conditions(mark)

    def _conditions(self, mark: float) -> list[float]:
        """Return the tests and changes of numbers."""
        known, hint, tests = self.known, self.known[_HINT], self.tests
        if self.hint > hint:
            self.test("hint", hint, hint)
        elif self.hint == hint and self.settled != known[_SETTLED]:
            # `calls._look_again` has found that the hint is early, or that the session is not due before it.
            self.test("hint", -inf, max(hint, self.settled + self._record.idle))
        made = [len(tests) + 1.0, _STATE, known[_STATE], known[_STATE]]
        for name, (least, most) in tests.items():
            made += PLACES[name], least, most
        made += _MARK, SET, mark
        numbers = self.numbers
        for place in compress(_CHANGED, map(ne, known, numbers)):
            how, before, after = _HOW[place], known[place], numbers[place]
            if how is not None:
                # Only a sweep raises the hint, and it tests that this is still the same.
                is_raised = place == _HINT and after > before
                made += place, SET if is_raised else how, after - before if how == ADD else after
        return made

    def accept(self, reply: Done, commit: Commit) -> None:
        """The commit is applied: its changes are the stored ones now."""
        is_after = reply.numbers == commit.after
        if not is_after:
            # Others have written other fields.
            self._inexact()
        if self.is_noting and not self.is_exact:
            self._note_fresh()
        for table in self.tables.values() if self.is_noting else self.written:
            if table.journal or table.names or table.is_whole:
                table.accept()
        if self.odd or self.values or self.is_record_changed or self.gone_writers:
            self._accept_values(commit)
        self.writers[commit.writer] = commit.number
        self._clear()
        if is_after:
            self.known, self.known_bytes = self.numbers, reply.numbers
            return
        if reply.sent_before:
            # They may have written the same fields after it.
            self._inexact()
        self.set_numbers(reply.numbers)

    def _note_fresh(self) -> None:
        self.fresh |= self.reads
        # A new exchange has neither a log nor anything else.
        begun = [stream for stream, before, _ in self.tables["exchanges"].changes() if before is ABSENT]
        for name in ("logs", "finished", "held") if begun else ():
            self.tables[name].fresh.update(begun)

    def _accept_values(self, commit: Commit) -> None:
        for name in self.odd.keys() & {*commit.put, *commit.delete}:
            self.odd.pop(name)
            if name in commit.put:
                self.odd[name] = commit.put[name]
        for name, written in list(self._changed_values()):
            self.raw[name] = written
        for name in self.gone_writers:
            self.writers.pop(name, None)
        if self.is_record_changed:
            self.variable = encode_variable(self._record, self.variable)

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
        """Others have written: only what the next commit compares and writes is known."""
        self.is_exact = False
        self.fresh.clear()
        for table in self.tables.values():
            table.is_exact = False
            if table.fresh:
                table.fresh.clear()

    def undo(self) -> None:
        """Forget the changes of the rules."""
        is_sorted = not self.finished.journal
        for table in self.tables.values():
            table.undo()
        if not is_sorted:
            self.sort_finished()
        if self.is_record_changed:
            self._record = decode_record(self.opened_record, self.variable)
        self._clear()
        self.told = ()
        self.reset()

    def learn(self, numbers: bytes, fields: Mapping[str, bytes | None]) -> None:
        """Take some stored fields, which others have changed. Call `undo` before."""
        self._inexact()
        for name, value in fields.items():
            self.set_field(name, value)
        self.sort_finished()
        self.set_numbers(numbers)

    def table_of(self, field: str) -> str:
        """Return the table of a field; empty if it is in none."""
        return BY_PREFIX.get(field[:2], "")

    def stored_entry(self, field: str) -> Any:
        """Return the stored entry of a table, by the name of its field; None if it is absent."""
        table = self.tables[BY_PREFIX[field[:2]]]
        return table.stored(table.codec.key(field[2:]))


def opened(record: SessionRecord, now: float, mark: float) -> tuple[bytes, dict[str, bytes]]:
    """Return the numbers and fields of a new session."""
    doc = Document(record, now)
    doc.schedule()
    numbers = dict.fromkeys(NUMBERS, 0.0)
    numbers |= {"version": 1, "mark": mark, "touched": now, "opened": now, "hint": doc.hint}
    numbers["expires"] = max(now, doc.hint) + SLACK / 2
    fixed, variable = encode_record(record)
    return pack(*numbers.values()), {"r": fixed, "m": variable}
