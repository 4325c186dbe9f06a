"""Every setting with its default and the reason for it. Frozen, passed in, never read from the environment."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final, Literal, TypedDict, get_args

from msgspec import Struct

from holdfast.errors import ConfigError

KIB = 1024
MIB = 1024 * KIB

_MAY_BE_ZERO: Final = frozenset(
    {
        "subscriptions", "queued", "queue_seconds", "asks_queued", "store_seconds", "handles", "handles_per_principal",
        "principal_states", "principal_state_bytes",
        "listeners", "listeners_per_principal", "parked", "parked_per_principal", "tasks", "tasks_per_principal",
        "state_bytes", "idle_readers",
        "grace", "stream_after", "retry", "quiet", "drain_notice", "drain",
    }
)  # fmt: skip
"""Where none at all, or at once, can be meant. Anywhere else 0 would mean that nothing ever works."""
_REASONS: Final = dict.fromkeys(
    ("idle", "lifetime"), "; else sessions that nobody deletes stay until no more fit"
)


def _check_numbers(settings: Struct) -> None:
    """Refuse what cannot be meant: negative, zero where that is never, endless, no number at all."""
    for name, kind in type(settings).__annotations__.items():
        value = getattr(settings, name)
        zero = name in _MAY_BE_ZERO
        if kind is int:
            fits = type(value) is int and value >= (not zero)
            right = f"a whole number of {0 if zero else 1} or more"
        elif kind == tuple[float, float]:
            fits = isinstance(value, tuple) and len(value) == 2 and _is_range(*value, zero=zero)  # noqa: PLR2004
            right = f"two numbers of seconds, {'0 or more' if zero else 'above 0'}, the smaller one first"
        else:
            fits = _is_seconds(value, zero=zero) or (value is None and kind == float | None)
            right = f"a number of seconds {'of 0 or more' if zero else 'above 0'}"
        if not fits:
            raise ConfigError(f"{name}={value!r}: give {right}{_REASONS.get(name, '')}")


def _is_seconds(value: object, *, zero: bool) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 < value < inf or (zero and value == 0)


def _is_range(low: object, high: object, *, zero: bool) -> bool:
    if not (isinstance(low, int | float) and isinstance(high, int | float)):
        return False
    return _is_seconds(low, zero=zero) and _is_seconds(high, zero=zero) and low <= high


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds. Each has an answer when it is reached: wait, a clear refusal, or a gap that is said."""

    body: int = 4 * MIB
    """Bytes of one incoming message; beyond: 413."""
    depth: int = 64
    """Nesting of one incoming message; beyond: 400."""
    values: int = 100_000
    """Values (numbers, texts, objects, …) in one incoming message; beyond: 400. Decoding so many takes the loop some
    tens of milliseconds, in which all other clients wait; 4 MiB of small ones would take a second."""
    client_bytes: int = 16 * KIB
    """What a client says of itself (clientInfo and capabilities, as JSON); beyond: −32602. A session keeps it as long
    as it lives, and real clients send less than 1 KiB."""
    headers: int = 16 * KIB
    """Bytes of a request's head under `holdfast serve`; beyond: 431."""
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    """How long a head and a body may take under `holdfast serve`; beyond: 408 and the connection closes."""

    verifier_seconds: float = 10.0
    """How long a verifier may take to check a token; beyond: 503. Longer than any identity provider should, and
    shorter than clients wait."""

    sessions: int = 100_000
    """Sessions in the store; beyond: 503 with Retry-After."""
    sessions_per_principal: int = 1_000
    """Beyond it an authenticated principal's longest idle session is evicted (some clients open one per call)."""
    subscriptions: int = 1_000
    """Resource subscriptions of a session, or of one listener (2026-07-28)."""
    subscription_bytes: int = 256 * KIB
    """Their URIs together. A URI may be as long as a message: the number alone bounds nothing."""

    running: int = 256
    """Calls of one session that run at once; the next ones queue."""
    queued: int = 1_024
    """Calls of one session that wait for a slot; beyond: 429, −31001."""
    queue_seconds: float = 30.0
    """How long a call may wait for a slot before it is refused as busy."""

    work_bytes: int = 256 * MIB
    principal_work_bytes: int = 128 * MIB
    session_work_bytes: int = 64 * MIB
    """Memory of messages of 16 KiB or more whose calls run or wait, in this process: of all, of a principal (anonymous
    clients count by address) and of a session; beyond: 429, −31001. About what they occupy once decoded: 4 MiB of text
    are 4 MiB, of small values 14. A session may so run at least four of the largest messages at once, and no client
    can take more than half of a process that has 512 MiB."""

    asks: int = 256
    """Requests to the client outstanding per session; the next ones wait."""
    asks_queued: int = 256
    """Asks that wait for one of those places; beyond: BackPressureError."""
    ask_seconds: float = 600.0
    """How long an ask waits for its answer. Ten minutes: a person may have to read and type."""

    store_seconds: float = 30.0
    """How long what a handler sends waits for a store that is away; beyond: StoreUnavailable, raised in the handler.
    Longer than a failover takes, shorter than a client waits."""

    sessionless_calls: int = 10_000
    """Calls of clients without a session (2026-07-28) that run at once; beyond: 429, −31001."""
    handles: int = 10_000
    handles_per_principal: int = 1_000
    """Handles for state (`ctx.new_handle`), in all and per authenticated principal; beyond: StateError."""
    principal_states: int = 100_000
    """Principals whose own state is kept (`Settings.state`); beyond: StateError. As many as there may be sessions."""
    listeners: int = 10_000
    listeners_per_principal: int = 1_000
    """Open `subscriptions/listen` streams, in all and per authenticated principal; beyond: 429, −31001."""
    listener_bytes: int = 64 * MIB
    principal_listener_bytes: int = 16 * MIB
    """What listeners subscribe to, in all and per authenticated principal: the names, and 256 bytes for the
    entries of each; beyond: 429, −31001."""
    listener_changes: int = 1_024
    """Different changes that may wait for a listener that reads slowly; beyond: its stream is dropped. Above
    `subscriptions`, no burst of changes is too much for it."""
    parked: int = 10_000
    parked_per_principal: int = 1_000
    """Calls that have asked and not ended, in all and per authenticated principal; beyond: busy. Anonymous clients share
    what there is in all."""

    finished_bytes: int = 64 * MIB
    principal_finished_bytes: int = 16 * MIB
    """What calls that had asked and have ended answered in all their rounds, kept for a repeat of a retry whose response
    was lost, in all and per authenticated principal; beyond: the oldest are dropped, and a repeat gets −31003."""

    parked_bytes: int = 64 * MIB
    principal_parked_bytes: int = 32 * MIB
    """What such calls have asked for, the answers they were given so far, and arguments that are not part of
    `work_bytes`, in all and per authenticated principal; beyond: busy. Half for one principal: another one can always
    ask."""

    tasks: int = 10_000
    tasks_per_principal: int = 1_000
    """Tasks kept, running and ended, in all and per principal (anonymous clients count as one); beyond: busy."""
    task_bytes: int = 4 * MIB
    tasks_bytes: int = 128 * MIB
    principal_tasks_bytes: int = 32 * MIB
    """What is kept of one task, of all, and of those of one principal (anonymous clients count as one), results
    included; beyond: busy, and a result that finds no room fails its task. A quarter for one principal: it cannot
    take the room of the others."""

    stream_events: int = 1_000
    stream_bytes: int = MIB
    session_bytes: int = 8 * MIB
    store_bytes: int = 256 * MIB
    """What stays replayable. Beyond it the oldest events go, and a resume says GAP; a terminal message goes last."""
    finished_streams: int = 1_024
    """Finished streams of a session kept for clients that come back for them. As many as may run and queue at
    once, about: what was written is not yet received, and hundreds of calls may end in the same second."""
    rerun_bytes: int = MIB
    """Requests of a session that are kept while they run, so that another replica may run them again
    (`Settings.reruns`); beyond: the next ones are not, and end with −31002 if their replica dies."""
    state_bytes: int = 256 * KIB
    """User state of one session or handle; beyond: StateError."""
    principal_state_bytes: int = 256 * KIB
    """A principal's own state; beyond: StateError."""
    principal_kept_bytes: int = 64 * MIB
    """What the sessions and handles of one principal keep in the store beside streams and tasks (anonymous clients count
    as one): state, subscriptions and the requests of `rerun_bytes`, and 256 bytes for each field and subscription;
    beyond: StateError, −32602, and a request is not kept. Without it the limits above would multiply by the number of
    sessions: one principal could make a store keep 1.5 GiB."""
    idle_readers: int = 4
    """Superseded GET readers left open and idle per session. Closing them makes clients flap."""
    threads: int = 64
    """Plain functions that run at once in a process of ours (`holdfast serve`, `server.run`); the next ones wait."""
    page_size: int = 100
    """Items on a page of a list."""

    def __post_init__(self) -> None:
        _check_numbers(self)


