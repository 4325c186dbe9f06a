"""The goals: what a run should reach, beside what it has measured.

A goal is one figure of one workload. Ratios have two goals, by requests per second and by processor time: both are of one run.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from bench.results import Results, cpu_ratio, median, ratio, smallest
from bench.tables import Rows

Points = list[dict[str, Any]]
"""The points of a workload, each with its label and its figures by contestant."""
_GROWTH: Final = 1.15
"""A call may cost so many times as much where there is most of something."""


class Goal(NamedTuple):
    """What a run should reach."""

    text: str
    workload: str
    limit: float
    value: Callable[[Points], float]
    """The figure, from the points of the workload."""
    at_most: bool = False
    unit: str = ""


def _figures(points: Points, label: str) -> Any:
    """Return the figures of the point with this label; with one session, if the workload has several numbers of them."""
    return next(point["figures"] for point in points if point["label"] in {label, f"1 session, {label}"})


def _ratios(
    text: str, workload: str, label: str, limit: float, name: str = "limpet", of: str = "bare uvicorn"
) -> Iterator[Goal]:
    """Yield the goals of a contestant beside another one, at the point with this label."""
    for by, how in (("requests/s", ratio), ("CPU", cpu_ratio)):
        yield Goal(f"{text} by {by}", workload, limit, _beside(how, label, name, of))


def _beside(
    how: Callable[[Any, str, str], float], label: str, name: str, of: str
) -> Callable[[Points], float]:
    """Return a function that returns the ratio of two contestants at a point."""
    return lambda points: how(_figures(points, label), name, of)


def _echo_goals() -> Iterator[Goal]:
    bare = "of the bare application"
    for sessions, connections, limit in (
        (1, 32, 1.4), (1, 256, 1.0), (64, 32, 1.15), (1, 1, 1.1), (64, 1, 1.05)
    ):  # fmt: skip
        label = f"{sessions} session{'s' if sessions > 1 else ''}, {connections}"
        few = f"{connections} connection{'s' if connections > 1 else ''}"
        text = f"echo, {sessions} session{'s' if sessions > 1 else ''}, JSON, {few}, {bare}"
        yield from _ratios(text, "echo-json", label, limit)
    for many, sse, sessionless in (("32", 1.0, 1.5), ("256", 1.0, 1.1)):
        at = f"{many} connections, {bare}"
        yield from _ratios(f"echo, a session, SSE, {at}", "echo-sse", many, sse)
        yield from _ratios(f"echo, 2026-07-28, {at}", "echo-2026", many, sessionless)
    yield from _ratios(f"opening sessions, {bare}", "create", "32", 0.9)


def _telemetry_goals() -> Iterator[Goal]:
    for mode, workload in (("a session", "telemetry"), ("2026-07-28", "telemetry-2026")):
        for what, name, limit in (
            ("a log line for each call", "logs", 0.97),
            ("log lines and metrics", "logs and metrics", 0.9),
        ):
            text = f"echo, {mode}, with {what}, of the speed without by CPU"
            yield Goal(text, workload, limit, _beside(cpu_ratio, "32", name, "telemetry off"))


def _store_goals() -> Iterator[Goal]:
    for name, title, many, one in (("redis", "Redis", 0.65, 0.45), ("sqlite", "SQLite", 0.55, 0.35)):
        yield from _ratios(
            f"{title}, 32 in flight, of the memory store", "stores", "32", many, name, "memory"
        )
        yield from _ratios(f"{title}, one in flight, of the memory store", "stores", "1", one, name, "memory")
    yield from _ratios("PostgreSQL, 32 in flight, of Redis", "stores", "32", 0.5, "postgres", "redis")
    for name, limit in (("memory", 60_000), ("sqlite", 45_000), ("redis", 45_000)):
        text = f"streamed events, 32 streams, {name}"
        yield Goal(text, "stores-events", limit, _figure(name, "per_second", median), unit="/s")
    text = "time of Redis for one call"
    yield Goal(text, "stores", 60, _figure("redis", "redis_us", smallest), at_most=True, unit=" µs")


def _front_goals() -> Iterator[Goal]:
    direct = "32 in flight, of the direct call"
    yield from _ratios(f"in front of a URL, {direct}", "url", "32", 0.5, "remote", "direct")
    yield from _ratios(f"in front of a program, {direct}", "program", "32", 0.6, "process", "direct")
    for name in ("mcp2", "fastmcp"):
        text = f"host of an object of {name}, 32 in flight, of its own HTTP server"
        yield from _ratios(text, "object", "32", 1.3, f"hosted {name}", name)


def _figure(
    name: str, key: str, how: Callable[[Any, str], float], scale: float = 1
) -> Callable[[Points], float]:
    """Return a function that returns a figure of a contestant at the last point."""
    return lambda points: how(points[-1]["figures"][name], key) / scale


def _tail(points: Points) -> float:
    rounds = _figures(points, "32")["limpet"]
    return median(rounds, "p99_us") / median(rounds, "p50_us")


def _grown(points: Points) -> float:
    """Return the processor time at the last point as a multiple of that at the first one."""
    first, last = (smallest(point["figures"]["limpet"], "cpu_us") for point in (points[0], points[-1]))
    return last / first


def _more(more: str, less: str) -> Callable[[Points], float]:
    """Return a function that returns the processor time of one contestant as a multiple of another one's."""
    return lambda points: 1 / cpu_ratio(points[0]["figures"], more, less)


