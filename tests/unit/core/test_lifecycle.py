"""The table of a session's life, every state with every input."""

import pytest

from holdfast.core.lifecycle import Input, State, step

CLOSING = (Input.DELETED, Input.IDLE, Input.EXPIRED, Input.EVICTED, Input.SHUTDOWN)


@pytest.mark.parametrize("happened", Input)
def test_no_input_leads_out_of_closed(happened: Input) -> None:
    assert step(State.CLOSED, happened) is State.CLOSED


@pytest.mark.parametrize("happened", CLOSING)
@pytest.mark.parametrize("state", [State.ATTACHED, State.DETACHED])
def test_every_closing_input_closes_a_living_session(state: State, happened: Input) -> None:
    assert step(state, happened) is State.CLOSED


@pytest.mark.parametrize(
    ("state", "happened", "after"),
    [
        (State.ATTACHED, Input.BROKE, State.DETACHED),
        (State.ATTACHED, Input.RETURNED, State.ATTACHED),
        (State.ATTACHED, Input.GRACE_OVER, State.ATTACHED),
        (State.DETACHED, Input.BROKE, State.DETACHED),
        (State.DETACHED, Input.RETURNED, State.ATTACHED),
        (State.DETACHED, Input.GRACE_OVER, State.CLOSED),
    ],
)
def test_grace_runs_only_while_detached(state: State, happened: Input, after: State) -> None:
    assert step(state, happened) is after
