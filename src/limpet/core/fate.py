"""The fate of an answer as a table: whether a connection waits for it, and whether its client has got it.

Pure: no I/O, no await, no clock.

A client that has not got its answer sends its request again, and must get the answer of the one execution. A client
that has it may use the id for another request, and must get another answer. So for every answer it is decided once
whether the client has it. The code that serves connections reports each event as an input (`SessionWriter.report`), and
the table returns the next state and the actions (`Readers.follow_up` carries out those of the store). No other module
decides whether an answer is kept.

    before the end of the exchange                         after it

    WAITING ── ATTACHED, REPEATED ──▶ ATTACHED             DUE ─── WROTE ──▶ WRITTEN ─── TAKEN ──▶ TAKEN
       │ │                             ▲  │ │              ▲ │               │     │
       │ └─ RELEASED ─▶ RELEASING ─────┘  │ │              │ │  REPEATED     │     │
       │                    │             │ │              │ ├───────────────┘     │
       │                    │  SUPERSEDED │ │   REPEATED   │ │                     │ LEFT, FAILED,
       │ LEFT, FAILED       │             │ │  ┌───────────┘ │ LEFT, FAILED,       │ SUPERSEDED
       ▼                    ▼             ▼ ▼  │             ▼ SUPERSEDED          │
      GONE ◀── LEFT, FAILED ────── SUPERSEDED  └─────────── KEPT ◀─────────────────┘
       └─ REPEATED ─▶ ATTACHED

    ENDED leads from the left side to the right one: from GONE and SUPERSEDED, where no connection of this process
    waits, to KEPT, and from the others to DUE.

When an answer is taken. Over HTTP no message of the client says that it has received an answer, so this is the rule,
and the same one for every form of a response: a JSON body, the last event of a stream, a batch, the answer to a repeat.

    way out                  the answer is taken when
    ──────────────────────   ───────────────────────────────────────────────────────────────────────────────────────────
    our HTTP server          no more than 64 KiB of it are in our buffer, the connection has not failed, and its client
                             has not closed its side. A shorter answer is taken when it is written: its call reports
                             nothing. With TLS the buffer counts nothing, so the bytes count that the client's system
                             has acknowledged
    an ASGI host             it has taken an empty part after the answer, and has reported no disconnect
    stdio                    it was written to the pipe (`ConnectionWriter`, without a table: nothing can be repeated)
    a home of the session    the replica that has the client's connection says so, by the rows above

An HTTP response is one answer: the answers of a batch are taken together, because the client repeats all of its
requests.

Where an answer is kept. The end of an exchange that has a stream is stored with its message, and the store keeps it:
its id stays in use for an equal request. Three things end that: a reader that leaves at the end of the stream (TAKEN),
a request with the same id and another body, and the time for which an answer is kept. So an answer in a stream is kept
also if this process is killed before its client has taken it. A plain answer is in memory only and its end frees the
id: KEEP writes it to the store if it was not taken. After the end of an exchange its other readers, here or at another
replica, report to the store alone: `attach` is REPEATED, `detach` is TAKEN at the end of the stream and LEFT before it.

Why no answer is lost. Each path out of DUE and WRITTEN leads to TAKEN or to KEPT, and each report that ends a
connection is a path out of them. An exchange that ends while no connection waits is KEPT at once.

Why no answer is given to another request. TAKEN is final, and releases the id.

Why a late report does no harm (law 13). A report names its reader, and the writer drops that of a reader which has a
successor. A report that is repeated finds a state in which it has no effect.
"""

from enum import Enum, IntEnum
from typing import Final


class Fate(IntEnum):
    """The state of an answer. `fate >= DUE`: its exchange has ended."""

    WAITING = 0
    """The POST waits for the answer, and reads no stream yet."""
    RELEASING = 1
    """As WAITING. The handler has closed the stream: the connection ends when it has a position."""
    ATTACHED = 2
    """A connection of this process reads the stream."""
    SUPERSEDED = 3
    """A reader at another replica has replaced it, and its connection has not ended yet."""
    GONE = 4
    """No connection of this process waits for the answer."""
    DUE = 5
    """A connection waits for the answer, and it is not written."""
    WRITTEN = 6
    """It was given to a connection, whose client has not taken it yet."""
    TAKEN = 7
    """The client has it."""
    KEPT = 8
    """The client may not have it: it is kept in the store for a resume or a repeat."""


class FateInput(IntEnum):
    """An event of a connection that waits for the answer, or of the exchange."""

    ATTACHED = 0
    """The POST begins to read the stream."""
    REPEATED = 1
    """A resume or a repeat of the request reads the stream from now on, in this process."""
    SUPERSEDED = 2
    """The same, at another replica."""
    RELEASED = 3
    """The handler closes the stream."""
    ENDED = 4
    """The exchange has ended: there is an answer."""
    WROTE = 5
    """The answer is given to the connection."""
    TAKEN = 6
    """The connection has taken it, by the rule above."""
    FAILED = 7
    """A write to the connection has failed."""
    LEFT = 8
    """The connection has ended, or was given up, for any other reason."""


