"""Results: stored as JSON with the date, the machine and the versions, and what is computed from them."""

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.contestants import ROOT
from bench.runner import Measured, Plan, Table
from bench.workloads import Workload

Results = dict[str, Any]
"""By the name of the workload: title, kind, unit, reference, faults, made, and points with label, x and figures."""


def record(workload: Workload, measured: Measured, plan: Plan, made: dict[str, Any]) -> dict[str, Any]:
    """Return one workload's entry."""
    return {
        "title": workload.title,
        "kind": workload.kind,
        "unit": workload.unit,
        "reference": workload.reference,
        "made": {**made, "rounds": plan.rounds_of(workload), "seconds": plan.seconds_of(workload)},
        "faults": measured.faults,
        "points": [
            {"label": point.label, "x": point.x, "figures": _rounded(table)}
            for point, table in measured.points
        ],
    }


def _rounded(table: Table) -> Table:
    """Return four significant digits of each figure: more are noise."""
    return {
        name: [{key: float(f"{value:.4g}") for key, value in each.items()} for each in rounds]
        for name, rounds in table.items()
    }


def made_here(python: str, command: str) -> dict[str, Any]:
    """Return the facts about the machine and the versions. It has no path and no host name."""
    ours = [python, "-c", "import limpet, platform; print(limpet.__version__, platform.python_version())"]
    limpet, version = subprocess.run(ours, capture_output=True, text=True, check=True).stdout.split()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()}",
        "load": round(os.getloadavg()[0], 1),
        "python": version,
        "limpet": f"{limpet} {_commit()}".strip(),
        "uvicorn": importlib.metadata.version("uvicorn"),
        "uvloop": importlib.metadata.version("uvloop"),
        "peers": peer_versions(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout.strip()


def peer_versions() -> dict[str, str]:
    """Return the pinned versions of the peers."""
    lines = (ROOT / "tools" / "versions.env").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    names = {
        "mcp1": "MCP1",
        "mcp2": "MCP2",
        "fastmcp": "FASTMCP",
        "typescript": "TS_SERVER",
        "mcp-proxy": "MCP_PROXY",
        "supergateway": "SUPERGATEWAY",
    }
    return {name: pinned[key] for name, key in names.items()}


def read(file: Path) -> Results:
    """Return the stored results, or none."""
    if not file.exists():
        return {}
    found: Results = json.loads(file.read_text(encoding="utf-8"))
    return found


def write(file: Path, results: Results) -> None:
    """Store results."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


# What is computed


def median(rounds: list[dict[str, float]], key: str) -> float:
    """Return the median of a figure."""
    return statistics.median(each[key] for each in rounds)


def smallest(rounds: list[dict[str, float]], key: str) -> float:
    """Return the smallest of a figure."""
    return min(each[key] for each in rounds)


def ratio(table: Table, name: str, reference: str) -> float:
    """Return the median over rounds of the rate, beside the reference's rate of the same round."""
    pairs = zip(table[name], table[reference], strict=False)
    return statistics.median(ours["per_second"] / theirs["per_second"] for ours, theirs in pairs)


def cpu_ratio(table: Table, name: str, reference: str) -> float:
    """Return the reference's processor time as a part of ours, by the smallest of each: noise disturbs this least."""
    return smallest(table[reference], "cpu_us") / smallest(table[name], "cpu_us")
