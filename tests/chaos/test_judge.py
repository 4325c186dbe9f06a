"""The judge of a trial tells a double run from a repeat after an end that its client did not want to read."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.chaos.fleet import Fleet, Life
from tests.chaos.judge import Judge
from tests.chaos.notes import Call, Notes
from tests.chaos.replica import Entry
from tests.chaos.trial import SMALL


def start(at: float, replica: str) -> Entry:
    return Entry(at=at, replica=replica, what="start", nonce="n", claim=replica)


def end(at: float, replica: str) -> Entry:
    return Entry(at=at, replica=replica, what="end", nonce="n")


def left(at: float, replica: str) -> Entry:
    return Entry(at=at, replica=replica, what="left", claim=replica)


TWICE = (start(1.0, "a.1"), start(9.0, "b.1"))


@pytest.mark.parametrize(
    ("journal", "cuts", "died", "fault"),
    [
        ((*TWICE, end(3.0, "a.1"), left(5.0, "a.1")), [4.0], None, False),
        ((*TWICE, left(4.5, "a.1"), end(5.0, "a.1")), [4.0], None, True),
        ((*TWICE, end(4.5, "a.1"), left(5.0, "a.1")), [4.0], None, False),
        ((*TWICE, end(3.0, "a.1")), [], None, True),
        ((*TWICE, end(9.5, "b.1")), [4.0], None, True),
        (TWICE, [4.0], None, True),
        (TWICE, [4.0], 3.0, False),
        (TWICE, [2.0], 3.0, True),
        (TWICE, [10.0], 3.0, True),
        (TWICE, [], 3.0, True),
    ],
    ids=[
        "cut after the end",
        "the replica knew it before the end",
        "the replica learned it after the end",
        "not cut",
        "another run has ended",
        "still running",
        "cut after the death",
        "cut before the death",
        "cut after the second start",
        "dead and not cut",
    ],
)
def test_a_second_run_is_a_fault_unless_the_client_cut_the_end_of_the_first(
    journal: tuple[Entry, ...], cuts: list[float], died: float | None, *, fault: bool
) -> None:
    lives = [Life("a.1", 1, 0.0, ended=died), Life("b.1", 2, 0.0)]
    fleet: Any = SimpleNamespace(journal=lambda: list(journal), lives=lambda: lives, outages=[])
    notes = Notes()
    call = Call(
        nonce="n",
        principal="p",
        session="s",
        id=1,
        tool="ticks",
        arguments={},
        posts=3,
        left=cuts,
        ended=20.0,
    )
    leaver = Call(nonce="left", principal="p", session="s", id=1, tool="ticks", arguments={})
    notes.calls += [call, leaver]
    starts = {"n": [one for one in journal if one.what == "start"], "left": [start(1.0, "c.1")]}
    Judge(SMALL, cast("Fleet", fleet), notes)._starts(starts)
    assert [one.law for one in notes.violations] == ["I4"] * fault
