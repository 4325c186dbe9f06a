"""Every setting with its default and the reason for it.

Settings are frozen and passed in, never read from the environment.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import inf
from typing import Any, Final, Literal, TypedDict, get_args

from msgspec import Struct

from limpet.errors import ConfigError

KIB = 1024
MIB = 1024 * KIB

# Settings for which 0 is valid. For all others 0 would disable the server.
_MAY_BE_ZERO: Final = frozenset({
    "memory", "subscriptions", "queued", "queue_seconds", "store_seconds", "tasks", "state_bytes",
    "grace", "stream_after", "retry", "quiet", "after_expiry", "drain_notice", "drain",
})  # fmt: skip
_LISTS: Final = 24
"""Changes that may wait for a listener beside those of its subscriptions. There are fewer kinds of them."""
_REASONS: Final = dict.fromkeys(("idle", "lifetime"), "; otherwise sessions without a DELETE fill the store")


_MOST: Final = 2**48
"""The most bytes, and the largest count: a larger number is a mistake, and a store could not keep it."""
_LONGEST: Final = 100 * 365 * 86_400  # the most seconds: a hundred years


def _check_numbers(settings: Struct) -> None:
    """Refuse an invalid number: negative, infinite, not a number, or 0 if the setting does not allow it."""
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
        most = _MOST if kind is int else _LONGEST
        if value is not None and max(value if isinstance(value, tuple) else (value,)) > most:
            raise ConfigError(f"{name}={value!r}: give at most {most}")


def _tenth(number: int) -> int:
    """Return the part of one principal, at least 1 of a number that is not 0."""
    return -(-number // 10)


def _is_seconds(value: object, *, zero: bool) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 < value < inf or (zero and value == 0)


def _is_range(low: object, high: object, *, zero: bool) -> bool:
    if not (isinstance(low, int | float) and isinstance(high, int | float)):
        return False
    return _is_seconds(low, zero=zero) and _is_seconds(high, zero=zero) and low <= high


class Limits(Struct, frozen=True, kw_only=True, dict=True):
    """Limits. When one is reached, the caller waits, gets a clear refusal, or is informed about a gap.

    Raises:
        ConfigError: a number is invalid.
    """

    memory: int = 0
    """Bytes of memory: everything that clients make the process keep, decoded; under `limpet serve` also the process
    at rest, and all
    workers together. 0: three quarters of the container's memory, or a quarter of the machine's. Not in it: the
    memory of authors' functions and of programs behind. Each client has a share of the free memory, so that one that
    uses much does not affect the others; beyond: 429, 503, or the connection closes."""
    body: int = 4 * MIB
    """Bytes of one incoming message; beyond: 413."""
    depth: int = 64
    """Nesting of one incoming message; beyond: 400."""
    values: int = 100_000
    """Values (numbers, texts, objects, …) in one incoming message; beyond: 400. Decoding that many blocks the event
    loop for some tens of milliseconds; 4 MiB of small values would block it for a second."""
    headers: int = 16 * KIB
    """Bytes of a request's head under `limpet serve`, with at most one header for each 64 of them; beyond: 431."""
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    """Seconds in which the head and the body of a request must arrive under `limpet serve`; beyond: 408, and the
    connection closes."""

    connections: int = 10_000
    """Open connections of a process under `limpet serve`; beyond: an idle one closes, of the address that has the
    most idle ones; if none is idle, the new one gets 503 and closes. Also the calls of clients without a session
    (2026-07-28) that run at once, their parked calls and their listeners; one authenticated principal gets a tenth
    of the last two; beyond: 429, −31001."""

    verifier_seconds: float = 10.0
    """Seconds in which a verifier must check a token; beyond: 503. Identity providers answer faster, and clients wait
    longer."""

    sessions: int = 100_000
    """Sessions in the store; beyond: 503 with Retry-After. Also the principals with a state of their own
    (`Settings.state`), and ten times the handles of state (`ctx.new_handle`); beyond: StateError."""
    sessions_per_principal: int = 1_000
    """Sessions of one authenticated principal; beyond: its longest idle session is evicted (some clients open one per
    call). Also its handles; beyond: StateError."""
    subscriptions: int = 1_000
    """Resource subscriptions of a session, or of one listener (2026-07-28)."""

    running: int = 256
    """Calls of one session that run at the same time; further ones wait in the queue."""
    queued: int = 1_024
    """Calls of one session that wait for a slot; beyond: 429, −31001."""
    queue_seconds: float = 30.0
    """Seconds that a call waits in the queue; beyond: 429, −31001."""

    asks: int = 256
    """Open requests to the client of one session. Further ones wait, as many as calls may run; beyond:
    BackPressureError."""
    ask_seconds: float = 600.0
    """Seconds that an ask waits for its answer. Ten minutes: a person may have to read and type."""

    store_seconds: float = 30.0
    """Seconds that a message of a handler, or its use of state, waits for an unavailable store; beyond:
    StoreUnavailable, raised in the handler. A failover is faster, and clients wait longer."""

    tasks: int = 10_000
    """Stored tasks, running and ended. One principal gets a tenth (all anonymous clients are one); beyond: busy."""

    stream_events: int = 1_000
    stream_bytes: int = MIB
    """Stored events of a stream that can be replayed (number, bytes); beyond: the oldest are removed, and a resume
    reports a gap. Terminal messages are removed last."""
    store_bytes: int = 512 * MIB
    """Bytes of the store, of all replicas together: streams, tasks, state and subscriptions. The properties below
    are its parts."""
    state_bytes: int = 256 * KIB
    """Bytes of the state of one session, handle or principal; beyond: StateError. A session's subscriptions have as
    many; beyond: −32602."""
    threads: int = 64
    """Plain functions that run at the same time in one process (`limpet serve`, `server.run`); further ones wait."""
    page_size: int = 100
    """Items on a page of a list."""

    def __post_init__(self) -> None:
        _check_numbers(self)

    # The parts of `store_bytes`

    @cached_property
    def streams_bytes(self) -> int:
        """Streams and kept answers of all sessions; beyond: the oldest are removed."""
        return self.store_bytes // 2

    @cached_property
    def session_bytes(self) -> int:
        """Those of one session."""
        return self.store_bytes // 64

    @cached_property
    def tasks_bytes(self) -> int:
        """All tasks, with their results; beyond: busy, and a task whose result does not fit fails."""
        return self.store_bytes // 4

    @cached_property
    def principal_tasks_bytes(self) -> int:
        """The tasks of one principal (all anonymous clients are one)."""
        return self.store_bytes // 16

    @cached_property
    def task_bytes(self) -> int:
        """One task."""
        return self.store_bytes // 128

    @cached_property
    def principal_kept_bytes(self) -> int:
        """State and subscriptions of one principal (all anonymous clients are one); beyond: StateError, −32602.

        Each field and subscription counts with 256 bytes more. Otherwise `state_bytes` would multiply by the number of
        its sessions.
        """
        return self.store_bytes // 8

    # Numbers that follow from another limit

    @cached_property
    def client_bytes(self) -> int:
        """Bytes of clientInfo and capabilities, as JSON; beyond: −32602. Real clients send less than 1 KiB."""
        return self.headers

    @cached_property
    def subscription_bytes(self) -> int:
        """Bytes of the URIs that a session, or a listener, subscribes to: one URI may be as long as a message."""
        return self.state_bytes

    @cached_property
    def asks_queued(self) -> int:
        """Asks of one session that wait until another is answered; beyond: BackPressureError."""
        return self.running

    @cached_property
    def finished_streams(self) -> int:
        """Finished streams of a session that are kept for clients that reconnect: all may end in one second."""
        return self.running + self.queued

    @cached_property
    def sessionless_calls(self) -> int:
        """Calls of clients without a session that run at once."""
        return self.connections

    @cached_property
    def listeners(self) -> int:
        """Open `subscriptions/listen` streams."""
        return self.connections

    @cached_property
    def listeners_per_principal(self) -> int:
        """Those of one authenticated principal."""
        return _tenth(self.connections)

    @cached_property
    def listener_changes(self) -> int:
        """Different changes that wait for a slow listener; beyond: its stream is closed. One of each kind fits."""
        return self.subscriptions + _LISTS

    @cached_property
    def parked(self) -> int:
        """Parked calls."""
        return self.connections

    @cached_property
    def parked_per_principal(self) -> int:
        """Those of one authenticated principal."""
        return _tenth(self.connections)

    @cached_property
    def tasks_per_principal(self) -> int:
        """Tasks of one principal."""
        return _tenth(self.tasks)

    @cached_property
    def handles(self) -> int:
        """Handles of state."""
        return _tenth(self.sessions)

    @cached_property
    def handles_per_principal(self) -> int:
        """Those of one authenticated principal."""
        return self.sessions_per_principal

    @cached_property
    def principal_states(self) -> int:
        """Principals with a state of their own."""
        return self.sessions

    @cached_property
    def principal_state_bytes(self) -> int:
        """Bytes of the state of a principal."""
        return self.state_bytes


