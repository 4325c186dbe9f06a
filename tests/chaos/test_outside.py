"""What the outside checker is given, and that it finds faults in it."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.chaos.history import History, Opening, Outage
from tests.chaos.notes import Call, Notes, Received
from tests.chaos.outside import NEVER, UNKNOWN, as_lines, checked, operations
from tests.chaos.replica import Entry
from tests.chaos.trial import SMALL


def a_history(*calls: Call, **more: Any) -> History:
    opening = Opening(plan=SMALL, versions={}, planned={}, fired={}, weather=[])
    runs = [(call.nonce, call.began) for call in calls for _ in range(call.posts)]
    journal = [Entry(at=at, replica="a.1", what="start", nonce=nonce) for nonce, at in runs]
    return History(opening=opening, notes=Notes(calls=list(calls)), journal=journal, **more)


def a_bump(began: float, ended: float, value: int | None, runs: int = 1) -> Call:
    answer = None if value is None else {"id": 1, "result": {"content": [{"text": f"m/{value}"}]}}
    return Call(
        nonce=f"n{began}",
        session="s",
        id=1,
        tool="bump",
        mark="m",
        began=began,
        ended=ended,
        answer=answer,
        posts=runs,
    )


def a_read(began: float, ended: float, value: int) -> Call:
    return replace(a_bump(began, ended, value), tool="counter")


def a_stream(*steps: int, is_answered: bool = True) -> Call:
    received = [Received(n + 1.0, f"s.{n}.t", "progress", f"m/{step}") for n, step in enumerate(steps)]
    received.append(Received(9.0, "s.9.t", "answer", "1"))
    answer = {"id": 1, "result": {"content": [{"text": "m"}]}} if is_answered else None
    return Call(
        nonce="n", session="s", id=1, tool="ticks", mark="m", began=0.5, received=received, answer=answer
    )


def test_an_increment_that_was_sent_twice_may_have_happened_twice() -> None:
    answered, lost = operations(a_history(a_bump(1.0, 2.0, 7, runs=2)))
    assert (answered.kind, answered.output, answered.end) == ("bump", 7, 2_000_000_000)
    assert (lost.output, lost.begin, lost.end) == (UNKNOWN, 1_000_000_000, NEVER)


def test_each_event_is_an_append_and_a_read_and_the_answer_is_the_end() -> None:
    found = list(operations(a_history(a_stream(1, 2))))
    assert [(one.kind, one.input, one.output) for one in found] == [
        ("append", 1, 0),
        ("next", 0, 1),
        ("append", 2, 0),
        ("next", 1, 2),
        ("end", 2, 0),
    ]
    assert [one.kind for one in operations(a_history(a_stream(1, is_answered=False)))] == ["append", "next"]


def test_a_history_with_lost_writes_is_not_given_to_the_checker() -> None:
    with pytest.raises(ValueError, match="failover"):
        list(operations(a_history(outages=[Outage(1.0, 2.0, "failover", lost=True)])))


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("calls", "holds"),
    [
        ([a_bump(1, 2, 1), a_bump(1.5, 3, 2), a_read(4, 5, 2)], True),
        ([a_bump(1, 2, 1), a_bump(1.5, 3, 1)], False),
        ([a_bump(1, 2, 1), a_read(3, 4, 0)], False),
        ([a_bump(1, 2, None), a_read(3, 4, 1), a_read(5, 6, 0)], False),
        ([a_bump(1, 2, None), a_read(3, 4, 0), a_read(5, 6, 1)], True),
        ([a_bump(1, 2, 2, runs=2), a_read(3, 4, 2)], True),
        ([a_stream(1, 2, 3)], True),
        ([a_stream(1, 3)], False),
        ([a_stream(1, 2, 2)], False),
        ([a_stream(2, 1)], False),
    ],
    ids=[
        "two increments",
        "one is lost",
        "an old value",
        "a value goes back",
        "an increment without an answer happens late",
        "an increment happens twice and its answer is the second",
        "a stream",
        "a hole",
        "an event twice",
        "out of order",
    ],
)
def test_the_checker_finds_what_is_not_linearizable(calls: list[Call], *, holds: bool) -> None:
    assert (checked(as_lines(operations(a_history(*calls)))) == 0) is holds
