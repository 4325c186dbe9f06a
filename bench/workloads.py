"""The table of workloads: what is measured, of which contestants, at which points."""

import sys
from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple, Self

from bench import loads
from bench.contestants import (
    BEFORE_OBJECT,
    BEFORE_PROGRAM,
    BEFORE_URL,
    HERE,
    PEERS,
    Contestant,
    Entry,
    Surroundings,
    in_mode,
    peer,
    with_servers,
    with_stores,
    with_telemetry,
    with_tools,
    with_workers,
)

Kind = Literal["rate", "memory", "time"]


class Point(NamedTuple):
    """One setting of a workload."""

    label: str
    """It may name options: `{count:,} sessions`."""
    options: Mapping[str, int] = {}
    quick: Mapping[str, int] | None = {}
    """What a quick run changes in the options; None: a quick run leaves this point out."""
    x: float = 0
    """The place on the horizontal axis of a growth chart."""

    def in_run(self, *, quick: bool) -> Self | None:
        """Return the point of a full or a quick run, with its label complete; None: the run leaves it out."""
        if quick and self.quick is None:
            return None
        options = {**self.options, **(self.quick or {})} if quick else self.options
        return self._replace(label=self.label.format(**options), options=options)


class Workload(NamedTuple):
    """One row of the table."""

    name: str
    title: str
    load: Callable[..., loads.Figures]
    entries: Mapping[str, Entry]
    points: tuple[Point, ...]
    kind: Kind = "rate"
    unit: str = "request"
    reference: str = "bare uvicorn"
    """The contestant that counts as 1."""
    starts: bool = False
    """Whether the load starts and ends the server itself; otherwise the servers of all contestants run side by side."""
    rounds: int = 3
    seconds: int = 2
    quick: bool = True
    """Whether a quick run measures it."""


def _connections(*counts: int, sessions: tuple[int, ...] = (1,), quick: int = 32) -> tuple[Point, ...]:
    """Return one point for each number of sessions and connections; a quick run has one of them."""
    points = []
    for some in sessions:
        for count in counts:
            label = f"{some} session{'s' if some > 1 else ''}, {count}" if len(sessions) > 1 else f"{count}"
            only: Mapping[str, int] | None = {} if count == quick and some == 1 else None
            points.append(Point(label, {"connections": count, "sessions": some}, only, x=count))
    return tuple(points)


def _only(entries: Mapping[str, Entry], *names: str) -> dict[str, Entry]:
    return {name: entries[name] for name in names}


def _renamed(entry: Entry, name: str) -> dict[str, Entry]:
    return {name: lambda s: entry(s)._replace(name=name)}


JSON, SSE, SESSIONLESS = in_mode("json"), in_mode("sse"), in_mode("2026")
SPEAKERS: Final = {name: entry for name, entry in SSE.items() if name != "bare uvicorn"}
ECHO: Final = {"connections": 32}


def _resuming() -> dict[str, Entry]:
    """Return our server with each store, and the one peer that has a store of events: in memory, and on Redis."""

    def fastmcp(name: str, place: str) -> Contestant:
        return peer(name, "fastmcp", "python", "echo_of_fastmcp.py", env={"MODE": "sse", "RESUME": place})

    return {
        **with_stores(),
        "fastmcp": lambda _: fastmcp("fastmcp", "memory"),
        "fastmcp on Redis": lambda s: fastmcp("fastmcp on Redis", s.redis()),
    }


def _importing() -> dict[str, Entry]:
    statements = {
        "mcp1": "from mcp.server.fastmcp import FastMCP",
        "mcp2": "from mcp.server.mcpserver import MCPServer",
        "fastmcp": "from fastmcp import FastMCP",
    }

    def of(home: str) -> Entry:
        return lambda _: peer(home, home, "python", "-c", statements[home])

    ours: Entry = lambda s: Contestant("limpet", [s.python, "-c", "from limpet import Server"], HERE)  # noqa: E731
    python: Entry = lambda s: Contestant("python alone", [s.python, "-c", "pass"], HERE)  # noqa: E731
    return {"python alone": python, "limpet": ours, **{home: of(home) for home in statements}}


