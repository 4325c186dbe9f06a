"""The values of the contract between the engine and its store: sessions, claims, readers, asks, and how they end.

The rules of a session (`core/rules`) use them, so they are here and not beside the contract (`limpet.stores.base`),
which names them too.
"""

from enum import Enum
from typing import Any, Final

from msgspec import Struct

from limpet.core.lifecycle import SessionInput, SessionState
from limpet.core.stream import Position
from limpet.wire.jsonrpc import RequestId, encode

STANDALONE_FENCE: Final = -1
"""The fence of the standalone stream: every replica may write it, and no exchange has this fence."""
REMEMBERED_ANSWERS: Final = 256
"""Answers that a stream keeps until their asks are withdrawn, and digests of forgotten answers that a session keeps."""
KEPT_SECONDS: Final = 300.0
"""How long an answer that its client has not taken is kept for a repeat of the request, at least; and as long as the
session's grace."""
USED_IDS: Final = 4_096
"""Ids that a session has in use: of calls in flight, of kept answers, and of the ends of answers that had to be
dropped."""
REMEMBERED_SECONDS: Final = 300.0
"""How long the digest of an answer is kept after its ask was forgotten."""
WITHDRAWN_STREAMS: Final = 64
"""How many given back streams a session remembers; the oldest is forgotten first."""


class WakeUp(Enum):
    """The kinds of wake-ups. Session and name are the arguments of `OnWake`."""

    STREAM = "stream"
    """The stream `name` has a new event. Sent where the stream is read."""
    ANSWER = "answer"
    """The ask `name` has its answer, or was forgotten. Sent where the ask waits."""
    CANCEL = "cancel"
    """The client cancelled the exchange `name`. Sent where the exchange runs."""
    CLOSED = "closed"
    """The session is closed; the name is empty. Sent to every process that has something of it."""
    TASK = "task"
    """A task has changed: its key stands in the place of the session, the name is empty. Sent to all processes."""
    TURN = "turn"
    """The call `name` may start, where calls run in order. Sent where the call waits."""
    TAKEN = "taken"
    """Another replica has the reader of the stream `name` now. Sent where the former reader is."""
    PROBE = "probe"
    """Another replica asks whether the reader of the stream `name` is alive: call `vouch`. Sent where the reader is."""
    HELD = "held"
    """The store says that the reader of the stream `name` is here. Stores that can lose writes send it from time to
    time, because the end of the reader may be lost."""
    FORWARD = "forward"
    """The inbox may hold a forwarded request; session and name are empty."""
    NEWS = "news"
    """There may be a new announcement; session and name are empty."""


class Refusal(Enum):
    """The reason why a call changed nothing."""

    NO_SESSION = "no session"
    """The session is unknown, closed or another principal's. The three cannot be distinguished."""
    BUSY = "busy"
    """`claim`: the session has its limit of calls. `attach` with `since`: another reader has the place."""
    FULL = "full"
    """`open`, `open_task`: the store or the principal has its limit."""
    UNRESUMABLE = "unresumable"
    """`attach`: the session has no such stream or position, or has forgotten it."""
    UNBEGUN = "unbegun"
    """`attach`: the exchange is in flight, and its stream does not exist yet."""
    WITHDRAWN = "withdrawn"
    """`claim`, `attach`: the claim of the exchange was given back, and nothing of it has run or will run."""


class SessionRecord(Struct, kw_only=True):
    """The data of a session. Every field can be written as JSON."""

    key: str
    """Hash of the session id. The id itself is never stored."""
    principal: str
    version: str
    standalone: str
    """The name of the standalone stream, which carries messages that belong to no request."""
    client: dict[str, Any]
    capabilities: dict[str, Any]
    grace: float
    idle: float
    lifetime: float
    level: str = ""
    """The log level that the client asked for; empty if it asked for none."""
    initialized: bool = False
    isolate: bool = False
    """A request whose id is in flight runs beside the first one instead of being refused."""
    home: str = ""
    """The replica whose back keeps something for the session (a child process, a session of another server); empty if
    any replica can answer its requests. `take_home` changes it."""
    meta: dict[str, Any] = {}
    """`_meta` of the client's `initialize`, if the back passes it on."""
    opened: float = 0.0
    """When it was opened, in seconds since 1970; 0 if an older release has opened it, which did not write this."""


