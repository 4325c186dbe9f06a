"""The tables of a draft: dicts with a journal of changes, and of reads, if other processes write too.

A table is what the rules have made of it so far. Its journal has the value before, for each entry that was set or
deleted: `accept` forgets it after the commit, `undo` puts the values back.

While one process alone writes a session, its commits depend on everything, and what a rule has read does not matter:
reading is that of a dict (`Table`). As soon as another one writes too, the same tables note the names that are read
(`Noted`).
"""

from collections.abc import Iterator
from typing import Any, Final

from typing_extensions import override

from limpet.stores.shared.fields import Codec
from limpet.stores.shared.heads import HeadLog

ABSENT: Final[Any] = object()
"""Instead of the value of an entry: there is none."""
_get, _pop, _set = dict.get, dict.pop, dict.__setitem__
_NONE: Final[Any] = frozenset[Any]()
"""Nothing is noted. Most documents need no sets of their own."""


class NeedsAll(Exception):
    """A rule needs all of the session, and not all of it is known."""


class Table(dict[Any, Any]):
    """A table with a journal."""

    __slots__ = ("codec", "fresh", "is_exact", "is_whole", "journal", "names")

    def __init__(self, codec: Codec) -> None:
        super().__init__()
        self.codec: Codec = codec
        self.journal: dict[Any, Any] = {}
        """The values before, of the entries that rules have set or deleted."""
        self.is_exact: bool = True
        """All entries are known."""
        self.is_whole: bool = False
        """A rule has gone through all of them."""
        self.names: set[Any] = _NONE
        """The entries that rules have read."""
        self.fresh: set[Any] = _NONE
        """Of a table of which not all entries are known: those that are known as of the last commit."""

    def begin_noting(self, *, is_noting: bool) -> None:
        """Note from now on what is read, or nothing."""
        self.__class__ = (_NOTING if is_noting else _PLAIN)[type(self)]
        self.names, self.fresh = (set(), set()) if is_noting else (_NONE, _NONE)

    @override
    def __setitem__(self, name: Any, value: Any) -> None:
        journal = self.journal
        if name not in journal:
            journal[name] = _get(self, name, ABSENT)
        _set(self, name, value)

    @override
    def __delitem__(self, name: Any) -> None:
        self.pop(name)

    @override
    def pop(self, name: Any, *default: Any) -> Any:
        journal = self.journal
        before = _pop(self, name, *default)
        if name not in journal and before not in default:
            journal[name] = before
        return before

    def stored(self, name: Any) -> Any:
        """Return an entry as it was after the last commit, without a note; None if there is none."""
        before = self.journal.get(name, self)
        found = dict.get(self, name) if before is self else before
        return None if found is ABSENT else found

    def put(self, name: Any, value: Any) -> None:
        """Set a stored entry; ABSENT: there is none."""
        if value is ABSENT:
            dict.pop(self, name, None)
        else:
            dict.__setitem__(self, name, value)

    def changes(self) -> list[tuple[Any, Any, Any]]:
        """Return the entries that were changed, before and after; ABSENT: there is none."""
        return [
            (name, before, after)
            for name, before in self.journal.items()
            if (after := dict.get(self, name, ABSENT)) is not before
        ]

    def accept(self) -> None:
        """The changes are stored."""
        self.journal.clear()

    def undo(self) -> None:
        """Forget the changes."""
        for name, before in self.journal.items():
            self.put(name, before)
        self.journal.clear()


class Noted(Table):
    """A table that notes what is read."""

    __slots__ = ()

    is_whole: bool
    fresh: set[Any]
    names: set[Any]

    @override
    def get(self, name: Any, default: Any = None) -> Any:
        self.names.add(name)
        return dict.get(self, name, default)

    @override
    def __getitem__(self, name: Any) -> Any:
        self.names.add(name)
        value = dict.get(self, name, ABSENT)
        if value is ABSENT:
            if not self.is_exact:
                # Another field names this one: it is of a later time than this table.
                raise NeedsAll
            raise KeyError(name)
        return value

    @override
    def __contains__(self, name: object) -> bool:
        self.names.add(name)
        return dict.__contains__(self, name)

    @override
    def pop(self, name: Any, *default: Any) -> Any:
        self.names.add(name)
        return super().pop(name, *default)

    @override
    def accept(self) -> None:
        """The changes are stored, and what was read is the stored value."""
        if not self.is_exact:
            self.fresh.update(self.names, self.journal)
        self.names.clear()
        self.is_whole = False
        self.journal.clear()

    @override
    def undo(self) -> None:
        self.names.clear()
        self.is_whole = False
        super().undo()

    def _whole(self) -> None:
        if not self.is_exact:
            raise NeedsAll
        self.is_whole = True

    @override
    def items(self) -> Any:
        self._whole()
        return dict.items(self)

    @override
    def values(self) -> Any:
        self._whole()
        return dict.values(self)

    @override
    def __iter__(self) -> Iterator[Any]:
        self._whole()
        return dict.__iter__(self)


class Logs(Table):
    """The logs. A rule gets a copy of a log, and may change it."""

    __slots__ = ()

    def _copy(self, name: Any) -> None:
        if name not in self.journal:
            log = dict.get(self, name)
            if log is not None:
                self.journal[name] = log
                dict.__setitem__(self, name, log.copied(name))

    @override
    def get(self, name: Any, default: Any = None) -> Any:
        self._copy(name)
        return super().get(name, default)

    @override
    def __getitem__(self, name: Any) -> Any:
        self._copy(name)
        return super().__getitem__(name)

    @override
    def __setitem__(self, name: Any, log: Any) -> None:
        # A rule begins a log.
        head = HeadLog(log.low)
        head.name = name
        super().__setitem__(name, head)

    @override
    def items(self) -> Any:
        for name in list(dict.keys(self)):
            self._copy(name)
        return super().items()

    @override
    def values(self) -> Any:
        return [log for _, log in self.items()]

    @override
    def changes(self) -> list[tuple[Any, Any, Any]]:
        return [
            (name, before, log)
            for name, before, log in super().changes()
            if log is ABSENT or before is ABSENT or log.new or not log.same_as(before)
        ]

    @override
    def accept(self) -> None:
        for name in self.journal:
            log = dict.get(self, name)
            if log is not None:
                log.new = []
                if log.closed or log.low.seq == log.first:
                    # Few logs are trimmed: until then the index is not kept, and is read when a rule needs it.
                    log.index = None
        super().accept()

    @override
    def undo(self) -> None:
        for _, before, _ in self.changes():
            if before is not ABSENT:
                before.index = None
        super().undo()


class NotedLogs(Logs, Noted):
    """The logs, which also note what is read."""

    __slots__ = ()


_NOTING: Final[dict[type[Table], type[Table]]] = {Table: Noted, Logs: NotedLogs}
_PLAIN: Final[dict[type[Table], type[Table]]] = {Noted: Table, NotedLogs: Logs}
