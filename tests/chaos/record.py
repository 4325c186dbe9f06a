"""The run of record: `python -m tests.chaos.record [--minutes 8] [--only NAME] [--again] [--judge]`.

Eight configurations hold together every store, every back and every fault. Each of them is one trial with a report in `docs/proof/NAME.json`.
A configuration whose report is there already, of the same commit and length, is not run again: an interrupted run goes on where it was. At the end the table
of `docs/proof.md` is written from the reports, and it is checked that all of them together reach the numbers of a run of record. The histories are kept in
`build/proof`; `--judge` judges them again without a trial, with the judge as it is now.
"""

import argparse
import asyncio
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tests.chaos.history import read_history
from tests.chaos.notes import Plan
from tests.chaos.trial import Report, judged, show, trial

ROOT: Final = Path(__file__).parents[2]
REPORTS: Final = ROOT / "docs" / "proof"
PAGE: Final = ROOT / "docs" / "proof.md"
MINUTES: Final = 8.0
"""What each configuration takes in a run of record."""
HISTORIES: Final = ROOT / "build" / "proof"
KEPT: Final = "redis-store"
"""The configuration whose history is kept beside its report, of a short run: that of a long one has 6 MB."""
WANTED: Final = {
    "requests": 100_000,
    "events": 1_000_000,
    "cuts": 5_000,
    "kill": 100,
    "stop": 50,
    "restart": 20,
    "failover": 10,
}
"""What all configurations of a run of record reach together."""
REPLICAS: Final = {"kill": 14, "stop": 8, "term": 6, "hup": 4, "clock": 8}
BASE: Final = Plan(
    seed=1,
    sessions=100,
    requests=200,
    events=20,
    interval=0.36,
    cuts=650,
    stop_seconds=7.0,
    lease=5.0,
    fault_seconds=460.0,
    load_seconds=470.0,
    leavers=10,
    grace=20.0,
    patience=120.0,
    moderns=10,
    modern_calls=400,
    drain=13.0,
)
BEHIND: Final = replace(BASE, events=10, interval=0.7)
"""A server of `mcp` behind takes most of a core at this rate."""
CONFIGURATIONS: Final[dict[str, Plan]] = {
    "redis-replicas": replace(BASE, faults={**REPLICAS, "roll": 3}),
    "redis-store": replace(
        BASE,
        faults={"restart": 8, "pause": 6, "full": 4, "part": 8, "lose": 20, "kill": 8, "stop": 4},
    ),
    "redis-failover": replace(BASE, store="redis-failover", faults={"failover": 12, "kill": 6, "stop": 4}),
    "sqlite-workers": replace(
        BASE,
        store="sqlite",
        workers=3,
        # No `clock`: it steps one process, and all workers of one file have one clock, that of their host.
        faults={"kill": 20, "stop": 10, "term": 6, "roll": 4, "full": 4},
    ),
    "postgres-url": replace(
        BEHIND,
        store="postgres",
        back="url",
        faults={"restart": 12, "pause": 6, "part": 8, "lose": 20, "kill": 10, "behind": 12},
    ),
    "postgres-standby": replace(BASE, store="postgres-standby", faults={"restart": 1, "kill": 14, "stop": 8}),
    "redis-program": replace(
        BEHIND, back="program", sessions=16, faults={"kill": 20, "stop": 10, "behind": 40}
    ),
    "redis-object": replace(BEHIND, back="object", faults={"kill": 16, "stop": 10, "term": 6, "roll": 3}),
}
COUNTED: Final = {"requests": "requests", "events": "events received"}
_PLACE: Final = re.compile(r"(?<=<!-- record -->\n).*?(?=<!-- /record -->)", re.DOTALL)


class Recorded(Struct, kw_only=True):
    """The report of one configuration, with what repeats it."""

    name: str
    date: str
    commit: str
    command: str
    minutes: float
    plan: Plan
    report: Report


def plan_of(name: str, minutes: float, seed: int) -> Plan:
    """Return the plan of a configuration; a shorter run has less of everything, and at least one of each fault."""
    plan, part = CONFIGURATIONS[name], minutes / MINUTES
    if part >= 1:
        return replace(plan, seed=seed)
    return replace(
        plan,
        seed=seed,
        sessions=min(plan.sessions, 30),
        requests=max(4, round(plan.requests * part)),
        cuts=round(plan.cuts * part * 0.6),
        fault_seconds=plan.fault_seconds * part,
        load_seconds=plan.load_seconds * part,
        faults={kind: max(1, round(number * part)) for kind, number in plan.faults.items()},
        leavers=max(2, round(plan.leavers * part)),
        moderns=4,
        modern_calls=max(6, round(plan.modern_calls * part)),
    )


