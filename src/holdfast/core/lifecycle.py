"""A session's life as a table.

            OPEN                  BROKE (no reader left)          GRACE_OVER (nothing in flight)
  (none) ──────────▶ ATTACHED ─────────────────────────▶ DETACHED ──────────▶ CLOSED
                        ▲                                    │                   ▲
                        └───────────── RETURNED ─────────────┘                   │
                        └───── DELETED · IDLE · EXPIRED · EVICTED · SHUTDOWN ────┘

Everything that moves a session is in this file; an input the table does not name changes
nothing. CLOSED has no way out: one closing transition, whoever comes first.
"""

from enum import Enum
from typing import Final


class State(Enum):
    """Where a session is."""

    ATTACHED = "attached"
    DETACHED = "detached"
    CLOSED = "closed"


class Input(Enum):
    """What happened to it. The closing ones are also the reason listeners are given."""

    BROKE = "broke"
    RETURNED = "returned"
    GRACE_OVER = "grace over"
    DELETED = "deleted"
    IDLE = "idle"
    EXPIRED = "expired"
    EVICTED = "evicted"
    SHUTDOWN = "shutdown"


_CLOSES: Final = dict.fromkeys(
    (Input.DELETED, Input.IDLE, Input.EXPIRED, Input.EVICTED, Input.SHUTDOWN), State.CLOSED
)

TRANSITIONS: Final[dict[State, dict[Input, State]]] = {
    State.ATTACHED: {Input.BROKE: State.DETACHED, **_CLOSES},
    State.DETACHED: {Input.RETURNED: State.ATTACHED, Input.GRACE_OVER: State.CLOSED, **_CLOSES},
    State.CLOSED: {},
}


def step(state: State, happened: Input) -> State:
    """Return the state after `happened`; the same one where the table has no such move."""
    return TRANSITIONS[state].get(happened, state)
