"""The states of an exchange as a table. Pure: no I/O, no await, no clock.

The fate of its answer is another one (`fate.py`).

An exchange is one request of a client while it is answered. The engine reports each event as an input, and the
table returns the next state and the actions. `Exchanges.settle` and `SessionlessCalls.settle` carry out the actions
that end an exchange. START and WAIT have no action: the engine that reports START starts the handler, and the engine
that reports WAIT has queued the exchange. No other module decides the next state of an exchange.

    (session) ──▶ CLAIMED ─── START ──▶ RUNNING ◀── RETRIED ──┐
                     │ WAIT              ▲ │ │ │              │
                     ▼                   │ │ │ └── PARKED ──▶ PARKED (no session)
                  QUEUED ──── START ─────┘ │ │                │
                     │ OPENED              │ └─ BECAME_TASK ──┴──▶ TASK (no session)
                     ▼                     ▼ OPENED
                  QUEUED_OPEN ─ START ─▶ STREAMING

    RUNNING, STREAMING,                            STORED
    TASK ───────────────── RETURNED ───▶ ENDING ───────────▶ SETTLED
    QUEUED,                               ▲ │                 ▲
    QUEUED_OPEN ─ CANCELLED, LATE ────────┘ │                 │
    CLAIMED ──── REFUSE ────────────────────┼─────────────────┤
    CLAIMED, QUEUED ── WITHDRAWN ───────────┼─────────────────┤
    RUNNING, PARKED (no session) ─ ANSWERED ┼─────────────────┘
                                            │ LOST
    live states of a session ─── LOST ──▶ FENCED       AWAY: ENDING stays, and the end is stored again later

    CANCELLED and CLOSED while the handler runs lead to the second form of these states: ENDING_HELD, SETTLED_HELD,
    FENCED_HELD. The exchange has ended and its handler still runs. OVER leads from the second form to the
    first one and frees the slot. After CLOSED and ANSWERED the store needs no message: they lead to SETTLED at once.

Where an exchange begins. In a session: CLAIMED, after the store has accepted its id. Without a session: RUNNING.

When an exchange starts (law 12). `Exchanges.begin` and `Exchanges._start` are the only ways to START, and both check
first that a connection waits for the answer: that of the request, or that of a repeat which has attached. Each wait on
the way to the start ends at one of them: the claim's answer, the slot, the home, the turn. If no connection waits,
WITHDRAWN is reported. Nothing of the exchange ran, so its claim is given back, and the slot goes to the next one. A
client that has an event id of the stream can come back: in QUEUED_OPEN the input has no effect, and the exchange
starts.

Why exactly one terminal message leaves an exchange (law 3). The states from ENDING on are the ended ones. No row leads
from an ended state back to a live one, and each row from a live state to an ended one has exactly one action of `ENDS`:
the handler, a cancellation, the end of the session and the queue's deadline race for the same row, and the losers find
an ended state, where their input has no effect. `END` only asks the store: the store accepts one end for each exchange,
and only under the newest fence. If the store refuses (LOST), another replica has written the end. Then the end that was
decided here is not valid (DISOWN): a client that waits here reads the other end from the log. A client on stdio reads
no log, and no other replica can answer it: it receives the end that was decided here. A request that is refused
(REFUSE) has no terminal message in the store: its front answers it with the error "busy". One that is withdrawn has
none either, and no client that waits for one. END is repeated only from ENDING (TRY_AGAIN), with the same message under
the same tag, which a store counts once.

Why a slot is never freed twice, and never lost. START comes with the slot. An exchange that has its slot and has not
started gives it back with LEAVE_QUEUE. FREE_SLOT stands in two kinds of rows only: the handler itself reports its end
(RETURNED, ANSWERED or LOST in a live state), which leads to a state that is not held; or OVER, which leads from a held
state to the same state not held. No row leads from "not held" to "held", so each path passes one FREE_SLOT. If the
exchange ends before its handler returns (the client cancels it, or its session is closed, which the handler itself can
do), the handler is stopped and the slot is held until the handler's task is really over: a function that ignores its
cancellation, or cleans up for long, still uses its slot.

Why no message is sent after the end. `Exchange.notify` drops a message when `state >= ENDING`. A write that began
before the end finds the writer's `terminal`, or is refused by the store: a settled stream accepts no more messages
(`writer.py`). A stream opens in live states only. If a handler returns after the end (RETURNED in an ended state),
there is no action.

The meaning of a cell. A pair is the next state and the actions, in their order. For an input without effect it is the
same state and no action. `None`: this input in this state is a fault of the engine, and `step` raises. All cells are
built when the module is imported; a step reads two tuples and allocates no memory. A plain call is START, RETURNED,
STORED.
"""

from enum import Enum, IntEnum
from typing import Final