class Times(Struct, frozen=True, kw_only=True):
    """Times of sessions and streams, in seconds.

    Raises:
        ConfigError: a number is invalid, or `lease_renewal` is too long for `lease`.
    """

    idle: float = 1_800.0
    """A session without exchanges and readers closes after this time. Half an hour, as in the official SDKs."""
    grace: float | None = None
    """A detached session is kept for this time. None: as long as `idle` (a laptop may sleep); 0: removed at once."""
    lifetime: float = 86_400.0
    """A session of this age closes when it has no exchange in flight."""
    stream_after: float = 0.25
    """A call that takes longer is answered with a stream, which can be resumed."""
    keep_alive: float = 15.0
    """A comment is sent on a stream that was silent for this time. Balancers cut silent connections after 60 s."""
    write_stall: float = 30.0
    """A reader that accepts no byte for this time is detached."""
    stream_age: tuple[float, float] = (300.0, 600.0)
    """The connection of a stream ends at an age between these, if the revision allows it, and the client resumes."""
    retry: tuple[float, float] = (0.5, 3.0)
    """The reconnection delay that clients are asked for: a random value between these, so that they do not all
    reconnect at the same time."""
    quiet: float = 0.01
    """Asks of a call of 2026-07-28 that follow each other within this time are sent in one round."""
    parked: float = 600.0
    """How long a parked call waits for its retry, and how long its answer is kept for a repeat of the retry."""
    key_rotation: float = 86_400.0
    """How long one key seals `requestState` before the next key does; at least `parked`. A key can open states for one
    more period, and is deleted after four."""
    continue_after: float | None = None
    """A call of 2026-07-28 that runs longer is answered with `requestState` alone, and the client retries for the rest.
    For balancers that cut every long response: set it well below their limit."""
    after_expiry: float = 300.0
    """How long a call of 2026-07-28 may run on after the token of its request has expired; then it is cancelled. Its
    response cannot be resumed with another token, so that ending it at once would lose its work. Streams of sessions
    and
    listeners end when the token expires: their clients come back with a new one."""
    repeat: float = 30.0
    """How long a call of 2026-07-28 with an idempotency key runs on after its connection has broken; then it is
    cancelled. A repeat that comes in this time receives its answer. Clients that repeat do so within seconds."""
    handle: float = 86_400.0
    """How long the state of an unused handle is kept."""
    principal_state: float = 2_592_000.0
    """How long the unused state of a principal is kept. Thirty days: longer than a holiday."""
    task: float = 3_600.0
    """How long a task is kept after its last change: the client must fetch the result in this time."""
    task_poll: float = 1.0
    """The interval at which clients are asked to poll a task."""
    lease: float = 10.0
    """A replica that did not renew its lease for this time is declared dead by another replica, and its calls end. For
    this time after an outage of the store no replica is declared dead, so that every living one can renew first."""
    lease_renewal: float = 3.0
    """The interval of renewals: at least three in a lease, so that a replica survives one lost renewal."""
    loop_patience: float = 30.0
    """A replica whose event loop is blocked for longer than this is reported as not alive."""
    report_after: float = 30.0
    """A call that has not ended after this time gets a line in the log, with the reason why it waits."""
    sweep: float = 1.0
    """The interval of the search for sessions that are due to close."""
    drain_notice: float = 0.0
    """How long a stopping server serves as before while it reports not ready, so that balancers notice."""
    drain: float = 30.0
    """How long running calls may finish, and clients may read their answers, when the server stops."""

    def __post_init__(self) -> None:
        _check_numbers(self)
        if self.lease_renewal > self.lease / 3:
            raise ConfigError(
                f"lease_renewal={self.lease_renewal!r}: renew a lease of {self.lease:g} s"
                f" at least every {self.lease / 3:g} s"
            )

    @property
    def grace_seconds(self) -> float:
        """The effective grace period: `grace`, or `idle` if it is None."""
        return self.idle if self.grace is None else self.grace