def record(name: str, minutes: float, seed: int) -> Recorded:
    """Run one configuration, and write its report."""
    plan = plan_of(name, minutes, seed)
    HISTORIES.mkdir(parents=True, exist_ok=True)
    report = asyncio.run(trial(plan, history=_history(name)))
    made = Recorded(
        name=name,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        commit=commit(),
        command=f"python -m tests.chaos.record --minutes {minutes:g} --seed {seed} --only {name}",
        minutes=minutes,
        plan=plan,
        report=report,
    )
    if name == KEPT and minutes < MINUTES:
        shutil.copy(_history(name), REPORTS)
    return _written(made)


def judged_again(made: Recorded) -> Recorded:
    """Judge the history of a configuration again, and write its report."""
    report = judged(read_history(_history(made.name)), seconds=made.report.seconds)
    return _written(msgspec.structs.replace(made, report=report))


def _written(made: Recorded) -> Recorded:
    (REPORTS / f"{made.name}.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n"
    )
    print(show(made.report), flush=True)
    return made


def _history(name: str) -> Path:
    return HISTORIES / f"{name}.jsonl.gz"


def recorded(name: str) -> Recorded | None:
    """Return the last report of a configuration."""
    path = REPORTS / f"{name}.json"
    return msgspec.json.decode(path.read_bytes(), type=Recorded) if path.exists() else None


def table(reports: list[Recorded]) -> str:
    """Return the reports as the table of the page."""
    lines = [
        "| configuration | run | seconds | requests | events | cuts | other faults | told of a death, median / p99 | violations |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in reports:
        report, fired = one.report, one.report.fired
        others = ", ".join(f"{kind} {fired.get(kind, 0)}/{n}" for kind, n in one.plan.faults.items())
        deaths = [report.milliseconds.get(f"told of a death {label}") for label in ("p50", "p99")]
        told = " / ".join("–" if ms is None else f"{ms / 1000:.1f} s" for ms in deaths)
        length = f"{one.minutes:g} min"
        verdict = f"{len(report.violations)}" + ("" if report.is_valid else " (**invalid**: too few faults)")
        lines.append(
            f"| `{one.name}` | {length}, {one.date}, `{one.commit}`, seed {report.seed} | {report.seconds:.0f} | {report.counts['requests']} | "
            f"{report.counts['events received']} | {fired.get('cuts', 0)}/{one.plan.cuts} | {others} | {told} | {verdict} |"
        )
    reached = totals(reports)
    lines += [
        "",
        "In all: " + ", ".join(f"{reached[what]:,} {what} (of {n:,})" for what, n in WANTED.items()) + ".",
    ]
    return "\n".join(lines) + "\n"


def totals(reports: list[Recorded]) -> dict[str, int]:
    """Return the sums over all runs."""
    fired = {what: sum(one.report.fired.get(what, 0) for one in reports) for what in WANTED}
    counted = {what: sum(one.report.counts[name] for one in reports) for what, name in COUNTED.items()}
    return {**fired, **counted}


def write_page() -> None:
    """Write the table of all reports into the page."""
    reports = [found for name in CONFIGURATIONS if (found := recorded(name)) is not None]
    PAGE.write_text(_PLACE.sub(lambda _: table(reports), PAGE.read_text()))


def commit() -> str:
    """Return the commit that runs."""
    return subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.strip()


def main() -> int:
    """Run what is missing; 0 only if every configuration was valid and clean."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.record")
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help="of each configuration; 8 are a run of record"
    )
    parser.add_argument("--only", action="append", choices=list(CONFIGURATIONS), help="this configuration")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="also what has a report of this commit already")
    parser.add_argument("--judge", action="store_true", help="no trial: judge the kept histories again")
    arguments = parser.parse_args()
    REPORTS.mkdir(exist_ok=True)
    made = [_held(name, arguments) for name in arguments.only or CONFIGURATIONS]
    if PAGE.exists():
        write_page()
    failed = any(one.report.violations or not one.report.is_valid for one in made)
    if not arguments.only and arguments.minutes >= MINUTES:
        missed = {what: n for what, n in totals(made).items() if n < WANTED[what]}
        print(f"missed: {missed}" if missed else "all numbers of a run of record are reached")
        failed |= bool(missed)
    return int(failed)


def _held(name: str, arguments: argparse.Namespace) -> Recorded:
    """Return the report of a configuration; hold its trial first if there is none."""
    print(f"== {name}", flush=True)
    found = recorded(name)
    if arguments.judge and found is not None:
        return judged_again(found)
    same = found is not None and (found.commit, found.minutes) == (commit(), arguments.minutes)
    if found is not None and same and not arguments.again:
        return found
    return record(name, arguments.minutes, arguments.seed)


if __name__ == "__main__":
    sys.exit(main())