class Times(Struct, frozen=True, kw_only=True):
    """Clocks of sessions and streams, in seconds."""

    idle: float = 1_800.0
    """A session without work or reader closes after this; half an hour, as the official SDKs."""
    grace: float | None = None
    """A detached session lives this long; None: as long as `idle` (a laptop may sleep); 0: removed at once."""
    lifetime: float = 86_400.0
    """A session closes at this age as soon as nothing is in flight."""
    stream_after: float = 0.25
    """An answer that takes longer than this becomes a stream, so that it is resumable."""
    keep_alive: float = 15.0
    """A comment on a silent stream, well below the 60 s at which balancers cut."""
    write_stall: float = 30.0
    """A reader that takes no byte for this long is detached."""
    stream_age: tuple[float, float] = (300.0, 600.0)
    """A stream's connection ends between these ages, where the revision allows it, and the client resumes."""
    retry: tuple[float, float] = (0.5, 3.0)
    """The reconnection delay we ask clients for, jittered so that they do not come back together."""
    quiet: float = 0.01
    """Asks of a call without a session that are made within this of each other go out in one round."""
    parked: float = 600.0
    """How long such a call waits for its retry, and its outcome for a repeat of it."""
    key_rotation: float = 86_400.0
    """How long one key seals the state that clients carry for such calls, before the next one does; never shorter than
    `parked`. A key opens for one period more, and is forgotten after four."""
    continue_after: float | None = None
    """Answer such a call that still runs after this with its state alone; the client comes back for the rest.
    For balancers that cut every response: set it well below their limit."""
    handle: float = 86_400.0
    """How long state is kept under a handle that nobody uses."""
    principal_state: float = 2_592_000.0
    """How long a principal's own state is kept that no call uses. Thirty days: people come back after a holiday."""
    task: float = 3_600.0
    """How long a task is kept after it last changed: the time a client has to come for the result."""
    task_poll: float = 1.0
    """How often clients are asked to look after a task."""
    lease: float = 10.0
    """A replica that has not renewed its lease for this long is declared dead by one that has, and its calls end.
    For this long after an outage of the store no replica is declared dead: every living one renews first."""
    lease_renewal: float = 3.0
    """How often the lease is renewed: at least three times in a lease, so that one lost renewal is no death."""
    loop_patience: float = 30.0
    """A loop that a handler has blocked for longer than this no longer counts as alive."""
    sweep: float = 1.0
    """How often due sessions are looked for."""
    drain_notice: float = 0.0
    """How long a server that was told to stop goes on as before, only not ready: the time a balancer needs to notice."""
    drain: float = 30.0
    """How long running handlers may take to finish when the server stops."""

    def __post_init__(self) -> None:
        _check_numbers(self)
        if self.lease_renewal > self.lease / 3:
            raise ConfigError(
                f"lease_renewal={self.lease_renewal!r}: renew a lease of {self.lease:g} s"
                f" at least every {self.lease / 3:g} s"
            )

    @property
    def grace_seconds(self) -> float:
        """The grace that applies."""
        return self.idle if self.grace is None else self.grace


