"""A commit: the one value that changes a session. A backend compares, and applies all of it or nothing.

A session is stored as *numbers* and *fields*. Fields are named values, bytes that only `fields.py` understands. The
numbers are packed in the order of NUMBERS, as doubles (`pack`, `unpack`), because every commit changes some of them.
Every commit changes `version`, so equal bytes of the numbers mean: nothing of the session has changed.

**Exact or compared.** A writer that knows all of a session sends the bytes of the numbers that it knows (`exact`). If
they are the stored ones, nothing was written meanwhile, and the backend stores `after` and applies the fields: it need
not compare anything. This is nearly every commit. If they are not, the backend compares the fields that the rules have
read (`compare`, absent ones too), repeats their tests of numbers, and computes the numbers (`conditions`, `merged`). So
commands of several replicas disturb each other only if they concern the same fields.

**Sent before.** Each writer numbers its commits of a session. The session keeps, for each writer, the number of the
last one that was applied, in the field `o:<writer>`. A commit names its own number and the last number that was
acknowledged; between the two are commits whose fate the writer does not know, and which it has given up. `fate`
decides: a commit is applied, it was applied before, or the session has lost commits (a failover), and then nothing is
applied.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from operator import add
from typing import Final

from msgspec import Struct

from limpet.core.records import WakeUp
from limpet.core.stream import Event

ADDED: Final = ("running", "calls", "readers", "outstanding", "size", "kept", "complete")
"""Counters: they change by a difference."""
GROWING: Final = ("fence", "turned", "touched", "settled", "broke", "expires")
"""Fences and times: of two values, the larger one counts."""
NUMBERS: Final = ("version", "mark", *ADDED, *GROWING, "hint", "state", "opened")
"""`version` counts the commits, `mark` tells writers apart: two sessions that differ never have the same numbers.
`hint`: the smaller of two values counts. `state`: 0 attached, 1 detached."""
PLACES: Final = {name: place for place, name in enumerate(NUMBERS)}
SET, ADD, MAX, MIN = map(float, range(4))
"""How a number changes where others have written."""
HOW: Final = {
    **dict.fromkeys(NUMBERS, SET),
    **dict.fromkeys(ADDED, ADD),
    **dict.fromkeys(GROWING, MAX),
    "hint": MIN,
}
_MERGED: Final[dict[float, Callable[[float, float], float]]] = {ADD: add, MAX: max, MIN: min}
_PACKED: Final = struct.Struct(f"<{len(NUMBERS)}d")

pack: Final[Callable[..., bytes]] = _PACKED.pack
"""Return numbers as bytes."""
unpack: Final[Callable[[bytes], tuple[float, ...]]] = _PACKED.unpack_from
"""Return the numbers of these bytes, as floats. Bytes that a later release has added after them are kept."""
SIZE: Final = _PACKED.size
SLACK: Final = 3_600.0
"""Seconds for which a session is kept in the store longer than it can exist without a commit."""


class Commit(Struct):
    """The changes of a session, and on which conditions they are made."""

    writer: str
    """Who numbers it: the incarnation of a replica, and a random name of the process."""
    number: int
    acknowledged: int
    """The number of the writer's last commit of this session that is known to be applied; 0 if there is none."""
    exact: bytes
    """The numbers that the writer knows, if it knows all of the session; else empty."""
    after: bytes
    """The numbers after the commit, if `exact` are the stored ones."""
    compare: Mapping[str, bytes | None] | None = None
    """The fields that were read and their values; None: absent. Without this, the commit is applied only if `exact`
    are the stored numbers."""
    conditions: Sequence[float] = ()
    """What becomes of the numbers where others have written, in threes after the number of tests. A test: the place
    of a number, the least and the greatest stored value for which the rules decide in the same way. A change: a
    place, how (SET, ADD, MAX, MIN), and a value."""
    put: Mapping[str, bytes] = {}
    """Fields with their new values."""
    delete: Sequence[str] = ()
    """Fields that are forgotten, also if they are absent."""
    events: Mapping[str, Sequence[Event]] = {}
    """By stream: events that are added to its log, the first with the number after the last one of the log."""
    cut: Mapping[str, int] = {}
    """Streams whose events up to this number are forgotten."""
    drop: Sequence[str] = ()
    """Streams whose events are all forgotten. This comes before `events`."""
    told: Sequence[tuple[WakeUp, str, str]] = ()
    """Wake-ups to send when it is applied: the kind, a name, and the replica that it is for."""
    life: float = 0.0
    """Seconds for which the session has to be kept, if no other commit comes: events that it adds are kept as long."""
    renews: bool = False
    """Everything of the session is kept for these seconds from now on. Most commits do not need it: it is kept for
    longer than that."""
    keeps: int = 0
    """By how many bytes it changes what the session keeps (`kept`). A store whose sums lie elsewhere ignores it."""
    frees: bool = False
    """It only ends and forgets: it is applied also if the store has no room for anything new."""


class Done(Struct, frozen=True):
    """The commit is applied, now or before."""

    numbers: bytes
    """The numbers after it. If they are `Commit.after`, the writer knows all of the session; else others have
    written too."""
    sent_before: bool = False
    """It was applied when it was sent before, and others may have written after it."""


class Stale(Struct, frozen=True):
    """Nothing was applied: a field differs, or a test fails. The rules have to decide again."""

    numbers: bytes
    fields: Mapping[str, bytes | None]
    """Of the compared fields, those that differ, as they are stored; None: absent. Without `Commit.compare`: all
    fields of the session."""


class LostWrites(Struct, frozen=True):
    """Nothing was applied: the session has lost commits that were acknowledged. Load it again."""


Reply = Done | Stale | LostWrites | None
"""None: there is no such session."""


class CommitFate(Enum):
    """What a backend does with a commit, by its number."""

    APPLY = "apply"
    BEFORE = "before"
    LOST = "lost"


def fate(commit: Commit, last: int) -> CommitFate:
    """Decide by its number whether a commit is applied; `last`: the number of its writer's last one, or 0."""
    if last == commit.number:
        return CommitFate.BEFORE
    return CommitFate.APPLY if commit.acknowledged <= last < commit.number else CommitFate.LOST


def merged(commit: Commit, stored: bytes) -> bytes | None:
    """Return the numbers after a commit, where others have written meanwhile; None if a test has another outcome."""
    numbers = list(unpack(stored))
    given = commit.conditions
    changes = 1 + 3 * int(given[0])
    for index in range(1, changes, 3):
        if not given[index + 1] <= numbers[int(given[index])] <= given[index + 2]:
            return None
    numbers[0] += 1
    for index in range(changes, len(given), 3):
        place, how, value = int(given[index]), given[index + 1], given[index + 2]
        numbers[place] = value if how == SET else _MERGED[how](numbers[place], value)
    return pack(*numbers) + stored[SIZE:]