Eras = Literal["both", "sessions", "sessionless"]
"""The protocols with sessions (2025-03-26 to 2025-11-25), the one without (2026-07-28), or both at one address."""
Duplicates = Literal["reject", "isolate"]
StateOf = Literal["session", "principal", "conversation"]
ResponseMode = Literal["adaptive", "json", "sse"]


class Quirks(Struct, frozen=True, kw_only=True):
    """How one client departs from the protocol, and how we treat it."""

    isolate: bool = False
    """It reuses ids that are in flight: run both requests, each with its own response."""
    no_priming: bool = False
    """It fails on an event without data: begin its streams with a message that it ignores."""
    reinitialize: bool = False
    """It sends initialize within a live session, over HTTP: open a new session and close the old one."""


_AFFINITY: Final = re.compile(r"(header|meta|argument):[!-~]{1,255}")
_RATE: Final = re.compile(r"([1-9][0-9]{0,8})/(s|m|h|d)( per principal)?")
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


class Rate(Struct, frozen=True):
    """A number of calls in a time: so many may come at once, and so many in each such time."""

    count: int
    seconds: float
    each: bool = False
    """Counted for each principal; otherwise for all clients together."""

    @classmethod
    def read(cls, text: str, name: str = "a rate") -> "Rate":
        """Return the rate that a text means: `100/s`, `10/m`, `5/h per principal`.

        Raises:
            ConfigError: it means none; the error names the setting.
        """
        found = _RATE.fullmatch(str(text))
        if found is None:
            raise ConfigError(
                f"{name}={text!r}: write a number of calls in a second, minute, hour or day, such as 100/s, 10/m, or "
                "10/m per principal"
            )
        return cls(int(found[1]), _UNITS[found[2]], found[3] is not None)

    def __str__(self) -> str:
        units = {seconds: unit for unit, seconds in _UNITS.items()}
        return f"{self.count}/{units[self.seconds]}{' per principal' if self.each else ''}"