Eras = Literal["both", "sessions", "modern"]
"""The protocols with sessions (2025-03-26 to 2025-11-25), the one without (2026-07-28), or both at one address."""
Duplicates = Literal["reject", "isolate"]
StateOf = Literal["session", "principal"]
ResponseMode = Literal["adaptive", "json", "sse"]


class Settings(Struct, frozen=True, kw_only=True):
    """How an engine behaves."""

    limits: Limits = Limits()
    times: Times = Times()
    duplicates: Duplicates = "reject"
    """A request id already in flight: refuse the second, or run both apart."""
    in_order: bool = False
    """Run a session's calls strictly one after another, whichever replica each of them reaches."""
    reruns: int = 0
    """How often a call of a tool that declares itself idempotent is run again by another replica after the death of
    the one that ran it. 0: never, the call ends with −31002."""
    eras: Eras = "both"
    eras_by_client: Mapping[str, Eras] = {}
    """By the name a client gives itself: what it is served instead, where one era of it is known to be broken."""
    state: StateOf = "session"
    """The owner of `ctx.state`: the session (a client without sessions has no state), or the principal, in both eras."""
    mask_errors: bool = False
    """Send clients a correlation id instead of the text of an exception that an author's function raised."""
    stateless: bool = False
    """Serve 2025-era clients without sessions: nothing is remembered between two requests."""

    def __post_init__(self) -> None:
        _choose("duplicates", self.duplicates, Duplicates)
        _choose("state", self.state, StateOf)
        if self.reruns < 0:
            raise ConfigError(f"reruns={self.reruns!r}: give a number of runs, or 0 for none")


LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")


Names = tuple[str, ...] | list[str]
"""Several texts. A type checker takes one text for a sequence of texts, which here is a mistake."""


class HttpOptions(TypedDict, total=False):
    """The settings of `HttpSettings` that `Server.asgi` and `Server.run` take by name, besides the path."""

    response: ResponseMode
    allowed_hosts: Names
    allowed_origins: Names
    allow_anonymous: bool | None
    host_signals: bool


class HttpSettings(Struct, frozen=True, kw_only=True):
    """How the HTTP front behaves."""

    path: str = "/mcp"
    response: ResponseMode = "adaptive"
    """`json` never streams (asks and progress are then impossible); `sse` answers every call as a stream."""
    allowed_hosts: Sequence[str] = LOOPBACK_HOSTS
    """Host header values served, with or without port; anything else gets 421. `*` serves all."""
    allowed_origins: Sequence[str] = ()
    """Origins of browsers that may call, exactly as sent (`https://app.example`). Loopback origins always may."""
    allow_anonymous: bool | None = None
    """Serve without a token verifier. None: only for clients that connect from this machine."""
    host_signals: bool = True
    """Mounted in another server: end our streams when that server receives SIGINT or SIGTERM. Otherwise it waits for
    them, and Ctrl+C hangs while a client is connected."""

    def __post_init__(self) -> None:
        _choose("response", self.response, ResponseMode)
        if not self.path.startswith("/"):
            raise ConfigError(f"path={self.path!r}: an endpoint's path begins with a slash")
        for name in ("allowed_hosts", "allowed_origins"):
            if isinstance(getattr(self, name), str):
                raise ConfigError(f"{name} is a list of texts, not one text: write [{getattr(self, name)!r}]")


def _choose(name: str, word: str, choices: Any) -> None:
    if word not in get_args(choices):
        raise ConfigError(f"{name}={word!r}: choose {', '.join(get_args(choices))}")
