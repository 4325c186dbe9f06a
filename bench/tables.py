"""Tables of results, for the terminal and for the documents, and the goals beside what was measured."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from bench.results import Results, cpu_ratio, median, ratio, smallest

Rows = list[list[str]]
"""The first row is the head."""

_LABELS: Final = {
    "holdfast": "**Holdfast**",
    "holdfast 2026": "**Holdfast**, 2026-07-28",
    "bare uvicorn": "bare uvicorn application",
    "memory": "Holdfast, memory",
    "sqlite": "Holdfast, SQLite (WAL)",
    "redis": "Holdfast, Redis, nothing written to disk",
    "postgres": "Holdfast, PostgreSQL, written to disk",
    "postgres off": "Holdfast, PostgreSQL, `synchronous_commit=off`",
    "telemetry off": "Holdfast, telemetry off",
    "logs": "Holdfast, a log line for each call",
    "logs and metrics": "Holdfast, log lines and metrics",
    "direct": "no proxy: the direct call",
    "remote": "`Remote`, client in a session",
    "remote 2026": "`Remote`, client of 2026-07-28",
    "remote to 2025": "`Remote`, all in sessions of 2025-11-25",
    "process": "`Process`, client in a session",
    "process 2026": "`Process`, client of 2026-07-28",
    "mcp-proxy of stdio": "`mcp-proxy`, with the server as its program",
    "mcp-proxy twice": "`mcp-proxy` twice, HTTP to stdio to the URL",
    "python alone": "Python alone",
}


def label(name: str, entry: dict[str, Any]) -> str:
    """Return how a contestant is called in a table: a peer with its version."""
    if name in _LABELS:
        return _LABELS[name]
    versions = {key: value.rpartition(".")[0] for key, value in entry["made"]["peers"].items()}
    names = {
        "mcp1": "`mcp`",
        "mcp2": "`mcp`",
        "fastmcp": "fastmcp",
        "typescript": "TypeScript",
        "mcp-proxy": "`mcp-proxy`",
    }
    titles = {key: f"{title} {versions[key]}" for key, title in names.items()}
    if name.startswith("hosted "):
        return f"`Hosted`, an object of {titles[name.removeprefix('hosted ')]}"
    if name == "fastmcp's proxy":
        return f"{titles['fastmcp']}'s proxy"
    if name.endswith(" 2026"):
        return f"{titles[name.removesuffix(' 2026')]}, 2026-07-28"
    return titles[name]


def _number(value: float) -> str:
    """Return three digits, or all of them from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def rows_of(entry: dict[str, Any]) -> list[Rows]:
    """Return the tables of one workload."""
    build: dict[str, Callable[[dict[str, Any]], list[Rows]]] = {
        "rate": _rates,
        "memory": _memory,
        "time": _times,
    }
    return build[entry["kind"]](entry)


def _rates(entry: dict[str, Any]) -> list[Rows]:
    return [_one_point(entry)] if len(entry["points"]) == 1 else [_figures(entry), *_ratios(entry)]


def _names(entry: dict[str, Any]) -> list[str]:
    found: dict[str, None] = {}
    for point in entry["points"]:
        found.update(dict.fromkeys(point["figures"]))
    return [*found]


def _one_point(entry: dict[str, Any]) -> Rows:
    table = entry["points"][0]["figures"]
    reference, unit = entry["reference"], entry["unit"]
    of = "of " + label(reference, entry).replace("*", "")
    rows = [["", f"{unit}s/s", f"CPU per {unit}", f"{of}, by {unit}s/s", f"{of}, by CPU"]]
    for name, rounds in table.items():
        both = [f"{ratio(table, name, reference):.2f}", f"{cpu_ratio(table, name, reference):.2f}"]
        rates = [_number(median(rounds, "per_second")), f"{_number(smallest(rounds, 'cpu_us'))} µs"]
        rows.append([label(name, entry), *rates, *(both if reference in table else ["", ""])])
    return rows


def _figures(entry: dict[str, Any]) -> Rows:
    rows = [["", *(point["label"] for point in entry["points"])]]
    for name in _names(entry):
        cells = []
        for point in entry["points"]:
            rounds = point["figures"].get(name)
            cells.append(
                f"{_number(median(rounds, 'per_second'))}/s · {_number(smallest(rounds, 'cpu_us'))} µs"
                if rounds
                else "–"
            )
        rows.append([label(name, entry), *cells])
    return rows


def _ratios(entry: dict[str, Any]) -> list[Rows]:
    reference = entry["reference"]
    points = [point for point in entry["points"] if reference in point["figures"]]
    if not points:
        return []
    rows = [[f"of {label(reference, entry)}".replace("*", ""), *(point["label"] for point in points)]]
    for name in _names(entry):
        if name == reference:
            continue
        cells = []
        for point in points:
            table = point["figures"]
            found = (
                f"{ratio(table, name, reference):.2f} · {cpu_ratio(table, name, reference):.2f}"
                if name in table
                else "–"
            )
            cells.append(found)
        rows.append([label(name, entry), *cells])
    return [rows]


def _memory(entry: dict[str, Any]) -> list[Rows]:
    rows = [["", *(f"KiB per {entry['unit']}, {point['label']}" for point in entry["points"])]]
    for name in _names(entry):
        cells = [f"{median(point['figures'][name], 'bytes') / 1024:,.1f}" for point in entry["points"]]
        rows.append([label(name, entry), *cells])
    return [rows]


