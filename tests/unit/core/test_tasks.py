"""The life of a task: the order of its states, and that an end is final."""

import json
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.rounds import Asked
from limpet.core.tasks import (
    TABLE,
    TERMINAL,
    TaskInput,
    TaskState,
    TaskStatus,
    answered,
    asked,
    begun,
    created,
    described,
    detailed,
    ended,
    reconciled,
    renewed,
    task_key,
    withdrawn,
)
from limpet.protocol.tasks import Progress
from limpet.wire.jsonrpc import encode

ASK: Final = Asked("elicitation/create", {"message": "?"})
ENDS: Final = (TaskInput.RESULT, TaskInput.ERROR, TaskInput.CANCEL)


def sent(value: object) -> dict[str, Any]:
    members: dict[str, Any] = json.loads(encode(value))
    return members


def must(state: TaskState | None) -> TaskState:
    assert state is not None
    return state


def test_the_table_leads_out_of_no_terminal_status() -> None:
    assert not [pair for pair in product(TERMINAL, TaskInput) if pair in TABLE]
    assert all((status, event) in TABLE for status in set(TaskStatus) - TERMINAL for event in ENDS)


def test_a_task_ends_with_its_last_message_or_the_one_of_its_end() -> None:
    working = must(described(begun(0, 60), Progress(1, message="half")))
    assert described(working, Progress(1, message="half")) is None
    for said, last in (("", "half"), ("stopped", "stopped")):
        end = must(ended(working, TaskInput.CANCEL, message=said))
        assert (end.status, end.message) == (TaskStatus.CANCELLED, last)
        assert ended(end, TaskInput.RESULT) is None


def test_an_ask_requires_input_until_the_last_answer() -> None:
    state = must(asked(must(asked(begun(0, 60), "a", ASK)), "b", ASK))
    assert state.status is TaskStatus.INPUT_REQUIRED
    state = must(answered(state, {"a": 1, "stranger": 2}))
    assert (state.status, list(state.asks), state.answers) == (TaskStatus.INPUT_REQUIRED, ["b"], {"a": 1})
    state = must(answered(state, {"b": 3}))
    assert (state.status, state.asks, state.answers) == (TaskStatus.WORKING, {}, {"a": 1, "b": 3})


def test_answers_to_unknown_asks_change_nothing() -> None:
    waiting = must(asked(begun(0, 60), "a", ASK))
    assert answered(waiting, {"b": 1}) is None
    done = must(answered(waiting, {"a": 1}))
    assert answered(done, {"a": 2}) is None, "the first answer counts"


def test_an_ask_that_is_withdrawn_is_forgotten_with_its_answer() -> None:
    waiting = must(asked(begun(0, 60), "a", ASK))
    assert must(withdrawn(waiting, "a")).status is TaskStatus.WORKING
    assert must(withdrawn(must(answered(waiting, {"a": 1})), "a")).answers == {}
    assert withdrawn(waiting, "b") is None


@given(st.lists(st.sampled_from(["ask", "answer", "withdraw", "describe", *ENDS]), max_size=12))
def test_an_end_is_always_final_and_input_is_required_exactly_while_an_ask_is_open(
    events: list[str | TaskInput],
) -> None:
    state = begun(0, 60)
    for number, event in enumerate(events):
        changes: dict[str | TaskInput, Callable[[TaskState], TaskState | None]] = {
            "ask": partial(asked, key=f"k{number}", ask=ASK),
            "answer": lambda state: answered(state, dict.fromkeys(list(state.asks)[:1], 1)),
            "withdraw": lambda state: withdrawn(state, next(iter(state.asks), "")),
            "describe": partial(described, progress=Progress(number)),
            **{end: partial(ended, event=end) for end in ENDS},
        }
        changed = changes[event](state)
        assert changed is None or not state.is_terminal
        state = changed or state
        assert (state.status is TaskStatus.INPUT_REQUIRED) == bool(state.asks)


def test_a_change_renews_the_ttl_and_never_shortens_it() -> None:
    state = renewed(begun(100, 60), 130, 60)
    assert (state.created, state.updated, state.ttl) == (100, 130, 90)
    assert renewed(state, 140, 10).ttl == 90


@pytest.mark.parametrize(
    ("state", "members"),
    [
        (begun(0, 60), {"status": "working"}),
        (
            must(asked(begun(0, 60), "a", ASK)),
            {
                "status": "input_required",
                "inputRequests": {"a": {"method": "elicitation/create", "params": {"message": "?"}}},
            },
        ),
        (
            must(ended(begun(0, 60), TaskInput.RESULT, result=b'{"content":[]}')),
            {"status": "completed", "result": {"content": []}},
        ),
        (
            must(ended(begun(0, 60), TaskInput.ERROR, error=b'{"code":1,"message":"m"}')),
            {"status": "failed", "error": {"code": 1, "message": "m"}},
        ),
        (must(ended(begun(0, 60), TaskInput.CANCEL)), {"status": "cancelled"}),
        (
            must(described(begun(0, 60), Progress(1, 2, "half"))),
            {"status": "working", "statusMessage": "half"},
        ),
    ],
)
def test_a_task_is_encoded_with_the_members_of_its_status(state: TaskState, members: dict[str, Any]) -> None:
    common: dict[str, Any] = {
        "taskId": "t",
        "createdAt": "1970-01-01T00:00:00.000Z",
        "lastUpdatedAt": "1970-01-01T00:00:00.000Z",
        "ttlMs": 60_000,
        "pollIntervalMs": 1_500,
    }
    assert sent(detailed("t", state, 1.5)) == {**common, **members}
    kept: dict[str, Any] = {name: members[name] for name in ("status", "statusMessage") if name in members}
    assert sent(created("t", state, 1.5)) == {**common, **kept}


def test_durations_travel_as_whole_milliseconds() -> None:
    members = sent(created("t", begun(0, 0.0015), 0.3333))
    assert (members["ttlMs"], members["pollIntervalMs"]) == (2, 333)


def test_a_task_is_stored_under_a_key_that_does_not_give_its_id_away() -> None:
    assert "secret" not in task_key("secret")
    assert task_key("secret") != task_key("secreu")


def test_the_asks_of_a_task_become_those_of_its_handler_again() -> None:
    """A failover has lost `new`, brought back `withdrawn`, and left `answered` and `kept` as they were."""
    state = begun(0, 60)
    for key in ("withdrawn", "answered", "kept"):
        state = must(asked(state, key, ASK))
    state = must(answered(state, {"answered": 1}))
    again = must(reconciled(state, {"kept": ASK, "new": ASK}, {"answered", "kept", "new"}))
    assert (set(again.asks), again.answers) == ({"kept", "new"}, {"answered": 1})
    assert reconciled(again, {"kept": ASK, "new": ASK}, {"answered", "kept", "new"}) is None
    assert must(reconciled(again, {}, ())).status is TaskStatus.WORKING
