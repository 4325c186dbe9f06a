"""The measurement of other servers: our own has no violation, and each kind of violation is seen."""

import asyncio
from typing import Any

import pytest

from tests.chaos.others import OTHERS, STEPS, Seen, tried

FAULTS = ["answer", "unnoticed", "same", "resume", "kill"]
PROGRESS = "notifications/progress"


def step(number: int, of: str = "n1") -> Any:
    return {"method": PROGRESS, "params": {"progressToken": of, "progress": number}}


def answer(text: str = "n1", id: int | str = 1) -> Any:  # noqa: A002 - the protocol's word
    return {"id": id, "result": {"content": [{"type": "text", "text": text}]}}


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([*map(step, STEPS), answer()], set()),
        ([{"id": 1, "error": {"code": -31002, "message": "outcome unknown"}}], set()),
        ([*map(step, STEPS[:-1]), answer()], {"events"}),
        ([*map(step, [1, 2, 2, 3, 4, 5]), answer()], {"events"}),
        ([step(1, "n2")], {"foreign"}),
        ([*map(step, STEPS), answer("n2")], {"foreign"}),
        ([*map(step, STEPS), answer(id="1")], {"foreign"}),
    ],
)
def test_each_kind_of_violation_is_seen(messages: list[Any], found: set[str]) -> None:
    seen = Seen(1, "n1", STEPS, [], [], set(), asyncio.Event())
    for message in messages:
        seen.take(message)
    assert seen.found == found


def test_our_own_server_has_no_violation() -> None:
    results = asyncio.run(tried(OTHERS[0], FAULTS, 20, 60))
    assert {fault: (one.requests, one.kinds) for fault, one in results.items()} == {
        fault: (40 if fault == "same" else 20, {}) for fault in FAULTS
    }
