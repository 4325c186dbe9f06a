"""The states of a session, as a table.

            OPEN                  BROKE (no reader left)          GRACE_OVER (nothing in flight)
  (none) ──────────▶ ATTACHED ─────────────────────────▶ DETACHED ──────────▶ CLOSED
                        ▲                                    │                   ▲
                        └───────────── RETURNED ─────────────┘                   │
                        └─ DELETED · IDLE · EXPIRED · EVICTED · SHUTDOWN ·───────┘
                           OPERATOR

Every change of a session's state is in this table; an input that the table does not name leaves the state as it is.
No input leads out of CLOSED: a session is closed once, by the first closing input.
"""

from enum import Enum
from typing import Final


class SessionState(Enum):
    """The state of a session."""

    ATTACHED = "attached"
    DETACHED = "detached"
    CLOSED = "closed"


class SessionInput(Enum):
    """An event in the life of a session. Listeners receive the closing input as the reason."""

    BROKE = "broke"
    RETURNED = "returned"
    GRACE_OVER = "grace over"
    DELETED = "deleted"
    IDLE = "idle"
    EXPIRED = "expired"
    EVICTED = "evicted"
    SHUTDOWN = "shutdown"
    OPERATOR = "by an operator"


_CLOSES: Final = dict.fromkeys(
    (
        SessionInput.DELETED,
        SessionInput.IDLE,
        SessionInput.EXPIRED,
        SessionInput.EVICTED,
        SessionInput.SHUTDOWN,
        SessionInput.OPERATOR,
    ),
    SessionState.CLOSED,
)

TRANSITIONS: Final[dict[SessionState, dict[SessionInput, SessionState]]] = {
    SessionState.ATTACHED: {SessionInput.BROKE: SessionState.DETACHED, **_CLOSES},
    SessionState.DETACHED: {
        SessionInput.RETURNED: SessionState.ATTACHED,
        SessionInput.GRACE_OVER: SessionState.CLOSED,
        **_CLOSES,
    },
    SessionState.CLOSED: {},
}


def step(state: SessionState, happened: SessionInput) -> SessionState:
    """Return the state after `happened`. It is the same state if the table does not name the input."""
    return TRANSITIONS[state].get(happened, state)