def _clients() -> dict[str, Entry]:
    def of(name: str, who: str, python: str, version: str) -> Entry:
        def made(s: Surroundings) -> Contestant:
            interpreter = s.python if who == "limpet" else python
            return Contestant(name, [interpreter, str(HERE / "client.py"), who, s.upstream(), version], HERE)

        return made

    theirs = str(PEERS / "mcp2" / "bin" / "python")
    return {
        "limpet": of("limpet", "limpet", sys.executable, "2025-11-25"),
        "limpet 2026": of("limpet 2026", "limpet", sys.executable, "2026-07-28"),
        "mcp2": of("mcp2", "official", theirs, "2025-11-25"),
        "mcp2 2026": of("mcp2 2026", "official", theirs, "2026-07-28"),
    }


def _table() -> tuple[Workload, ...]:
    sizes = (10, 100, 1_000, 10_000, 100_000)
    flights = (1, 4, 16, 64, 256, 1_000)
    return (
        Workload(
            "echo-json", "echo in sessions, answers as JSON", loads.echo, JSON,
            _connections(1, 32, 256, sessions=(1, 64)),
        ),
        Workload(
            "echo-sse", "echo in sessions, answers as SSE", loads.echo, SSE,
            _connections(1, 32, 256, sessions=(1, 64)), rounds=2,
        ),
        Workload(
            "echo-2026", "echo without sessions (2026-07-28), answers as JSON", loads.echo, SESSIONLESS,
            _connections(1, 32, 256),
        ),
        Workload(
            "telemetry", "echo in sessions without and with telemetry", loads.echo, with_telemetry(modern=False),
            _connections(32), reference="telemetry off", quick=False,
        ),
        Workload(
            "telemetry-2026", "echo without sessions (2026-07-28), without and with telemetry", loads.echo,
            with_telemetry(modern=True), _connections(32), reference="telemetry off", quick=False,
        ),
        Workload(
            "create", "opening sessions", loads.create, JSON,
            (Point("32", {"connections": 32}),), unit="session",
        ),
        Workload(
            "events", "streamed events, 32 streams at the same time", loads.events,
            {**SPEAKERS, **_renamed(SESSIONLESS["limpet"], "limpet 2026")},
            (Point("{streams} streams", {"streams": 32, "count": 200}),), unit="event", reference="limpet",
        ),
        Workload(
            "asks", "questions to the client, 16 at the same time in each of 4 calls", loads.asks,
            {**SPEAKERS, **_renamed(SESSIONLESS["limpet"], "limpet 2026")},
            (Point("{calls} × {count}", {"calls": 4, "count": 16}),), unit="question", reference="limpet",
        ),
        Workload(
            "resume", "resuming a stream of 1,000 events", loads.resume, _resuming(),
            (Point("{count:,} events", {"count": 1_000}),), unit="event", reference="memory", rounds=2, quick=False,
        ),
        Workload(
            "stores", "echo in one session and in 32 with each store", loads.stored_echo, with_stores(),
            (Point("32 sessions, 32", {"connections": 32, "sessions": 32}), *_connections(1, 32)), reference="memory", rounds=2, quick=False,
        ),
        Workload(
            "stores-events", "streamed events with each store, 32 streams at the same time", loads.events,
            with_stores(), (Point("{streams} streams", {"streams": 32, "count": 200}),), unit="event", reference="memory", rounds=2,
        ),
        Workload(
            "memory-idle", "memory of an idle session", loads.idle_sessions, JSON,
            (Point("{count:,} sessions", {"count": 10_000}, {"count": 1_000}),),
            kind="memory", unit="session", reference="limpet", starts=True, rounds=1,
        ),
        Workload(
            "memory-left", "memory of a session left after six calls, two of them streamed", loads.left_sessions, SPEAKERS,
            (Point("{count:,} sessions", {"count": 1_000}, {"count": 300}),),
            kind="memory", unit="session", reference="limpet", starts=True, rounds=1,
        ),
        Workload(
            "memory-stream", "memory of an open stream", loads.open_streams, SPEAKERS,
            (Point("{count:,} streams", {"count": 1_000}, {"count": 300}),),
            kind="memory", unit="stream", reference="limpet", starts=True, rounds=1,
        ),
        Workload(
            "memory-connection", "memory of an idle connection", loads.idle_connections, JSON,
            (Point("{count:,} connections", {"count": 5_000}, {"count": 500}),),
            kind="memory", unit="connection", reference="limpet", starts=True, rounds=1,
        ),
        Workload(
            "start", "start of the server to the answer of a first call", loads.start, JSON,
            (Point("one process"),), kind="time", unit="start", starts=True, rounds=3,
        ),
        Workload(
            "import", "a process that only imports the server class", loads.import_time, _importing(),
            (Point("one process"),), kind="time", unit="import", reference="python alone", starts=True, rounds=3, quick=False,
        ),
        Workload(
            "client", "calls of a client, by calls in flight", loads.client, _clients(),
            tuple(
                Point(f"{count}", {"in_flight": count, "calls": 60 * (count + 15)}, {"calls": 300}) for count in (1, 32)
            ),
            unit="call", reference="mcp2", starts=True, quick=False,
        ),
        Workload(
            "url", "in front of a URL", loads.echo, BEFORE_URL, _connections(1, 32),
            unit="call", reference="direct", rounds=2, quick=False,
        ),
        Workload(
            "program", "in front of a program", loads.echo, BEFORE_PROGRAM, _connections(1, 32),
            unit="call", reference="direct", rounds=2, quick=False,
        ),
        Workload(
            "object", "in front of an object of another framework, beside its own HTTP server", loads.echo,
            BEFORE_OBJECT, _connections(1, 32), unit="call", reference="mcp2", rounds=2, quick=False,
        ),
        Workload(
            "growth-sessions", "echo by the number of open sessions, 32 connections", loads.echo,
            _only(JSON, "bare uvicorn", "limpet"),
            tuple(
                Point(f"{n:,}", {**ECHO, "sessions": n}, {} if n in {10, 1_000} else None, x=n) for n in sizes
            ),
            rounds=2, quick=False,
        ),
        Workload(
            "growth-calls", "echo by the number of calls in flight", loads.echo,
            _only(JSON, "bare uvicorn", "limpet", "mcp2", "typescript"),
            tuple(
                Point(f"{n:,}", {"connections": n, "sessions": 1}, {} if n in {1, 256} else None, x=n) for n in flights
            ),
            rounds=2, quick=False,
        ),
        Workload(
            "growth-connections", "echo on 32 connections by the number of idle ones beside them", loads.crowded_echo,
            _only(JSON, "limpet"), tuple(Point(f"{n:,}", {**ECHO, "beside": n}, x=n) for n in (1, 100, 1_000, 9_500)),
            reference="limpet", rounds=2, quick=False,
        ),
        Workload(
            "growth-tools", "echo with few and with many tools", loads.echo, with_tools(),
            (Point("32", ECHO),), reference="4 tools", rounds=2, quick=False,
        ),
        Workload(
            "growth-servers", "echo of one of several servers behind one address", loads.echo, with_servers(),
            (Point("32", ECHO),), reference="1 server", rounds=2, quick=False,
        ),
        Workload(
            "workers", "echo in 32 sessions, one process and two workers on one core", loads.echo, with_workers(),
            (Point("32 sessions, 32", {**ECHO, "sessions": 32}),), reference="one process", rounds=2, quick=False,
        ),
    )  # fmt: skip


WORKLOADS: Final = {workload.name: workload for workload in _table()}