class RateLimits(Struct, frozen=True, kw_only=True):
    """Rates of calls, such as `100/s`, `10/m`, `1000/h`. Empty: no limit.

    Raises:
        ConfigError: a text is not a rate.
    """

    principal: str = ""
    """Messages of one principal; beyond: 429, −31001; answers, cancellations and pings slow their connection
    instead. Anonymous clients count by address."""
    tools: Mapping[str, str] = {}
    """Calls of a tool by its name, of all clients together, or of each principal (`10/m per principal`); beyond:
    429, −31001. They override the rates that tools declare."""
    refusals: str = "600/m"
    """Refused requests of one address (401, 403); beyond: 429 instead, and tokens that are not known are not checked.
    Many clients may share an address, and each of them begins with a 401."""

    def __post_init__(self) -> None:
        for name in ("principal", "refusals"):
            if getattr(self, name) and Rate.read(getattr(self, name), name).each:
                raise ConfigError(
                    f"{name}={getattr(self, name)!r}: only the rate of a tool is 'per principal'"
                )
        for tool, text in self.tools.items():
            Rate.read(text, f"tools.{tool}")


class Settings(Struct, frozen=True, kw_only=True):
    """The behaviour of a server.

    Raises:
        ConfigError: a value is invalid.
    """

    limits: Limits = Limits()
    times: Times = Times()
    rates: RateLimits = RateLimits()
    """How often principals, tools and addresses may call."""
    duplicates: Duplicates = "reject"
    """A request whose id is in flight: `reject` refuses it, `isolate` runs both, each with its own answer."""
    in_order: bool = False
    """Run the calls of a session one after another, on all replicas."""
    eras: Eras = "both"
    eras_by_client: Mapping[str, Eras] = {}
    """The eras for clients with this name, if one era is known not to work with them."""
    quirks: Mapping[str, Quirks] | None = None
    """How clients with this name in their `clientInfo` are treated; None: the table of known clients."""
    state: StateOf = "session"
    """The owner of `ctx.state`: the session (then clients of 2026-07-28 have no state), the principal, or the
    conversation that requests of 2026-07-28 name (`affinity`), which in a session is the session."""
    affinity: str = ""
    """Where a request of 2026-07-28 names its conversation: `header:NAME`, `meta:KEY` (also in the W3C baggage in
    `_meta`), `argument:NAME`. The requests of one conversation of a principal share a connection, program or run
    behind, its home, and `ctx.state`. Empty: they name none."""
    mask_errors: bool = False
    """Send clients a correlation id instead of the text of an exception in an author's function."""
    stateless: bool = False
    """Serve clients of the session era without sessions: nothing is stored between two requests."""
    hand_over: float | Literal["auto", "off"] = "off"
    """A call that still runs after this time is answered, and goes on; its client collects the result later."""
    hand_over_tools: Mapping[str, float | Literal["auto", "off"]] = {}
    """The same for single tools, by name. They override the times that tools declare."""
    collect_tool: str = "collect"
    """The name of the tool with which a client collects results."""

    def __post_init__(self) -> None:
        _choose("duplicates", self.duplicates, Duplicates)
        _choose("state", self.state, StateOf)
        if self.affinity and _AFFINITY.fullmatch(self.affinity) is None:
            raise ConfigError(f"affinity={self.affinity!r}: write header:NAME, meta:KEY or argument:NAME")
        if not self.affinity and self.state == "conversation":
            raise ConfigError('state="conversation" needs affinity: where a request names its conversation')


