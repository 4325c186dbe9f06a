"""The table of an exchange's life: every state with every input, and every order in which inputs can come."""

from itertools import product
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.exchange import (
    ENDS,
    TABLE,
    Action,
    ExchangeInput,
    ExchangeState,
    Impossible,
    step,
)

BEGINNINGS: Final = (ExchangeState.CLAIMED, ExchangeState.RUNNING)
LIVE: Final = [state for state in ExchangeState if state < ExchangeState.ENDING]
ENDED: Final = [state for state in ExchangeState if state >= ExchangeState.ENDING]
HELD: Final = [state for state in ExchangeState if state >= ExchangeState.ENDING_HELD]
WITH_SLOT: Final = {
    ExchangeState.RUNNING,
    ExchangeState.STREAMING,
    ExchangeState.PARKED,
    ExchangeState.TASK,
    *HELD,
}
CELLS: Final = [
    (state, happened, cell)
    for state, happened in product(ExchangeState, ExchangeInput)
    if (cell := TABLE[state][happened]) is not None
]


def reachable() -> set[ExchangeState]:
    found, fresh = set(BEGINNINGS), list(BEGINNINGS)
    while fresh:
        state = fresh.pop()
        for cell in TABLE[state]:
            if cell is not None and cell[0] not in found:
                found.add(cell[0])
                fresh.append(cell[0])
    return found


# Every state with every input


def test_the_table_has_a_cell_for_every_state_and_input() -> None:
    assert len(TABLE) == len(ExchangeState)
    assert {len(row) for row in TABLE} == {len(ExchangeInput)}
    assert [int(state) for state in ExchangeState] == list(range(len(ExchangeState))), (
        "states are the table's index"
    )
    assert [int(happened) for happened in ExchangeInput] == list(range(len(ExchangeInput)))


def test_every_state_is_reached() -> None:
    assert reachable() == set(ExchangeState)


def test_every_input_and_every_action_is_used() -> None:
    assert {happened for _, happened, _ in CELLS} == set(ExchangeInput)
    assert {action for _, _, (_, actions) in CELLS for action in actions} == set(Action)


def test_no_row_leads_from_an_ended_state_to_a_live_one() -> None:
    assert [cell for state, _, cell in CELLS if state in ENDED and cell[0] in LIVE] == []


def test_a_row_that_ends_an_exchange_decides_one_terminal_message_and_no_other_row_does() -> None:
    for state, happened, (after, actions) in CELLS:
        ends = [action for action in actions if action in ENDS]
        if state in LIVE and after in ENDED:
            assert len(ends) == 1, (state, happened)
        elif ends:
            # The store has refused the end that was decided here: another replica wrote one.
            assert state in {ExchangeState.ENDING, ExchangeState.ENDING_HELD}
            assert (happened, ends) == (ExchangeInput.LOST, [Action.DISOWN]), state
            assert state in {ExchangeState.ENDING, ExchangeState.ENDING_HELD}


def test_nothing_starts_or_waits_in_an_ended_state() -> None:
    for state, happened in product(
        ENDED, (ExchangeInput.START, ExchangeInput.WAIT, ExchangeInput.REFUSE, ExchangeInput.PARKED)
    ):
        with pytest.raises(Impossible, match=f"{happened.name} in {state.name}"):
            step(state, happened)


def test_a_slot_is_taken_where_a_handler_starts_and_freed_where_it_is_over() -> None:
    for state, happened, (after, actions) in CELLS:
        taken = (after in WITH_SLOT) - (state in WITH_SLOT)
        assert (happened is ExchangeInput.START) - (Action.FREE_SLOT in actions) == taken, (state, happened)
        assert len(set(actions)) == len(actions)


def test_the_slot_of_an_ended_exchange_is_held_exactly_while_a_stopped_handler_runs() -> None:
    for state, happened, (after, actions) in CELLS:
        is_stopped = state in LIVE and after in HELD
        assert (Action.STOP in actions) == is_stopped, (state, happened)


def test_a_handler_that_is_over_is_reported_once() -> None:
    assert [state for state in ExchangeState if TABLE[state][ExchangeInput.OVER] is not None] == HELD
    assert [TABLE[state][ExchangeInput.OVER] for state in HELD] == [
        (ExchangeState(state - len(HELD)), (Action.FREE_SLOT,)) for state in HELD
    ]


def test_what_a_handler_returns_after_the_end_changes_nothing() -> None:
    for state in ENDED:
        for happened in (
            ExchangeInput.RETURNED,
            ExchangeInput.CANCELLED,
            ExchangeInput.CLOSED,
            ExchangeInput.LATE,
        ):
            assert step(state, happened) == (state, ())


def test_only_an_end_that_is_not_stored_is_tried_again() -> None:
    trying = [state for state, _, (_, actions) in CELLS if Action.TRY_AGAIN in actions]
    assert trying == [ExchangeState.ENDING, ExchangeState.ENDING_HELD]


def test_a_plain_call_is_three_cells() -> None:
    state = ExchangeState.CLAIMED
    seen: list[Action] = []
    for happened in (ExchangeInput.START, ExchangeInput.RETURNED, ExchangeInput.STORED):
        state, actions = step(state, happened)
        seen += actions
    assert (state, seen) == (ExchangeState.SETTLED, [Action.FREE_SLOT, Action.END])


def test_a_step_allocates_nothing() -> None:
    for state, happened, cell in CELLS:
        assert step(state, happened) is cell


# Every order in which inputs can come


@given(st.sampled_from(BEGINNINGS), st.lists(st.sampled_from(ExchangeInput), max_size=40))
def test_any_order_of_inputs_runs_once_ends_once_and_frees_the_slot_once(
    beginning: ExchangeState, inputs: list[ExchangeInput]
) -> None:
    state = beginning
    starts = int(beginning is ExchangeState.RUNNING)
    done: list[Action] = []
    for happened in inputs:
        if TABLE[state][happened] is None:
            continue
        state, actions = step(state, happened)
        starts += happened is ExchangeInput.START
        done += actions
    own_ends = [action for action in done if action in ENDS - {Action.DISOWN}]
    assert starts <= 1
    assert len(own_ends) <= 1
    assert done.count(Action.DISOWN) == (state in {ExchangeState.FENCED, ExchangeState.FENCED_HELD})
    assert bool(own_ends or Action.DISOWN in done) == (state in ENDED)
    assert starts - done.count(Action.FREE_SLOT) == (state in WITH_SLOT)
