"""The table of all metrics. The documents, the alert rules and the Grafana dashboard are checked against it.

Names and labels follow the MCP conventions of OpenTelemetry where these have one (`mcp.server.operation.duration` is
`mcp_server_operation_duration_seconds`); all other names begin with `limpet_`, or are the usual ones of a process.

Merging. With several worker processes one scrape returns one number for all of them. Counters and histograms are
summed. A gauge is summed if each process has its own part (calls that run). The largest value is taken if each
process reports the same thing (the size of the store that they share) or if the worst value is of interest (the age
of the oldest call).
"""

from typing import Final, Literal

from msgspec import Struct

Kind = Literal["counter", "gauge", "histogram"]
Merge = Literal["sum", "max"]


class Family(Struct, frozen=True):
    """One metric."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    merge: Merge = "sum"


def _counter(name: str, text: str, *labels: str) -> Family:
    return Family(name, "counter", text, ("server", *labels))


def _gauge(name: str, text: str, *labels: str, merge: Merge = "sum") -> Family:
    return Family(name, "gauge", text, ("server", *labels), merge)


def _histogram(name: str, text: str, *labels: str) -> Family:
    return Family(name, "histogram", text, ("server", *labels))


def _of_process(kind: Kind, name: str, text: str, *labels: str, merge: Merge = "sum") -> Family:
    """Return a metric of the whole process. All others have the label `server`."""
    return Family(name, kind, text, labels, merge)


CALLS: Final = _histogram(
    "mcp_server_operation_duration_seconds",
    "Time that handlers took for requests, in seconds.",
    "mcp_method_name",
    "gen_ai_tool_name",
    "gen_ai_prompt_name",
    "era",
    "outcome",
    "error_type",
)
SESSION_SECONDS: Final = _histogram(
    "mcp_server_session_duration_seconds", "How long closed sessions were open, in seconds."
)
EXCHANGES: Final = _gauge(
    "limpet_exchanges",
    "Requests that have not ended, by state: queued, running, parked, handed over, ending.",
    "state",
)
HANDED_OVER: Final = _counter(
    "limpet_handed_over_total",
    "Calls that were handed over: they were answered while they ran, and their results are collected later.",
)
WAITING: Final = _gauge(
    "limpet_exchanges_waiting",
    "Requests that have not ended, by the reason why they wait: slot, handler, ask, reader, store, upstream.",
    "waits_for",
)
OLDEST: Final = _gauge(
    "limpet_exchange_oldest_seconds",
    "Age of the oldest running request, by the reason why it waits. 0: there is none.",
    "waits_for",
    merge="max",
)
SESSIONS: Final = _gauge(
    "limpet_sessions",
    "Open sessions of the store, by state: attached, detached. Those that keep idempotency keys count as attached.",
    "state",
    merge="max",
)
LOCAL_SESSIONS: Final = _gauge(
    "limpet_local_sessions", "Sessions of which this process has a call, a reader or an ask."
)
SESSION_CHANGES: Final = _counter(
    "limpet_session_changes_total",
    "Sessions that were opened, detached, resumed, moved to another home, or closed.",
    "change",
)
ASKS: Final = _gauge("limpet_asks", "Requests to clients that are not answered yet.", "era")
ASKED: Final = _counter("limpet_asks_total", "Requests that were sent to clients of sessions.")
ANSWERED: Final = _counter(
    "limpet_asks_answered_total", "Requests to clients of sessions that the client has answered."
)
PARKED: Final = _counter(
    "limpet_parked_total",
    "Calls of 2026-07-28 that were parked, resumed by a retry, expired, or refused for want of a place.",
    "event",
)
READERS: Final = _gauge("limpet_stream_readers", "Connections that read a stream of a session.")
LISTENERS: Final = _gauge("limpet_listeners", "Open subscriptions/listen requests of 2026-07-28.")
STREAMS: Final = _counter("limpet_streams_total", "Streams of calls that have begun.")
STREAM_EVENTS: Final = _counter("limpet_stream_events_total", "Messages that were added to streams.")
STREAM_BYTES: Final = _counter("limpet_stream_bytes_total", "Bytes of these messages.")
RESUMES: Final = _counter("limpet_stream_resumes_total", "Streams that a client has resumed at a position.")
GAPS: Final = _counter(
    "limpet_stream_gaps_total", "Times that a reader missed events which were trimmed away."
)
STALLS: Final = _counter(
    "limpet_stream_stalls_total", "Connections that were ended because the client took no byte."
)
REPEATS: Final = _counter(
    "limpet_repeats_total", "Requests that were sent again and got the answer of the first one."
)
DUPLICATES: Final = _counter(
    "limpet_duplicates_refused_total",
    "Requests that were refused because their id was in use, by client.",
    "client",
)
REFUSALS: Final = _counter("limpet_refusals_total", "Refused requests, by reason.", "reason")
ACTS: Final = _counter("limpet_acts_total", "Administrative acts.", "act")
MEMORY: Final = _gauge("limpet_memory_bytes", "Memory that clients use, as it is charged to the ledger.")
MEMORY_LIMIT: Final = _gauge(
    "limpet_memory_limit_bytes", "The memory that clients may use: the figure less the process at rest."
)
LOG_BYTES: Final = _gauge("limpet_store_log_bytes", "Bytes of all streams in the store.", merge="max")
STATE_BYTES: Final = _gauge(
    "limpet_store_state_bytes", "Bytes of state and subscriptions in the store.", merge="max"
)
STORE_AWAY: Final = _gauge(
    "limpet_store_unreachable",
    "1 if the store did not answer a question of this scrape, else 0.",
    merge="max",
)
STORE_SECONDS: Final = _histogram(
    "limpet_store_duration_seconds",
    "Time of calls to a store outside of this process, by part of the contract, in seconds.",
    "part",
)
STORE_ERRORS: Final = _counter(
    "limpet_store_errors_total",
    "Calls to the store that failed: unavailable, fenced, other.",
    "part",
    "error",
)
REPLICAS: Final = _gauge("limpet_replicas", "Replicas whose lease runs.", merge="max")
LEASES_LOST: Final = _counter(
    "limpet_leases_lost_total", "Times that another replica declared this one dead."
)
UNRENEWED: Final = _counter("limpet_lease_renewals_failed_total", "Renewals of the lease that failed.")
REAPED: Final = _counter(
    "limpet_exchanges_reaped_total", "Calls of dead replicas that this one ended as outcome unknown."
)
FENCED: Final = _counter("limpet_exchanges_fenced_total", "Calls of this replica that another one has ended.")
UPSTREAM_ENDS: Final = _counter(
    "limpet_upstream_ended_total",
    "Connections to a server behind that ended unexpectedly, with its child process.",
)
UPSTREAM_RESTARTS: Final = _counter(
    "limpet_upstream_restarts_total",
    "Times that a server behind was started or connected again after such an end.",
)
UPSTREAM_FAILURES: Final = _counter(
    "limpet_upstream_unreachable_total", "Times that a server behind could not be reached."
)
UNVERIFIED: Final = _counter(
    "limpet_verifier_failures_total",
    "Lines of the log that say that a verifier failed, and tokens could not be checked.",
)
UPSTREAM_WORKED: Final = _gauge(
    "limpet_upstream_last_success_timestamp_seconds",
    "When a server behind last answered, in seconds since 1970; 0: it has not yet.",
    merge="max",
)
UPSTREAM_FAILED: Final = _gauge(
    "limpet_upstream_last_failure_timestamp_seconds",
    "When a server behind last failed, in seconds since 1970, by reason: unreachable, unusable, ended, late; 0: it has not.",
    "reason",
    merge="max",
)
EVENTS: Final = _counter(
    "limpet_events_total", "Events of the log, by name, also those without a line.", "event"
)
LOOP_DELAYS: Final = _of_process(
    "histogram", "limpet_loop_delay_seconds", "How late the event loop ran a timer, measured once a second."
)
LOOP_DELAY_MAX: Final = _of_process(
    "gauge", "limpet_loop_delay_max_seconds", "The largest of these delays in the last minute.", merge="max"
)
PROCESSES: Final = _of_process(
    "gauge", "limpet_processes", "Worker processes whose figures are in this answer."
)
BUILD: Final = _of_process(
    "gauge", "limpet_build_info", "1, with the versions as labels.", "version", "python", merge="max"
)
CPU: Final = _of_process(
    "counter", "process_cpu_seconds_total", "Processor time in user and system mode, in seconds."
)
RESIDENT: Final = _of_process("gauge", "process_resident_memory_bytes", "Resident memory in bytes.")
VIRTUAL: Final = _of_process("gauge", "process_virtual_memory_bytes", "Virtual memory in bytes.")
OPEN_FDS: Final = _of_process("gauge", "process_open_fds", "Open file descriptors.")
MAX_FDS: Final = _of_process("gauge", "process_max_fds", "The limit of open file descriptors.")
START_TIME: Final = _of_process(
    "gauge",
    "process_start_time_seconds",
    "When the newest process began, in seconds since 1970.",
    merge="max",
)

FAMILIES: Final[dict[str, Family]] = {
    family.name: family for family in list(globals().values()) if isinstance(family, Family)
}
"""By name, in the order of this file."""

FROM_EVENTS: Final[dict[str, tuple[Family, str]]] = {
    "session.opened": (SESSION_CHANGES, "opened"),
    "session.detached": (SESSION_CHANGES, "detached"),
    "session.resumed": (SESSION_CHANGES, "resumed"),
    "session.moved": (SESSION_CHANGES, "moved"),
    "session.closed": (SESSION_CHANGES, "closed"),
    "call.handed_over": (HANDED_OVER, ""),
    "stream.stalled": (STALLS, ""),
    "exchange.repeated": (REPEATS, ""),
    "replica.lease_lost": (LEASES_LOST, ""),
    "lease.not_renewed": (UNRENEWED, ""),
    "exchange.reaped": (REAPED, ""),
    "exchange.fenced": (FENCED, ""),
    "upstream.ended": (UPSTREAM_ENDS, ""),
    "client.reconnected": (UPSTREAM_RESTARTS, ""),
    "upstream.unreachable": (UPSTREAM_FAILURES, ""),
    "verifier.failed": (UNVERIFIED, ""),
}
"""Counters that are the number of an event: the metric, and the value of its second label."""
