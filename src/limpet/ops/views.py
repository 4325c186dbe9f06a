"""The JSON of the admin surface: one state of a whole fleet, and the part of it that one replica reports.

Every text may come from a client (names of clients and tools), so a page must escape it. Sessions, principals and calls
appear by short hashes; no session id, token, argument or result is in here.
"""

from typing import Final

from msgspec import Struct, field

from limpet.ops.ring import Happened

NO_EVENTS: Final = 10**17
"""As the number of the last known event: the state comes without events."""


class ServerView(Struct, frozen=True):
    """A server of the process."""

    name: str
    version: str
    store: str
    is_away: bool = False
    """Its store does not answer."""


class CallView(Struct, frozen=True):
    """A call that has not ended."""

    id: str
    method: str
    name: str
    """The tool or prompt; empty for other methods."""
    age: float | None
    """Seconds since it began."""
    waits_for: str
    """handler, ask, upstream, store, reader or slot."""
    client: str
    session: str
    era: str
    principal: str
    replica: str
    state: str = "running"
    """running, queued, parked or handed over."""
    server: str = ""


class ShownSession(Struct, frozen=True):
    """An open session."""

    id: str
    client: str
    era: str
    state: str
    """attached or detached."""
    closes_in: float | None
    """Seconds until the grace period of a detached session ends; None: it does not end now."""
    principal: str
    log_bytes: int = 0
    calls: int = 0
    streams: int = 0
    replica: str = ""
    """Where it is used now, or its home; empty: any replica answers its next request."""
    server: str = ""
    kept_bytes: int = 0
    quiet: float | None = None
    """Seconds since the last sign of its client; None: a call is in flight."""


class ReplicaView(Struct, frozen=True):
    """A process that shares the store."""

    name: str
    state: str
    """live, stopping, silent (it has a lease and has not answered), or gone (its lease has ended). A live replica
    without an admin surface has only this state."""
    sessions: int | None = None
    calls: int | None = None
    loop_delay: float | None = None
    loop_delay_max: float | None = None
    lease_left: float | None = None
    server: str = ""


class RecentView(Struct, frozen=True):
    """The calls of the last minute."""

    calls_per_second: float = 0.0
    calls: int = 0
    errors: int = 0
    p50: float = 0.0
    p95: float = 0.0
    slowest: float | None = None
    """The age of the oldest call that runs now; None: none runs."""
    earlier_calls: int = 0
    """Of the four minutes before."""
    earlier_errors: int = 0
    trouble: str = ""
    """rising: it fails more often than before; failing: it fails often; else empty."""


class ToolView(Struct, frozen=True):
    """A tool, a prompt or another method of a server that was called in the last minutes."""

    name: str
    server: str
    recent: RecentView


class UpstreamView(Struct, frozen=True):
    """A server behind a server of the process."""

    server: str
    connections: int
    state: str
    restarts: int
    replica: str
    recent: RecentView = RecentView()
    worked: float | None = None
    """Seconds since it answered last; None: it has not yet."""
    failed: float | None = None
    """Seconds since it failed last."""
    reason: str = ""
    """Why it failed."""


class FiguresView(Struct, frozen=True):
    """The numbers at the top of the dashboard."""

    attached: int = 0
    detached: int = 0
    running: int = 0
    queued: int = 0
    parked: int = 0
    handed_over: int = 0
    asks: int = 0
    streams: int = 0
    log_bytes: int = 0
    calls_per_second: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    loop_delay: float = 0.0
    loop_delay_max: float = 0.0
    """The largest of the last minute."""


class FleetState(Struct, frozen=True):
    """The data of the dashboard."""

    replica: str
    servers: list[ServerView]
    figures: FiguresView
    calls: list[CallView]
    sessions: list[ShownSession]
    next_page: str
    """The cursor of the next page of sessions; empty: this is the last one."""
    replicas: list[ReplicaView]
    upstreams: list[UpstreamView]
    counts: dict[str, int]
    """How often notable events happened since the start."""
    history: list[tuple[float, float, float, float, float]] = field(default_factory=list)
    """Calls per second, median and 95th percentile of their durations, failed calls and refused requests per second,
    for each of the last seconds; the oldest first."""
    events: list[Happened] = field(default_factory=list)
    tools: list[ToolView] = field(default_factory=list)
    """Those that were called in the last minutes, the busiest first."""
