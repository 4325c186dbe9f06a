"""Old and new code side by side: one workload, each of several checkouts or environments, in alternating slices.

    python -m bench.contest ../old . [--workload echo-json] [--connections 32] [--rounds 5] [--seconds 2]

A place is a directory with `src/limpet` (a checkout), or the file of an interpreter whose environment has limpet. The
tools are those of this checkout's `bench/servers`. The ratio is that of the last place beside the first one.
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from bench import loads
from bench.contestants import LIMIT, LIMPET, MODERN, Contestant
from bench.results import median, smallest
from bench.results import ratio as ratio_of
from bench.runner import Plan, Turns
from bench.running import Running, running
from bench.surroundings import Around
from bench.workloads import WORKLOADS, Point

__all__ = [
    "LIMIT",
    "LIMPET",
    "MODERN",
    "Contestant",
    "Running",
    "Slice",
    "contest",
    "cpu_ratio",
    "ratio",
    "running",
]


class Slice(NamedTuple):
    """One server under load for a moment."""

    per_second: float
    cpu_us: float
    p50_us: float
    p99_us: float


def contest(
    contestants: list[Contestant], *, connections: int, rounds: int, seconds: int, warm_up: int = 1
) -> dict[str, list[Slice]]:
    """Return the slices of each, measured A, B, A, B, …; the first `warm_up` rounds are not counted."""
    slices: dict[str, list[Slice]] = {contestant.name: [] for contestant in contestants}
    with running(contestants) as servers:
        for number in range(warm_up + rounds):
            for server in servers:
                measured = loads.echo(server, seconds=seconds, connections=connections)
                if number >= warm_up:
                    slices[server.name].append(Slice(**measured))
    return slices


def ratio(slices: dict[str, list[Slice]], name: str, reference: str) -> float:
    """Return the median over rounds of requests per second beside the reference's of the same round."""
    return ratio_of({key: [one._asdict() for one in some] for key, some in slices.items()}, name, reference)


def cpu_ratio(slices: dict[str, list[Slice]], name: str, reference: str) -> float:
    """Return the reference's processor time per request as a part of ours: what noise disturbs least."""
    return min(s.cpu_us for s in slices[reference]) / min(s.cpu_us for s in slices[name])


def at(place: str, contestant: Contestant, name: str) -> Contestant:
    """Return a contestant with the code of a checkout, or of an interpreter's environment."""
    path = Path(place).resolve()
    if path.is_file():
        return contestant._replace(name=name, command=[str(path), *contestant.command[1:]])
    if not (path / "src" / "limpet").is_dir():
        sys.exit(f"{place}: neither a checkout with src/limpet nor an interpreter")
    return contestant._replace(name=name, env={**contestant.env, "PYTHONPATH": str(path / "src")})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.contest",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("places", nargs="+", help="checkouts or interpreters")
    parser.add_argument(
        "--workload", choices=WORKLOADS, default="echo-json", metavar="NAME", help=", ".join(WORKLOADS)
    )
    parser.add_argument(
        "--of", help="the contestant of the workload (default: limpet, or the first): redis, remote, …"
    )
    parser.add_argument(
        "--connections", type=int, help="one point with this number instead of the workload's points"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="length of one slice")
    options = parser.parse_args()
    workload = WORKLOADS[options.workload]
    if options.connections:
        workload = workload._replace(
            points=(Point(f"{options.connections} connections", {"connections": options.connections}),)
        )
    names = [
        f"limpet {chr(97 + number)} {Path(place).resolve().name}"
        for number, place in enumerate(options.places)
    ]
    entry = workload.entries[
        options.of or ("limpet" if "limpet" in workload.entries else next(iter(workload.entries)))
    ]
    plan = Plan(rounds=options.rounds, seconds=options.seconds)
    with Around() as around:
        contestants = [
            at(place, entry(around), name) for place, name in zip(options.places, names, strict=True)
        ]
        measured = Turns(workload, plan, lambda line: print(line, flush=True)).run(contestants)
    key = {"rate": "cpu_us", "memory": "bytes", "time": "cpu_ms"}[workload.kind]
    for point, table in measured.points:
        for name, rounds in table.items():
            figures = "  ".join(
                f"{one} {smallest(rounds, one):,.1f} (median {median(rounds, one):,.1f})" for one in rounds[0]
            )
            print(f"  {point.label}  {name}: {figures}")
        if len(table) > 1:
            part = smallest(table[names[-1]], key) / smallest(table[names[0]], key)
            print(f"  {point.label}  {key} of {names[-1]} / {names[0]}: {part:.3f}, by the smallest of each")


if __name__ == "__main__":
    main()