class FateAction(Enum):
    """An action of the writer, or a command to the store."""

    LOOK = "look"
    """Wake the tasks that wait for the reader, so that they check its state again."""
    LET_GO = "let go"
    """End the connection on purpose: its client reconnects for the rest."""
    LEAVE = "leave"
    """Give back the place of the POST in the store. A reader gives back its own when it is detached."""
    KEEP = "keep"
    """Keep an answer that is in memory only. One that is in a stream is kept already."""
    RELEASE = "release"
    """Free the id of an answer that another replica has stored. A reader at the end of its stream does it when it is
    detached."""


FateActions = tuple[FateAction, ...]
_LOOK: Final = (FateAction.LOOK,)
_LEAVES: Final = (Fate.GONE, (FateAction.LOOK, FateAction.LEAVE))
_UNTAKEN: Final = (Fate.KEPT, (FateAction.LOOK, FateAction.KEEP, FateAction.LEAVE))
ROWS: Final[dict[tuple[Fate, FateInput], tuple[Fate, FateActions]]] = {
    (Fate.WAITING, FateInput.ATTACHED): (Fate.ATTACHED, _LOOK),
    (Fate.WAITING, FateInput.REPEATED): (Fate.ATTACHED, _LOOK),
    (Fate.WAITING, FateInput.RELEASED): (Fate.RELEASING, ()),
    (Fate.WAITING, FateInput.FAILED): _LEAVES,
    (Fate.WAITING, FateInput.LEFT): _LEAVES,
    (Fate.WAITING, FateInput.ENDED): (Fate.DUE, ()),
    (Fate.RELEASING, FateInput.ATTACHED): (Fate.ATTACHED, (FateAction.LOOK, FateAction.LET_GO)),
    (Fate.RELEASING, FateInput.REPEATED): (Fate.ATTACHED, (FateAction.LOOK, FateAction.LET_GO)),
    (Fate.RELEASING, FateInput.FAILED): _LEAVES,
    (Fate.RELEASING, FateInput.LEFT): _LEAVES,
    (Fate.RELEASING, FateInput.ENDED): (Fate.DUE, ()),
    (Fate.ATTACHED, FateInput.ATTACHED): (Fate.ATTACHED, _LOOK),
    (Fate.ATTACHED, FateInput.REPEATED): (Fate.ATTACHED, _LOOK),
    (Fate.ATTACHED, FateInput.SUPERSEDED): (Fate.SUPERSEDED, _LOOK),
    (Fate.ATTACHED, FateInput.RELEASED): (Fate.ATTACHED, (FateAction.LET_GO,)),
    (Fate.ATTACHED, FateInput.FAILED): (Fate.GONE, _LOOK),
    (Fate.ATTACHED, FateInput.LEFT): (Fate.GONE, _LOOK),
    (Fate.ATTACHED, FateInput.ENDED): (Fate.DUE, ()),
    (Fate.SUPERSEDED, FateInput.ATTACHED): (Fate.ATTACHED, _LOOK),
    (Fate.SUPERSEDED, FateInput.REPEATED): (Fate.ATTACHED, _LOOK),
    (Fate.SUPERSEDED, FateInput.FAILED): (Fate.GONE, _LOOK),
    (Fate.SUPERSEDED, FateInput.LEFT): (Fate.GONE, _LOOK),
    (Fate.SUPERSEDED, FateInput.ENDED): (Fate.KEPT, ()),
    (Fate.GONE, FateInput.ATTACHED): (Fate.ATTACHED, _LOOK),
    (Fate.GONE, FateInput.REPEATED): (Fate.ATTACHED, _LOOK),
    (Fate.GONE, FateInput.ENDED): (Fate.KEPT, ()),
    (Fate.DUE, FateInput.ATTACHED): (Fate.DUE, _LOOK),
    (Fate.DUE, FateInput.REPEATED): (Fate.DUE, _LOOK),
    (Fate.DUE, FateInput.SUPERSEDED): (Fate.KEPT, _LOOK),
    (Fate.DUE, FateInput.WROTE): (Fate.WRITTEN, ()),
    (Fate.DUE, FateInput.FAILED): _UNTAKEN,
    (Fate.DUE, FateInput.LEFT): _UNTAKEN,
    (Fate.WRITTEN, FateInput.REPEATED): (Fate.DUE, _LOOK),
    (Fate.WRITTEN, FateInput.SUPERSEDED): (Fate.KEPT, _LOOK),
    (Fate.WRITTEN, FateInput.TAKEN): (Fate.TAKEN, (FateAction.LOOK, FateAction.RELEASE)),
    (Fate.WRITTEN, FateInput.FAILED): _UNTAKEN,
    (Fate.WRITTEN, FateInput.LEFT): _UNTAKEN,
    (Fate.KEPT, FateInput.REPEATED): (Fate.DUE, _LOOK),
}
"""The inputs that change something. Every other input has no effect in that state."""
TABLE: Final = tuple(tuple(ROWS.get((fate, happened), (fate, ())) for happened in FateInput) for fate in Fate)
"""By state, then by input."""


def step(fate: Fate, happened: FateInput) -> tuple[Fate, FateActions]:
    """Return the state after `happened`, and the actions."""
    return TABLE[fate][happened]
