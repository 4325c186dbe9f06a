"""`python -m tests.chaos [--full] [--seed N] [--break LAW] [--store KIND]`: a trial with its report; exit 0 only if valid and clean."""

import argparse
import asyncio
import sys
from pathlib import Path

from msgspec.structs import replace

from tests.chaos.backs import BACKS
from tests.chaos.breakages import BREAKAGES
from tests.chaos.databases import KINDS
from tests.chaos.faults import schedule
from tests.chaos.trial import FULL, SMALL, show, trial


def main() -> int:
    """Run the trial of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument(
        "--full", action="store_true", help="the whole plan instead of the one inside the tests"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--break", dest="broken", choices=sorted(BREAKAGES), default="")
    parser.add_argument("--store", choices=sorted(KINDS), default="redis")
    parser.add_argument("--back", choices=sorted(BACKS), default="native")
    parser.add_argument(
        "--workers", type=int, default=0, help="one `limpet serve --workers` instead of replicas"
    )
    parser.add_argument(
        "--fault", action="append", default=[], metavar="KIND=NUMBER", help="instead of those of the plan"
    )
    parser.add_argument("--sessions", type=int, default=0, help="instead of those of the plan")
    parser.add_argument("--moderns", type=int, default=0, help="clients of 2026-07-28, with 20 calls each")
    parser.add_argument("--history", type=Path, help="write the history to this file")
    parser.add_argument("--keep", type=Path, help="copy logs and journals to this directory")
    arguments = parser.parse_args()
    plan = replace(
        FULL if arguments.full else SMALL,
        seed=arguments.seed,
        store=arguments.store,
        back=arguments.back,
        workers=arguments.workers,
        moderns=arguments.moderns,
        modern_calls=20,
    )
    if arguments.sessions:
        cuts = plan.cuts * arguments.sessions // plan.sessions
        plan = replace(plan, sessions=arguments.sessions, cuts=cuts)
    if arguments.fault:
        pairs = [one.partition("=") for one in arguments.fault]
        plan = replace(plan, faults={kind: int(number) for kind, _, number in pairs})
    print(f"seed {plan.seed}: {plan}")
    print("faults:", ", ".join(f"{fault.kind} at {fault.after:g}" for fault in schedule(plan)), flush=True)
    report = asyncio.run(trial(plan, broken=arguments.broken, keep=arguments.keep, history=arguments.history))
    print("\n".join(report.weather))
    print(show(report))
    return 0 if report.is_valid and not report.violations else 1


if __name__ == "__main__":
    sys.exit(main())