class Found(Struct, frozen=True):
    """A session whose client has just sent a sign of life."""

    record: SessionRecord
    returned: bool
    """The session was detached, and this call attached it again."""


class Closed(Struct, frozen=True):
    """The one closing of a session."""

    record: SessionRecord
    reason: SessionInput
    event: str = ""
    """Names this closing to listeners, which may be called for it more than once. Only shared stores need it."""


class Ending(Struct, frozen=True):
    """The terminal message for every exchange that a closing finds in flight: its bytes before and after the id."""

    before: bytes
    after: bytes
    tag: int
    """The tag of the terminal message in each stream."""

    def message(self, request_id: RequestId) -> bytes:
        """Return the terminal message of the exchange with this id."""
        return self.before + encode(request_id) + self.after


class Status(Struct, frozen=True):
    """An open session, as it is now."""

    record: SessionRecord
    state: SessionState
    closes_in: float | None
    """Seconds until it closes if nothing happens before; None: an exchange in flight keeps it open."""
    readers: int
    running: int
    """Exchanges in flight."""
    log_bytes: int
    """Of its streams."""
    kept_bytes: int
    """Of its state and its subscriptions (`limpet.core.rules.state`)."""
    quiet: float
    """Seconds since the last sign of its client, or the last end of a call."""


class Claim(Struct, frozen=True):
    """A request that is about to be answered."""

    id: RequestId
    """`1` and `"1"` are two ids."""
    stream: str
    """The key of the exchange and the name of its stream, made by the server."""
    digest: bytes
    """Of the bytes of the request: it distinguishes a repeated POST from a reused id."""
    control: bool = False
    """Control traffic does not count against the limit of calls, and has no turn."""


class Claimed(Struct, frozen=True):
    """The exchange is registered, and may start once."""

    record: SessionRecord
    fence: int
    returned: bool
    """The session was detached, and this claim attached it again."""


class Duplicate(Struct, frozen=True):
    """The id is in use by another exchange."""

    stream: str
    """The other exchange."""
    same: bool
    """The bytes are equal: this may be a repeat of a POST whose connection was cut."""
    finished: bool
    """The other exchange has ended and its answer is kept. Then `same` is True."""
    has_reader: bool


class Attached(Struct, frozen=True):
    """The caller is the stream's reader."""

    record: SessionRecord
    generation: int
    """Larger than that of every earlier reader of this stream."""
    cursor: Position
    """Where the reader begins."""
    returned: bool
    """The session was detached, and this call attached it again."""
    finished: bool
    """The stream is complete and its last event is at `cursor`: a read returns no event, now or later."""


class Probed(Struct, frozen=True):
    """The known state of an exchange and of its reader."""

    running: bool
    kept: bool
    """It has ended, and its answer is kept for a repeat."""
    reader: str
    """The replica that has the stream's reader; empty if the stream has no reader."""
    word: int
    """Changes with every `vouch`; odd if the last `vouch` said that the reader is alive."""
    withdrawn: bool = False
    """It was given back. If it does not run, nothing of it ran. If it runs, its connection is gone, and no reader
    has followed."""
    generation: int = 0
    """Of the stream's last reader; 0 until one has attached."""


class Orphan(Struct, frozen=True):
    """An exchange in flight whose owner was declared dead."""

    session: str
    stream: str
    id: RequestId
    owner: str
    """The dead incarnation."""


class Answered(Enum):
    """The result of a client's answer."""

    FIRST = "first"
    """It is the answer."""
    AGAIN = "again"
    """It is equal to the answer: the client sent it again."""
    CONFLICT = "conflict"
    """It differs from the answer, and is dropped."""
    UNKNOWN = "unknown"
    """There is no such ask, or no longer."""