class ExchangeState(IntEnum):
    """The state of an exchange.

    `state < ENDING`: the exchange is live. `state >= ENDING_HELD`: it has ended, and its handler still runs.
    """

    CLAIMED = 0
    """Its id is claimed in the store. Its handler does not run yet."""
    QUEUED = 1
    """It waits for a slot, or for its turn."""
    QUEUED_OPEN = 2
    """As QUEUED, but its stream exists already, because its client has begun to read."""
    RUNNING = 3
    """Its handler runs; it has no stream."""
    STREAMING = 4
    """Its handler runs; its stream exists."""
    PARKED = 5
    """Without a session: its handler waits for the client's answers, and no connection is open."""
    TASK = 6
    """Without a session: its request was answered with a task's handle, and its handler still runs."""
    ENDING = 7
    """Its end is decided and not stored yet: the command is not answered, or the store is not reachable."""
    SETTLED = 8
    """Its end is stored."""
    FENCED = 9
    """Another replica has ended it. The end in the log is that replica's; this one may not write one."""
    ENDING_HELD = 10
    SETTLED_HELD = 11
    FENCED_HELD = 12


FENCED_STATES: Final = (ExchangeState.FENCED, ExchangeState.FENCED_HELD)


class ExchangeInput(IntEnum):
    """An event in the life of an exchange."""

    START = 0
    """The exchange has its slot, or its turn, and a connection waits for its answer."""
    WAIT = 1
    """All slots are in use: the exchange waits."""
    REFUSE = 2
    """The exchange can neither start nor wait here."""
    LATE = 3
    """No slot became free in time."""
    OPENED = 4
    """The store has begun its stream."""
    PARKED = 5
    """Its request was answered with a question to the client."""
    RETRIED = 6
    """The client's answers have arrived."""
    BECAME_TASK = 7
    """Its request was answered with a task's handle."""
    RETURNED = 8
    """Its handler has an outcome."""
    CANCELLED = 9
    """The client, a deadline or a stop of the server ends the exchange."""
    CLOSED = 10
    """As CANCELLED, but the store needs no message: it has ended the exchange with its session, or there is no
    session."""
    LOST = 11
    """The store reports that another replica has ended the exchange."""
    STORED = 12
    """The store has its end."""
    AWAY = 13
    """It is not known if the store has its end: the store is not reachable, or the attempt was cancelled."""
    OVER = 14
    """Its handler's task has ended after the exchange had ended."""
    ANSWERED = 15
    """Its handler has an outcome, and the store needs no message: there is no session."""
    WITHDRAWN = 16
    """It could start, and no connection waits for its answer."""


class Action(Enum):
    """An action that the engine carries out."""

    LEAVE_QUEUE = "leave queue"
    """Remove the exchange from the queue, or give its slot to the next one; and cancel its deadline."""
    REFUSE = "refuse"
    """Remove the claim, and refuse the request as busy: the front sends the error."""
    GIVE_BACK = "give back"
    """Give the claim back, and write it to the log: no client waits for an answer."""
    END = "end"
    """Store the outcome as its terminal message, and free its id."""
    END_BUSY = "end busy"
    """As END, with the error "busy" as the outcome."""
    SHOW_END = "show end"
    """Give the terminal message to a connection that waits for it; the store needs no message."""
    DISOWN = "disown"
    """Another replica has stored an end, so do not store the end decided here. A connection that waits reads the
    log."""
    TRY_AGAIN = "try again"
    """Store the same end again a little later."""
    STOP = "stop"
    """Cancel the handler, and report OVER when its task has ended. The handler keeps its slot until then."""
    FREE_SLOT = "free slot"
    """Give the slot to the next exchange."""


ENDS: Final = frozenset(
    {Action.REFUSE, Action.GIVE_BACK, Action.END, Action.END_BUSY, Action.SHOW_END, Action.DISOWN}
)
"""Actions that choose the answer for the client: one of the terminal messages, a refusal (REFUSE), or none (GIVE_BACK).

A row from a live state to an ended one has one of them.
"""

Actions = tuple[Action, ...]
Cell = tuple[ExchangeState, Actions] | None
Row = tuple[Cell, ...]
_Written = dict[ExchangeInput, tuple[ExchangeState, Actions] | None]

_OWN_END: Final = (Action.FREE_SLOT, Action.END)
_STOPPED: Final = (Action.STOP, Action.END)
_CLOSED: Final = (Action.STOP, Action.SHOW_END)
_UNSTORED_END: Final = (Action.FREE_SLOT, Action.SHOW_END)
_UNSTARTED: Final = (Action.LEAVE_QUEUE, Action.END)
_SAME: Final = None
"""The input has no effect. An input that a row does not name is a fault of the engine."""

