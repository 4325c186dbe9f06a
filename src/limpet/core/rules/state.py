"""State: the fields of a session, or of an area that belongs to a principal.

A version is a counter of the session or area. So a field that was deleted and set again has another version, and a
compare-and-set cannot mistake it.

Every change has a name, `op`. Its result is kept with the fields, among the last REMEMBERED_OPS: a change that is sent
again finds it and changes nothing.

**What is kept.** The limits of one session or area (`state_bytes`, `subscription_bytes`) bound little where a principal
has a thousand sessions. So `Limits.principal_kept_bytes` bounds everything that a principal keeps besides streams and
tasks: the names and values of fields, the URIs of subscriptions, and `ENTRY_BYTES` for each of them, because a short
one costs a store much more than its bytes. That sum lies outside the document; a rule gets what the session or area may
keep (`StateRoom.kept`). A change that keeps no more than before is never refused.

A store may give the rule a part of the fields: those that the changes name.
"""

from collections import OrderedDict
from math import inf
from typing import Final, NamedTuple

import msgspec

from limpet.errors import StateError, TooMuchKept

REMEMBERED_OPS: Final = 256
"""Changes of a session or area whose results are kept for a command that is sent again."""
ENTRY_BYTES: Final = 256
"""The cost of a field or a subscription besides its name and value."""


class Cell(NamedTuple):
    """One field of state. Version 0 means absent."""

    value: bytes
    version: int


class FieldChange(NamedTuple):
    """A change of one field."""

    op: str
    field: str
    value: bytes | None = None
    """The new value; None deletes the field."""
    by: int | None = None
    """It is added to the field, instead of a new value. An absent field counts as 0."""
    version: int | None = None
    """The change is made only if the field has this version."""


class StateRoom(NamedTuple):
    """How much there may be."""

    bytes: int
    """Names and values of the fields."""
    total: int
    """What one principal may keep."""
    kept: float = inf
    """What this session or area may keep of it now."""


class StateFields:
    """The state of a session or area: its numbers, fields by name, and the results of the last changes.

    It is empty at first.
    """

    __slots__ = ("bytes", "cells", "kept", "results", "versions")

    def __init__(self, size: int = 0, versions: int = 0, kept: int = 0) -> None:
        self.bytes: int = size
        """Names and values."""
        self.versions: int = versions
        """The last version that was given."""
        self.kept: int = kept
        self.cells: dict[str, Cell] = {}
        self.results: OrderedDict[str, int] = OrderedDict()
        """By the names of the changes, oldest first."""


def growth(before: int | None, after: int | None) -> int:
    """Return the change of the kept bytes when the size of an entry changes; None: there is no entry."""
    return (0 if after is None else ENTRY_BYTES + after) - (0 if before is None else ENTRY_BYTES + before)


def change(state: StateFields, wanted: FieldChange, room: StateRoom) -> int:
    """Change a field.

    Return its new version, 0 after a deletion, −1 if its version differs; or the new value if something was added to
    it.

    Raises:
        StateError: there is no room, or something is added to a field that holds no integer.
    """
    if wanted.op in state.results:
        return state.results[wanted.op]
    cell = state.cells.get(wanted.field)
    if wanted.version is not None and wanted.version != (cell.version if cell else 0):
        return _remember(state, wanted.op, -1)
    if wanted.by is None:
        return _remember(state, wanted.op, _set(state, wanted.field, cell, wanted.value, room))
    total = _integer(wanted.field, cell) + wanted.by
    _set(state, wanted.field, cell, b"%d" % total, room)
    return _remember(state, wanted.op, total)


def hold(state: StateFields, op: str, mark: str, uri: str, room: StateRoom, *, holds: bool) -> int:
    """Keep the bytes of a subscription besides the fields, or give them back. Return the number that is kept.

    A field of this name, `mark`, says that they are kept. So they are kept once, and only what is kept is given back.

    Raises:
        TooMuchKept: there is no room.
    """
    if op in state.results or (mark in state.cells) is holds:
        return state.results.get(op, state.kept)
    size = growth(None, len(uri.encode()))
    if holds:
        _check_kept(state, size, uri, room)
        state.cells[mark] = Cell(b"", 1)
    else:
        del state.cells[mark]
    state.kept += size if holds else -size
    return _remember(state, op, state.kept)


def _set(state: StateFields, field: str, cell: Cell | None, value: bytes | None, room: StateRoom) -> int:
    length = len(field.encode())
    before = None if cell is None else length + len(cell.value)
    after = None if value is None else length + len(value)
    more, kept = (after or 0) - (before or 0), growth(before, after)
    if more > 0 and state.bytes + more > room.bytes:
        raise StateError(f"state is limited to {room.bytes} bytes; {field!r} would exceed it")
    _check_kept(state, kept, field, room)
    state.bytes += more
    state.kept += kept
    state.versions += 1
    if value is None:
        state.cells.pop(field, None)
        return 0
    state.cells[field] = Cell(value, state.versions)
    return state.versions


def _check_kept(state: StateFields, more: int, name: str, room: StateRoom) -> None:
    if more > 0 and state.kept + more > room.kept:
        raise TooMuchKept(state.kept + more, room.total, name)


def _integer(field: str, cell: Cell | None) -> int:
    try:
        return msgspec.json.decode(cell.value, type=int) if cell else 0
    except msgspec.DecodeError:
        raise StateError(f"state field {field!r} does not hold an integer") from None


def _remember(state: StateFields, op: str, result: int) -> int:
    state.results[op] = result
    if len(state.results) > REMEMBERED_OPS:
        state.results.popitem(last=False)
    return result