def _growth_goals() -> Iterator[Goal]:
    for what, workload, value in (
        ("from 10 to 100,000 sessions", "growth-sessions", _grown),
        ("from 1 to 1,000 calls in flight", "growth-calls", _grown),
        ("from 1 to 9,500 idle connections beside", "growth-connections", _grown),
        ("from 4 to 5,000 tools", "growth-tools", _more("5,000 tools", "4 tools")),
        ("from 1 to 100 servers behind one address", "growth-servers", _more("100 servers", "1 server")),
    ):
        yield Goal(f"processor time of a call, {what}", workload, _GROWTH, value, at_most=True, unit=" times")
    value = _more("two workers", "one process")
    yield Goal(
        "processor time of a call, `--workers 2`, of one process",
        "workers",
        1.1,
        value,
        at_most=True,
        unit=" times",
    )


def _memory_goals() -> Iterator[Goal]:
    for what, workload, limit in (
        ("an idle session", "memory-idle", 1.5),
        ("a session left after six calls", "memory-left", 6),
        ("an idle connection", "memory-connection", 8),
        ("an open stream", "memory-stream", 8),
    ):
        yield Goal(what, workload, limit, _figure("limpet", "bytes", median, 1024), at_most=True, unit=" KiB")


GOALS: Final = (
    *_echo_goals(),
    Goal("echo, a session, 32 connections: p99 divided by the median", "echo-json", 2.5, _tail, at_most=True),
    *_telemetry_goals(),
    *_store_goals(),
    *_front_goals(),
    *_growth_goals(),
    *_memory_goals(),
    Goal(
        "processor time of the client for a call, one at a time",
        "client",
        350,
        lambda points: smallest(points[0]["figures"]["limpet"], "cpu_us"),
        at_most=True,
        unit=" µs",
    ),
    Goal(
        "`limpet serve` to the first answer",
        "start",
        300,
        _figure("limpet", "ms", smallest),
        at_most=True,
        unit=" ms",
    ),
)


def goals(results: Results) -> Rows:
    """Return each goal, what was measured, and whether it is reached."""
    return [["goal", "limit", "measured", "reached"], *(_row(goal, results) for goal in GOALS)]


def _row(goal: Goal, results: Results) -> list[str]:
    limit = f"{'at most' if goal.at_most else 'at least'} {goal.limit:,g}{goal.unit}"
    try:
        value = goal.value(results[goal.workload]["points"])
    except (KeyError, IndexError, StopIteration):
        return [goal.text, limit, "–", "not measured"]
    reached = value <= goal.limit if goal.at_most else value >= goal.limit
    digits = 0 if value >= 100 else 1 if goal.unit not in {"", " times"} else 2
    return [goal.text, limit, f"{value:,.{digits}f}{goal.unit}", "yes" if reached else "**no**"]