_QUEUED: Final[_Written] = {
    ExchangeInput.CANCELLED: (ExchangeState.ENDING, _UNSTARTED),
    ExchangeInput.CLOSED: (ExchangeState.SETTLED, (Action.LEAVE_QUEUE, Action.SHOW_END)),
    ExchangeInput.LOST: (ExchangeState.FENCED, (Action.LEAVE_QUEUE, Action.DISOWN)),
    ExchangeInput.LATE: (ExchangeState.ENDING, (Action.LEAVE_QUEUE, Action.END_BUSY)),
}
_AT_WORK: Final[_Written] = {
    ExchangeInput.RETURNED: (ExchangeState.ENDING, _OWN_END),
    ExchangeInput.CANCELLED: (ExchangeState.ENDING_HELD, _STOPPED),
    ExchangeInput.CLOSED: (ExchangeState.SETTLED_HELD, _CLOSED),
    ExchangeInput.LOST: (ExchangeState.FENCED, (Action.FREE_SLOT, Action.DISOWN)),
    ExchangeInput.LATE: _SAME,
}
_UNSTORED: Final[_Written] = {
    ExchangeInput.ANSWERED: (ExchangeState.SETTLED, _UNSTORED_END),
    ExchangeInput.CLOSED: (ExchangeState.SETTLED_HELD, _CLOSED),
    ExchangeInput.BECAME_TASK: (ExchangeState.TASK, ()),
}
_ENDED: Final[_Written] = dict.fromkeys(
    (
        ExchangeInput.LATE,
        ExchangeInput.OPENED,
        ExchangeInput.RETRIED,
        ExchangeInput.BECAME_TASK,
        ExchangeInput.RETURNED,
        ExchangeInput.ANSWERED,
        ExchangeInput.CANCELLED,
        ExchangeInput.CLOSED,
        ExchangeInput.LOST,
        ExchangeInput.WITHDRAWN,
    ),
    _SAME,
)

_LIVE_ROWS: Final[dict[ExchangeState, _Written]] = {
    ExchangeState.CLAIMED: {
        ExchangeInput.START: (ExchangeState.RUNNING, ()),
        ExchangeInput.WAIT: (ExchangeState.QUEUED, ()),
        ExchangeInput.REFUSE: (ExchangeState.SETTLED, (Action.REFUSE,)),
        ExchangeInput.WITHDRAWN: (ExchangeState.SETTLED, (Action.GIVE_BACK,)),
    },
    ExchangeState.QUEUED: {
        **_QUEUED,
        ExchangeInput.START: (ExchangeState.RUNNING, ()),
        ExchangeInput.WITHDRAWN: (ExchangeState.SETTLED, (Action.LEAVE_QUEUE, Action.GIVE_BACK)),
        ExchangeInput.OPENED: (ExchangeState.QUEUED_OPEN, ()),
    },
    ExchangeState.QUEUED_OPEN: {
        **_QUEUED,
        ExchangeInput.START: (ExchangeState.STREAMING, ()),
        ExchangeInput.WITHDRAWN: _SAME,
        ExchangeInput.OPENED: _SAME,
    },
    ExchangeState.RUNNING: {
        **_AT_WORK,
        **_UNSTORED,
        ExchangeInput.OPENED: (ExchangeState.STREAMING, ()),
        ExchangeInput.PARKED: (ExchangeState.PARKED, ()),
        ExchangeInput.RETRIED: _SAME,
    },
    ExchangeState.STREAMING: {**_AT_WORK, ExchangeInput.OPENED: _SAME},
    ExchangeState.PARKED: {**_UNSTORED, ExchangeInput.RETRIED: (ExchangeState.RUNNING, ())},
    ExchangeState.TASK: {
        ExchangeInput.RETURNED: (ExchangeState.ENDING, _OWN_END),
        ExchangeInput.CANCELLED: (ExchangeState.ENDING_HELD, _STOPPED),
        ExchangeInput.RETRIED: _SAME,
        ExchangeInput.BECAME_TASK: _SAME,
    },
}
_ENDED_ROWS: Final[dict[ExchangeState, _Written]] = {
    ExchangeState.ENDING: {
        **_ENDED,
        ExchangeInput.STORED: (ExchangeState.SETTLED, ()),
        ExchangeInput.LOST: (ExchangeState.FENCED, (Action.DISOWN,)),
        ExchangeInput.AWAY: (ExchangeState.ENDING, (Action.TRY_AGAIN,)),
    },
    ExchangeState.SETTLED: _ENDED,
    ExchangeState.FENCED: _ENDED,
}
_HELD: Final = ExchangeState.ENDING_HELD - ExchangeState.ENDING
"""The difference between the numbers of an ended state and of its second form."""


def _held(row: _Written) -> _Written:
    return {happened: cell and (ExchangeState(cell[0] + _HELD), cell[1]) for happened, cell in row.items()}


def _row(state: ExchangeState, written: _Written) -> Row:
    return tuple(
        written[happened] or (state, ()) if happened in written else None for happened in ExchangeInput
    )


def _built() -> tuple[Row, ...]:
    rows = {**_LIVE_ROWS, **_ENDED_ROWS}
    for state, row in _ENDED_ROWS.items():
        rows[ExchangeState(state + _HELD)] = {**_held(row), ExchangeInput.OVER: (state, (Action.FREE_SLOT,))}
    return tuple(_row(state, rows[state]) for state in ExchangeState)


TABLE: Final = _built()
"""By state, then by input."""


class Impossible(AssertionError):
    """The engine reported an input that this state does not allow: a fault of the engine."""


def step(state: ExchangeState, happened: ExchangeInput) -> tuple[ExchangeState, Actions]:
    """Return the state after `happened`, and the actions.

    Raises:
        Impossible: the state does not allow this input.
    """
    cell = TABLE[state][happened]
    if cell is None:
        raise Impossible(f"{happened.name} in {state.name}")
    return cell
