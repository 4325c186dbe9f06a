"""The history of a trial: all that its judge knows, as a file of JSON lines.

Each line is one object, and its member `kind` says which:

| kind | one line for | members |
|---|---|---|
| `trial` | the trial; the first line | `format`, `versions`, `planned` and `fired` (faults by kind), `weather` (what happened, with seconds), `plan` |
| `life` | a process under trial | `name`, `pid`, `began`, `leaving`, `ended`, `stopped` (pairs: from, until) |
| `outage` | a time without the database, or without the server behind | `began`, `over`, `what`, `lost` (True: acknowledged writes are gone) |
| `entry` | an act of a process, as its journal has it | `at`, `replica`, `what` (start, end, left, opened, closed, rss, lag …), `nonce`, `claim`, `session`, `value`, `note` |
| `call` | a request of a client | `nonce`, `mark`, `posts`, `resumes`, `left` (when the client cut), `received` (each message: time, event id, what, text), `answer` … |
| `notes` | the other observations of the clients; one line | `sessions`, `deleted`, `leavers`, `duplicates`, `counters`, `unavailable`, `violations` (what a client saw at once) … |
| `found` | something in a log or the database after the end that must not be there | `law`, `what` |

Times are seconds since 1970. Session ids and tokens are not in it: sessions have the first 16 digits of the SHA-256 of their id.
"""

import gzip
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from tests.chaos.notes import Call, Notes, Plan, Violation
from tests.chaos.replica import Entry

FORMAT = 1


class Life(Struct, tag="life", tag_field="kind"):
    """One process at one address, from its start to its end."""

    name: str
    pid: int
    began: float
    leaving: float | None = None
    """When it was asked to end."""
    ended: float | None = None
    stopped: list[tuple[float, float]] = []
    """When it stood still, or had no way to the database, and until when."""


class Outage(Struct, tag="outage", tag_field="kind"):
    """A time without the database, or without the server behind."""

    began: float
    over: float
    what: str
    lost: bool = False
    """Acknowledged writes are gone."""


class Opening(Struct, frozen=True, kw_only=True, tag="trial", tag_field="kind"):
    """The trial itself."""

    plan: Plan
    versions: dict[str, str]
    planned: dict[str, int]
    fired: dict[str, int]
    weather: list[str]
    format: int = FORMAT


class Found(Violation, frozen=True, tag="found", tag_field="kind"):
    """A fault that was found in logs or in the database."""


class History(Struct, kw_only=True):
    """Everything that is known of a trial."""

    opening: Opening
    notes: Notes
    lives: list[Life] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    journal: list[Entry] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)

    def lines(self) -> Iterator[Struct]:
        """Yield it line by line."""
        yield self.opening
        yield from (*self.lives, *self.outages, *self.journal, *self.notes.calls, *self.found)
        yield msgspec.structs.replace(self.notes, calls=[], secrets=[])

    def write(self, path: Path) -> None:
        """Write it to a file, compressed if the name ends with `.gz`."""
        with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as file:
            for line in self.lines():
                file.write(msgspec.json.encode(line) + b"\n")


_LINE: msgspec.json.Decoder[Opening | Life | Outage | Entry | Call | Notes | Found] = msgspec.json.Decoder(
    Opening | Life | Outage | Entry | Call | Notes | Found
)


def read_history(path: Path) -> History:
    """Read the file of a trial.

    Raises:
        ValueError: it is of another format, or not whole.
    """
    by_kind: dict[type, list[Any]] = defaultdict(list)
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for line in file:
            one = _LINE.decode(line)
            by_kind[type(one)].append(one)
    if not by_kind[Opening] or not by_kind[Notes]:
        raise ValueError(f"{path} is not whole: its first or its last line is missing")
    opening, notes = by_kind[Opening][0], by_kind[Notes][0]
    if opening.format != FORMAT:
        raise ValueError(f"{path} has format {opening.format}, and this judge reads format {FORMAT}")
    notes.calls = by_kind[Call]
    return History(
        opening=opening,
        notes=notes,
        lives=by_kind[Life],
        outages=by_kind[Outage],
        journal=by_kind[Entry],
        found=by_kind[Found],
    )