def _times(entry: dict[str, Any]) -> list[Rows]:
    table = entry["points"][0]["figures"]
    rows = [["", "shortest", "median", "CPU, smallest"]]
    for name, rounds in table.items():
        times = (smallest(rounds, "ms"), median(rounds, "ms"), smallest(rounds, "cpu_ms"))
        rows.append([label(name, entry), *(f"{time:,.0f} ms" for time in times)])
    return [rows]


def markdown(rows: Rows) -> str:
    """Return a table for a document."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines)


def plain(rows: Rows) -> str:
    """Return a table for the terminal."""
    rows = [[cell.replace("*", "").replace("`", "") for cell in row] for row in rows]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = []
    for row in rows:
        first, *others = (cell.ljust(width) if not place else cell.rjust(width)
                          for place, (cell, width) in enumerate(zip(row, widths, strict=True)))  # fmt: skip
        lines.append("  " + "  ".join([first, *others]))
    return "\n".join(lines)


# Goals


class Goal(NamedTuple):
    """What a run should reach."""

    text: str
    workload: str
    limit: float
    value: Callable[[list[dict[str, Any]]], float]
    """The figure, from the tables of the workload's points."""
    at_most: bool = False
    unit: str = ""


def _place(points: list[dict[str, Any]], connections: int) -> Any:
    """Return the figures of the point with one session and this number of connections."""
    return next(p["figures"] for p in points if p["label"] in {f"{connections}", f"1 session, {connections}"})


def _at(connections: int, of: Callable[[Any, str, str], float]) -> Callable[[list[dict[str, Any]]], float]:
    return lambda points: of(_place(points, connections), "holdfast", "bare uvicorn")


def _tail(points: list[dict[str, Any]]) -> float:
    rounds = _place(points, 32)["holdfast"]
    return median(rounds, "p99_us") / median(rounds, "p50_us")


def _of(
    name: str, key: str, how: Callable[[Any, str], float], scale: float = 1
) -> Callable[[list[dict[str, Any]]], float]:
    return lambda points: how(points[-1]["figures"][name], key) / scale


def _echo_goals() -> list[Goal]:
    goals = []
    for mode, name, limit in (
        ("a session, JSON", "echo-json", 1.0), ("a session, SSE", "echo-sse", 1.0), ("2026-07-28", "echo-2026", 1.1)
    ):  # fmt: skip
        for connections in (32, 256):
            text = f"echo, {mode}, {connections} connections, of the bare application by "
            goals += [
                Goal(text + "requests/s", name, limit, _at(connections, ratio)),
                Goal(text + "CPU", name, limit, _at(connections, cpu_ratio)),
            ]
    return goals


def _telemetry_goals() -> list[Goal]:
    return [
        Goal(
            f"echo, {mode}, with metrics and call logs, of the speed without them by CPU",
            name,
            0.9,
            lambda points: cpu_ratio(_place(points, 32), "logs and metrics", "telemetry off"),
        )
        for mode, name in (("a session", "telemetry"), ("2026-07-28", "telemetry-2026"))
    ]


GOALS: Final = (
    *_echo_goals(),
    *_telemetry_goals(),
    Goal("echo, a session, 32 connections: p99 divided by the median", "echo-json", 3, _tail, at_most=True),
    Goal("opening sessions, of the bare application by requests/s", "create", 0.6, _at(32, ratio)),
    *(
        Goal(
            f"streamed events, 32 streams, {name}",
            "stores-events",
            15_000,
            _of(name, "per_second", median),
            unit="/s",
        )
        for name in ("memory", "sqlite", "redis")
    ),
    Goal(
        "time of Redis for one call",
        "stores",
        60,
        _of("redis", "redis_us", smallest),
        at_most=True,
        unit=" µs",
    ),
    Goal(
        "an idle session", "memory-idle", 4, _of("holdfast", "bytes", median, 1024), at_most=True, unit=" KiB"
    ),
    Goal(
        "a session left after six calls",
        "memory-left",
        6,
        _of("holdfast", "bytes", median, 1024),
        at_most=True,
        unit=" KiB",
    ),
    Goal(
        "an open stream",
        "memory-stream",
        12,
        _of("holdfast", "bytes", median, 1024),
        at_most=True,
        unit=" KiB",
    ),
    Goal(
        "processor time of the client for a call, one at a time",
        "client",
        350,
        lambda points: smallest(points[0]["figures"]["holdfast"], "cpu_us"),
        at_most=True,
        unit=" µs",
    ),
    Goal(
        "`holdfast serve` to the first answer",
        "start",
        300,
        _of("holdfast", "ms", smallest),
        at_most=True,
        unit=" ms",
    ),
)


def goals(results: Results) -> Rows:
    """Return each goal, what was measured, and whether it is reached."""
    rows = [["goal", "limit", "measured", "reached"]]
    for goal in GOALS:
        try:
            value = goal.value(results[goal.workload]["points"])
        except (KeyError, IndexError, StopIteration):
            continue
        reached = value <= goal.limit if goal.at_most else value >= goal.limit
        limit = f"{'at most' if goal.at_most else 'at least'} {goal.limit:,g}{goal.unit}"
        shown = f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if not goal.unit else f"{value:.1f}"
        rows.append([goal.text, limit, shown + goal.unit, "yes" if reached else "**no**"])
    return rows
