"""The tables of a draft: they note which fields rules read and change."""

from collections.abc import Iterator
from typing import Any, Final

from typing_extensions import override

from holdfast.core.stream import Log
from holdfast.stores.shared.fields import Table
from holdfast.stores.shared.heads import HeadLog

GONE: Final[Any] = object()
"""The value of an entry that a rule has deleted."""
ABSENT: Final[Any] = object()


class NeedsAll(Exception):
    """A rule needs all of the session, and not all of it is known."""


class Noted(dict[Any, Any]):
    """A table. Its own entries are the changes; `base` has the stored ones."""

    __slots__ = ("base", "is_exact", "is_whole", "reads", "table")

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.table: Table = table
        self.is_exact: bool = True
        """All entries are known."""
        self.is_whole: bool = False
        """A rule has gone through all of them."""
        self.base: dict[Any, Any] = {}
        self.reads: set[Any] = set()

    @override
    def get(self, name: Any, default: Any = None) -> Any:
        value = dict.get(self, name, ABSENT)
        if value is ABSENT:
            self.reads.add(name)
            return self.base.get(name, default)
        return default if value is GONE else value

    @override
    def __getitem__(self, name: Any) -> Any:
        value = self.get(name, ABSENT)
        if value is ABSENT:
            if not self.is_exact:
                # Another field names this one: it is of a later time than this table.
                raise NeedsAll
            raise KeyError(name)
        return value

    @override
    def __contains__(self, name: object) -> bool:
        return self.get(name, ABSENT) is not ABSENT

    @override
    def __delitem__(self, name: Any) -> None:
        self[name] = GONE

    @override
    def pop(self, name: Any, default: Any = ABSENT) -> Any:
        value = self.get(name, ABSENT)
        if value is ABSENT:
            return self[name] if default is ABSENT else default
        self[name] = GONE
        return value

    def _need_all(self) -> None:
        if not self.is_exact:
            raise NeedsAll
        self.is_whole = True

    def _all(self) -> list[tuple[Any, Any]]:
        self._need_all()
        merged = {**self.base, **{name: dict.__getitem__(self, name) for name in dict.keys(self)}}
        return [(name, value) for name, value in merged.items() if value is not GONE]

    @override
    def items(self) -> Any:
        return self._all()

    @override
    def values(self) -> Any:
        return [value for _, value in self._all()]

    @override
    def __iter__(self) -> Iterator[Any]:
        return iter([name for name, _ in self._all()])

    @override
    def __len__(self) -> int:
        changes = [(name in self.base, dict.__getitem__(self, name) is GONE) for name in dict.keys(self)]
        added = sum(not was and not gone for was, gone in changes)
        return len(self.base) + added - sum(was and gone for was, gone in changes)

    def changes(self) -> Iterator[tuple[Any, Any]]:
        """Return the changes."""
        return iter(dict.items(self))

    def accept(self) -> None:
        """The changes are stored."""
        base = self.base
        for name, value in dict.items(self):
            if value is GONE:
                base.pop(name, None)
            else:
                base[name] = value
        dict.clear(self)

    def undo(self) -> None:
        """Forget the changes, and what was read."""
        dict.clear(self)
        self.reads.clear()
        self.is_whole = False

    def put(self, name: Any, value: Any) -> None:
        """Set a stored entry; ABSENT: there is none."""
        if value is ABSENT:
            self.base.pop(name, None)
        else:
            self.base[name] = value


class NotedLogs(Noted):
    """The logs. A rule gets a copy of a log, and may change it."""

    __slots__ = ()

    @override
    def get(self, name: Any, default: Any = None) -> Any:
        log = dict.get(self, name, ABSENT)
        if log is ABSENT:
            self.reads.add(name)
            log = self.base.get(name)
            if log is None:
                return default
            log = log.copied(name)
            dict.__setitem__(self, name, log)
        return default if log is GONE else log

    @override
    def __setitem__(self, name: Any, log: Any) -> None:
        if type(log) is Log:
            # A rule begins a log.
            head = HeadLog(log.low)
            head.name = name
            log = head
        dict.__setitem__(self, name, log)

    @override
    def _all(self) -> list[tuple[Any, Any]]:
        self._need_all()
        for name in self.base:
            self.get(name)
        return super()._all()

    @override
    def changes(self) -> Iterator[tuple[Any, Any]]:
        for name, log in dict.items(self):
            before = self.base.get(name)
            if log is GONE or before is None or log.new or not log.same_as(before):
                yield name, log

    @override
    def accept(self) -> None:
        for _, log in dict.items(self):
            if log is not GONE:
                log.new = []
                if log.closed or log.low.seq == log.first:
                    # Few logs are trimmed: until then the index is not kept, and is read when a rule needs it.
                    log.index = None
        super().accept()

    @override
    def undo(self) -> None:
        for name, log in dict.items(self):
            before = self.base.get(name)
            if before is not None and (log is GONE or not log.same_as(before)):
                before.index = None
        super().undo()
