"""Tables of results, for the terminal and for the documents."""

from collections.abc import Callable
from typing import Any, Final

from bench.contestants import SERVERS
from bench.results import cpu_ratio, median, ratio, smallest

Rows = list[list[str]]
"""The first row is the head."""

_LABELS: Final = {
    "limpet": "**Limpet**",
    "limpet 2026": "**Limpet**, 2026-07-28",
    "bare uvicorn": "bare uvicorn application",
    "memory": "Limpet, memory",
    "sqlite": "Limpet, SQLite (WAL)",
    "redis": "Limpet, Redis, nothing written to disk",
    "postgres": "Limpet, PostgreSQL, written to disk",
    "postgres off": "Limpet, PostgreSQL, `synchronous_commit=off`",
    "telemetry off": "Limpet, telemetry off",
    "logs": "Limpet, a log line for each call",
    "logs and metrics": "Limpet, log lines and metrics",
    "direct": "no proxy: the direct call",
    "remote": "`Remote`, client in a session",
    "remote 2026": "`Remote`, client of 2026-07-28",
    "remote to 2025": "`Remote`, all in sessions of 2025-11-25",
    "process": "`Process`, client in a session",
    "process 2026": "`Process`, client of 2026-07-28",
    "mcp-proxy of stdio": "`mcp-proxy`, with the server as its program",
    "mcp-proxy twice": "`mcp-proxy` twice, HTTP to stdio to the URL",
    "python alone": "Python alone",
    "one process": "Limpet, SQLite, one process",
    "two workers": "Limpet, SQLite, `--workers 2`",
    "4 tools": "Limpet, 4 tools",
    "5,000 tools": "Limpet, 5,000 tools",
    **{name: f"Limpet, {name}" for name in SERVERS.values()},
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
        "supergateway": "supergateway",
    }
    titles = {key: f"{title} {versions[key]}" for key, title in names.items() if key in versions}
    if name.startswith("hosted "):
        return f"`Hosted`, an object of {titles[name.removeprefix('hosted ')]}"
    if name == "fastmcp's proxy":
        return f"{titles['fastmcp']}'s proxy"
    if name == "fastmcp on Redis":
        return f"{titles['fastmcp']}, its events in Redis"
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
