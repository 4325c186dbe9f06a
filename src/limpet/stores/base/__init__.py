"""The contract between the engine and a store, in four parts.

    part       module        purpose                              a store without it inherits
    ────────   ───────────   ──────────────────────────────────   ───────────────────────────
    required   required.py   sessions, exchanges, streams, asks   (every store has it)
               overview.py   the view of operators                OneProcess, for the listing
    state      state.py      ctx.state, handles                   NoState
    tasks      tasks.py      calls that become tasks              NoTasks
    replicas   replicas.py   several processes, one store         OneProcess

`Store` has all four parts, and the engine sees only `Store`. No store writes the required part by itself: the rules of
a session are in `limpet.core.rules`. A command here names the rule, and the answer for a session that is unknown or
closed; the backend applies the rule (`stores/backend.py`), or is one of drafts (`stores/shared/shelf.py`).
`docs/stores.md` shows a complete one. A feature that needs a missing part raises
`ConfigError`, which names the store and the feature. `limpet.testing` has the tests of a backend.

Rules for every call of every part:

- One call is one atomic step. Two calls never see half of each other.
- Every call that changes something may be sent twice, because a lost reply is sent again; it then counts once.
- The principal is part of every call made for a client. An unknown, a closed and another principal's session are
  answered alike: `Refusal.NO_SESSION`, or None.
- Calls made for the server name a session by its key alone. A call that must write raises `SessionGone` if the session
  is unknown or closed; a call that only ends or forgets something does nothing then.
- Deadlines belong to the store and follow its clock: they outlive the process that set them.
- A wake-up carries no data (`wakeups.py`).
- Nothing grows without bound: `Limits` are given when the store is made, and each part says which data is deleted
  first.

Keys are hashes and tokens made by the server, never a client's text. Values are bytes.
"""

from typing import Protocol

from limpet.core.records import (
    KEPT_SECONDS,
    REMEMBERED_ANSWERS,
    REMEMBERED_SECONDS,
    STANDALONE_FENCE,
    WITHDRAWN_STREAMS,
    Answered,
    Attached,
    Claim,
    Claimed,
    Closed,
    Duplicate,
    Ending,
    Found,
    Orphan,
    Probed,
    Refusal,
    SessionRecord,
    Status,
    WakeUp,
)
from limpet.core.rules.state import REMEMBERED_OPS, Cell
from limpet.core.rules.tasks import TASK_END_BYTES
from limpet.stores.base.asks import AskPart
from limpet.stores.base.exchanges import AtOnce, ExchangePart
from limpet.stores.base.one_process import OneProcess
from limpet.stores.base.overview import Listing, OverviewPart, Totals
from limpet.stores.base.replicas import (
    INBOX,
    INBOX_BYTES,
    UNREPORTED_SECONDS,
    Announced,
    Forwarded,
    LeaseHandle,
    ReplicaPart,
    is_inbox_full,
    lease_ended,
)
from limpet.stores.base.required import RequiredPart, SessionCommands
from limpet.stores.base.sessions import LINGER_SECONDS, LINGER_SHARE, SessionPart
from limpet.stores.base.state import NoState, StatePart, refuse_state
from limpet.stores.base.streams import StreamPart
from limpet.stores.base.tasks import NoTasks, OrphanTask, TaskPart, refuse_tasks
from limpet.stores.base.wakeups import OnWake, silent


class Store(RequiredPart, StatePart, TaskPart, ReplicaPart, Protocol):
    """A store as the engine sees it: all parts, written or inherited."""


__all__ = [
    "INBOX",
    "INBOX_BYTES",
    "KEPT_SECONDS",
    "LINGER_SECONDS",
    "LINGER_SHARE",
    "REMEMBERED_ANSWERS",
    "REMEMBERED_OPS",
    "REMEMBERED_SECONDS",
    "STANDALONE_FENCE",
    "TASK_END_BYTES",
    "UNREPORTED_SECONDS",
    "WITHDRAWN_STREAMS",
    "Announced",
    "Answered",
    "AskPart",
    "AtOnce",
    "Attached",
    "Cell",
    "Claim",
    "Claimed",
    "Closed",
    "Duplicate",
    "Ending",
    "ExchangePart",
    "Forwarded",
    "Found",
    "LeaseHandle",
    "Listing",
    "NoState",
    "NoTasks",
    "OnWake",
    "OneProcess",
    "Orphan",
    "OrphanTask",
    "OverviewPart",
    "Probed",
    "Refusal",
    "ReplicaPart",
    "RequiredPart",
    "SessionCommands",
    "SessionPart",
    "SessionRecord",
    "StatePart",
    "Status",
    "Store",
    "StreamPart",
    "TaskPart",
    "Totals",
    "WakeUp",
    "is_inbox_full",
    "lease_ended",
    "refuse_state",
    "refuse_tasks",
    "silent",
]
