"""The report: charts as files, and the generated parts of a page, which stand between markers.

A part begins with `<!-- bench: NAME -->` and ends with `<!-- /bench -->`. NAME is a workload, `goals`, or
`machine`. The text outside of the markers is written by hand.
"""

import re
from pathlib import Path
from typing import Any, Final

from bench import charts
from bench.goals import goals
from bench.results import Results, median, smallest
from bench.tables import label, markdown, rows_of

_PART: Final = re.compile(r"(<!-- bench: ([^>]+?) -->\n).*?(<!-- /bench -->)", re.DOTALL)


def write_page(page: Path, results: Results) -> None:
    """Replace the generated parts of a page for which there are results."""

    def part(found: re.Match[str]) -> str:
        made = _part(found[2], results)
        return found[0] if made is None else f"{found[1]}\n{made}\n\n{found[3]}"

    page.write_text(_PART.sub(part, page.read_text(encoding="utf-8")), encoding="utf-8")


def _part(name: str, results: Results) -> str | None:
    if name == "goals":
        return markdown(goals(results))
    if name == "machine":
        return _machine(results) if results else None
    entry = results.get(name)
    if entry is None:
        return None
    tables = "\n\n".join(markdown(rows) for rows in rows_of(entry))
    failed = "".join(f"\n\n{label(name, entry)}: {_reason(fault)}" for name, fault in entry["faults"].items())
    return f"{tables}{failed}\n\n{_note(entry['made'])}"


def _reason(fault: str) -> str:
    """Return why a contestant has no more figures: the first line of its fault, without the paths of this machine."""
    first = re.sub(r"\S*/\S*", "…", fault.splitlines()[0])
    return f"a dash, because its own run failed: `{first[:160].replace('`', '')}`"


def _note(made: dict[str, Any]) -> str:
    rounds = f"{made['rounds']} round{'s' if made['rounds'] > 1 else ''}"
    load = f"load of the machine {made['load']:g} before the run" if "load" in made else "load not recorded"
    return f"<sub>`{made['command']}`, {made['date']}, {load}, {rounds}, Limpet {made['limpet']}</sub>"


def _machine(results: Results) -> str:
    """Return the machines and versions of all results: one line for each combination."""
    lines: dict[str, list[str]] = {}
    for name, entry in results.items():
        made = entry["made"]
        peers = ", ".join(f"{peer} {version}" for peer, version in made["peers"].items())
        line = f"{made['machine']}; Python {made['python']}, uvicorn {made['uvicorn']}, uvloop {made['uvloop']}; {peers}."
        lines.setdefault(line, []).append(name)
    if len(lines) == 1:
        return next(iter(lines))
    return "\n".join(f"- {', '.join(names)}: {line}" for line, names in lines.items())


def write_charts(folder: Path, results: Results) -> list[Path]:
    """Write the charts for which there are results, and return their files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw in _CHARTS.items():
        if (entry := results.get(name)) is not None and any(point["figures"] for point in entry["points"]):
            file = folder / f"{name}.svg"
            file.write_text(draw(entry), encoding="utf-8")
            written.append(file)
    return written


def _words(name: str, entry: dict[str, Any]) -> str:
    return label(name, entry).replace("*", "").replace("`", "").removesuffix(" application")


def _cpu_bars(entry: dict[str, Any]) -> str:
    point = next((one for one in entry["points"] if one["label"].endswith("32")), entry["points"][0])
    values = {_words(name, entry): smallest(rounds, "cpu_us") for name, rounds in point["figures"].items()}
    ordered = dict(sorted(values.items(), key=lambda item: item[1]))
    title = entry["title"][0].upper() + entry["title"][1:]
    subtitle = f"Processor time of the server per {entry['unit']}, 32 connections; shorter is better"
    return charts.bars(title, subtitle, ordered, lambda value: f"{value:,.0f} µs")


def _rate_bars(entry: dict[str, Any]) -> str:
    figures = entry["points"][0]["figures"]
    values = {_words(name, entry): median(rounds, "per_second") for name, rounds in figures.items()}
    ordered = dict(sorted(values.items(), key=lambda item: -item[1]))
    title = entry["title"][0].upper() + entry["title"][1:]
    subtitle = f"{entry['unit'].capitalize()}s per second on one core; longer is better"
    return charts.bars(title, subtitle, ordered, lambda value: f"{value:,.0f}")


def _memory_bars(entry: dict[str, Any]) -> str:
    figures = entry["points"][0]["figures"]
    values = {_words(name, entry): median(rounds, "bytes") / 1024 for name, rounds in figures.items()}
    ordered = dict(sorted(values.items(), key=lambda item: item[1]))
    title = entry["title"][0].upper() + entry["title"][1:]
    return charts.bars(
        title, f"KiB, {entry['points'][0]['label']}; shorter is better", ordered, lambda v: f"{v:,.1f}"
    )


def _growth(entry: dict[str, Any]) -> str:
    series: charts.Series = {}
    for point in entry["points"]:
        for name, rounds in point["figures"].items():
            series.setdefault(_words(name, entry), []).append((point["x"], smallest(rounds, "cpu_us")))
    title = entry["title"][0].upper() + entry["title"][1:]
    return charts.lines(
        title, "Processor time per request; lower is better", series, lambda value: f"{value:,.0f} µs"
    )


_CHARTS: Final = {
    "echo-json": _cpu_bars,
    "echo-2026": _cpu_bars,
    "events": _rate_bars,
    "stores-events": _rate_bars,
    "memory-idle": _memory_bars,
    "growth-sessions": _growth,
    "growth-calls": _growth,
    "growth-connections": _growth,
    "growth-tools": _cpu_bars,
    "growth-servers": _cpu_bars,
}