WHOLE_URL: Final = re.compile(r"https?://([A-Za-z0-9.\-:\[\]]+)(/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?")
_PORT: Final = re.compile(r":[0-9]+$")
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")


Names = tuple[str, ...] | list[str]
"""A list of texts. `Sequence[str]` would accept a single text, which is a mistake here."""


class HttpOptions(TypedDict, total=False):
    """The settings of `HttpSettings` that `Server.asgi` and `Server.run` take by name, besides the path."""

    response: ResponseMode
    allowed_hosts: Names
    allowed_origins: Names
    public_url: str
    scopes_supported: Names
    allow_anonymous: bool | None
    trusted_proxies: Names
    host_signals: bool


class HttpSettings(Struct, frozen=True, kw_only=True):
    """The behaviour of an HTTP endpoint.

    Raises:
        ConfigError: a value is invalid.
    """

    path: str = "/mcp"
    response: ResponseMode = "adaptive"
    """`adaptive` streams slow and interactive calls; `json` never streams (no asks, no progress); `sse` streams
    every call."""
    allowed_hosts: Sequence[str] = LOOPBACK_HOSTS
    """The accepted Host headers, with or without port; others get 421. `*` accepts all."""
    allowed_origins: Sequence[str] = ()
    """The accepted Origin headers of browsers, exactly as sent (`https://app.example`). Loopback origins are always
    accepted."""
    public_url: str = ""
    """The URL of this endpoint as clients know it (`https://tools.example/mcp`): its host is accepted as a Host
    header, and tokens must be for it. Needed if the verifier does not know it, and clients of other machines sign
    in."""
    scopes_supported: Sequence[str] = ()
    """The scopes that the metadata of the endpoint lists. Empty: all scopes that components need, except hidden
    ones."""
    allow_anonymous: bool | None = None
    """Serve clients without a token. None: only clients that connect from this machine."""
    trusted_proxies: Sequence[str] = ()
    """Addresses or networks (`10.0.0.0/8`) of the proxies in front of `limpet serve`. The address of a client is
    then the one that they report in `X-Forwarded-For`."""
    host_signals: bool = True
    """In another ASGI server: end streams when that server receives SIGINT or SIGTERM. Otherwise the server waits for
    the streams, and Ctrl+C has no effect while a client is connected."""

    def __post_init__(self) -> None:
        _choose("response", self.response, ResponseMode)
        if not self.path.startswith("/"):
            raise ConfigError(f"path={self.path!r}: an endpoint's path begins with a slash")
        if self.public_url and (not WHOLE_URL.fullmatch(self.public_url)):
            raise ConfigError(
                f"public_url={self.public_url!r}: write the whole URL, such as https://tools.example/mcp"
            )
        _refuse_single(self, "allowed_hosts", "allowed_origins", "scopes_supported", "trusted_proxies")

    @property
    def serves_strangers(self) -> bool:
        """True if anonymous clients of other machines may call, who may be different people."""
        return bool(self.allow_anonymous) or not set(self.allowed_hosts) <= set(LOOPBACK_HOSTS)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The accepted Host headers, with the host of the public URL."""
        public = WHOLE_URL.match(self.public_url)
        return (*self.allowed_hosts, _PORT.sub("", public[1])) if public else tuple(self.allowed_hosts)


class AdminSettings(Struct, frozen=True, kw_only=True):
    """The admin surface: metrics, state and dashboard of a process, on an address of its own.

    Raises:
        ConfigError: a value is invalid.
    """

    address: str
    """`HOST:PORT`, or `unix:PATH` for a Unix socket."""
    token: str = ""
    """The token of operators; the same for all replicas. Empty: the variable `LIMPET_ADMIN_TOKEN`, or a new token
    that is printed, if standard error is a terminal."""
    allowed_hosts: Sequence[str] = LOOPBACK_HOSTS
    """The accepted Host headers, with or without port; others get 421. `*` accepts all."""

    def __post_init__(self) -> None:
        _refuse_single(self, "allowed_hosts")


def _refuse_single(settings: Struct, *names: str) -> None:
    for name in names:
        if isinstance(getattr(settings, name), str):
            raise ConfigError(f"{name} is a list of texts, not one text: write [{getattr(settings, name)!r}]")


def _choose(name: str, word: str, choices: Any) -> None:
    if word not in get_args(choices):
        raise ConfigError(f"{name}={word!r}: choose {', '.join(get_args(choices))}")
