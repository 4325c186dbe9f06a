"""The table of a session's life, every state with every input."""

import pytest

from limpet.core.lifecycle import SessionInput, SessionState, step

CLOSING = (
    SessionInput.DELETED,
    SessionInput.IDLE,
    SessionInput.EXPIRED,
    SessionInput.EVICTED,
    SessionInput.SHUTDOWN,
    SessionInput.OPERATOR,
)


@pytest.mark.parametrize("happened", SessionInput)
def test_no_input_leads_out_of_closed(happened: SessionInput) -> None:
    assert step(SessionState.CLOSED, happened) is SessionState.CLOSED


@pytest.mark.parametrize("happened", CLOSING)
@pytest.mark.parametrize("state", [SessionState.ATTACHED, SessionState.DETACHED])
def test_every_closing_input_closes_a_living_session(state: SessionState, happened: SessionInput) -> None:
    assert step(state, happened) is SessionState.CLOSED


@pytest.mark.parametrize(
    ("state", "happened", "after"),
    [
        (SessionState.ATTACHED, SessionInput.BROKE, SessionState.DETACHED),
        (SessionState.ATTACHED, SessionInput.RETURNED, SessionState.ATTACHED),
        (SessionState.ATTACHED, SessionInput.GRACE_OVER, SessionState.ATTACHED),
        (SessionState.DETACHED, SessionInput.BROKE, SessionState.DETACHED),
        (SessionState.DETACHED, SessionInput.RETURNED, SessionState.ATTACHED),
        (SessionState.DETACHED, SessionInput.GRACE_OVER, SessionState.CLOSED),
    ],
)
def test_grace_runs_only_while_detached(
    state: SessionState, happened: SessionInput, after: SessionState
) -> None:
    assert step(state, happened) is after
