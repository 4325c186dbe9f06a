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


class State(Enum):
    """The state of a session."""

    ATTACHED = "attached"
    DETACHED = "detached"
    CLOSED = "closed"


class Input(Enum):
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
    (Input.DELETED, Input.IDLE, Input.EXPIRED, Input.EVICTED, Input.SHUTDOWN, Input.OPERATOR), State.CLOSED
)

TRANSITIONS: Final[dict[State, dict[Input, State]]] = {
    State.ATTACHED: {Input.BROKE: State.DETACHED, **_CLOSES},
    State.DETACHED: {Input.RETURNED: State.ATTACHED, Input.GRACE_OVER: State.CLOSED, **_CLOSES},
    State.CLOSED: {},
}


def step(state: State, happened: Input) -> State:
    """Return the state after `happened`. It is the same state if the table does not name the input."""
    return TRANSITIONS[state].get(happened, state)
