"""Measure Limpet beside its peers, every answer verified, and write tables and charts.

A full run (`make bench`) stores its results in docs/speed/results.json and replaces the generated parts of
docs/speed.md. A quick run prints, and writes to build/bench. A run with --only replaces the results of these workloads
and keeps the others.
"""

import argparse
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.contestants import LOAD_CORE, PEERS, ROOT
from bench.goals import goals
from bench.loads import check_programs
from bench.report import write_charts, write_page
from bench.results import Results, made_here, read, record, write
from bench.runner import Plan, Turns, chosen
from bench.surroundings import Around
from bench.tables import plain, rows_of
from bench.workloads import WORKLOADS, Workload

MINUTES = 15


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ", ".join(WORKLOADS)
    made.add_argument(
        "--quick",
        action="store_true",
        help="one short round of the main workloads, without peers: about a minute",
    )
    made.add_argument(
        "--only", nargs="+", metavar="WORKLOAD", choices=WORKLOADS, help=f"measure these workloads: {names}"
    )
    made.add_argument("--peers", nargs="*", metavar="NAME", help="measure these peers beside ours: mcp1, mcp2, fastmcp, "
                      "typescript, mcp-proxy, supergateway; nothing after --peers: none. Default: all, or none in a quick run")  # fmt: skip
    made.add_argument("--python", default=sys.executable, metavar="PATH",
                      help="the interpreter of our own servers; its environment has the packages of tools/locks/dev.txt")  # fmt: skip
    made.add_argument("--rounds", type=int, help="instead of the number of each workload")
    made.add_argument("--seconds", type=int, help="length of one slice")
    made.add_argument(
        "--minutes",
        type=float,
        default=MINUTES,
        help=f"after this time each point gets one round only (default {MINUTES})",
    )
    made.add_argument(
        "--out",
        type=Path,
        metavar="DIRECTORY",
        help="write results and charts here, and leave the documents unchanged",
    )
    made.add_argument(
        "--report",
        action="store_true",
        help="measure nothing: write tables and charts again from the stored results",
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write; return the exit status: 1 if a contestant had a fault."""
    options = parser().parse_args(arguments)
    out = options.out or (ROOT / "build" / "bench" if options.quick else None)
    folder = out or ROOT / "docs" / "speed"
    results = read(folder / "results.json")
    faults = 0 if options.report else _measure(options, results, folder / "results.json")
    charts = write_charts(folder, results)
    if out is None:
        write_page(ROOT / "docs" / "speed.md", results)
    print("\n" + plain(goals(results)))
    print(f"\n{len(results)} workloads in {folder / 'results.json'}, {len(charts)} charts beside it")
    return 1 if faults else 0


def _measure(options: argparse.Namespace, results: Results, file: Path) -> int:
    """Measure the chosen workloads into `results`; return the number of faults."""
    check_programs()
    peers = [] if options.quick and options.peers is None else options.peers
    if peers is None and not PEERS.is_dir():
        sys.exit("the peers are not installed: `make bench` installs them; --peers alone measures none")
    until = time.monotonic() + options.minutes * 60
    plan = Plan(options.quick, options.rounds, options.seconds, until)
    names = options.only or [name for name, one in WORKLOADS.items() if one.quick or not options.quick]
    work = [(WORKLOADS[name], chosen(WORKLOADS[name], peers)) for name in names]
    made = made_here(options.python, _command(options))
    print(f"about {sum(plan.estimate(one, who) for one, who in work) / 60:.0f} minutes; "
          f"{made['machine']}, Python {made['python']}", flush=True)  # fmt: skip
    faults = 0
    with Around(options.python) as around:
        for number, (workload, who) in enumerate(work, 1):
            if not who:
                continue
            faults += _one(workload, who, plan, around, results, made, f"[{number}/{len(work)}]")
            write(file, results)
    return faults


def _one(
    workload: Workload,
    who: list[str],
    plan: Plan,
    around: Around,
    results: Results,
    made: dict[str, object],
    place: str,
) -> int:
    began = time.monotonic()
    print(f"{place} {workload.name}: {workload.title}", flush=True)
    measured = Turns(workload, plan, lambda line: print(line, flush=True)).run(
        [workload.entries[name](around) for name in who]
    )
    results[workload.name] = entry = record(workload, measured, plan, made)
    print(*(plain(rows) for rows in rows_of(entry)), sep="\n\n")
    print(f"    {time.monotonic() - began:.0f} s\n", flush=True)
    return len(measured.faults)


def _command(options: argparse.Namespace) -> str:
    """Return the command as a reader would type it, without the paths of this machine."""
    if options.quick or options.only or options.peers is not None or options.rounds or options.seconds:
        parts = [
            "--quick" if options.quick else "",
            f"--only {' '.join(options.only)}" if options.only else "",
            f"--peers {' '.join(options.peers)}".strip() if options.peers is not None else "",
            f"--rounds {options.rounds}" if options.rounds else "",
            f"--seconds {options.seconds}" if options.seconds else "",
        ]
        return " ".join(["python -m bench", *filter(None, parts)])
    return "make bench"


def _prepare() -> None:
    """Keep this process and the load generator on their core, allow a thousand connections, and end servers on SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.sched_setaffinity(0, {int(LOAD_CORE)})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 65_536), hard), hard))


if __name__ == "__main__":
    _prepare()
    sys.exit(main())
