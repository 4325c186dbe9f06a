"""The runner: the contestants of a workload take turns, point by point and round by round.

These machines are noisy: figures of different hours say little, ratios of neighbouring slices say much. So a round goes
A, B, C, and the next one A, B, C again; the contestants that are not measured at the moment are idle.
"""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from bench.connection import WrongAnswer
from bench.contestants import OURS, Contestant
from bench.loads import Figures, first_call
from bench.running import Running
from bench.workloads import Point, Workload

FAULTS = (WrongAnswer, RuntimeError, OSError, EOFError)
"""What can be wrong with one contestant: it gets no figures then, the others continue, and the run as a whole has failed."""
Table = dict[str, list[Figures]]
"""The figures of one point: for each contestant a list with one entry for each round."""


class Plan(NamedTuple):
    """How long and how often."""

    quick: bool = False
    rounds: int | None = None
    """Instead of the workload's own number."""
    seconds: int | None = None
    until: float = float("inf")
    """By the monotonic clock: after this moment each point gets one round only."""

    def rounds_of(self, workload: Workload, name: str = "") -> int:
        """Return the number of rounds of a workload, or of a contestant: one for a peer, unless a peer counts as 1.

        Further rounds show differences of a few percent. Peers differ from us by factors.
        """
        own = self.rounds or (1 if self.quick else workload.rounds)
        return own if not name or _is_ours(name) or not _is_ours(workload.reference) else 1

    def seconds_of(self, workload: Workload) -> int:
        """Return the length of one slice."""
        return self.seconds or (1 if self.quick else workload.seconds)

    def points_of(self, workload: Workload) -> list[Point]:
        """Return the points, with the options of this run."""
        points = (point.in_run(quick=self.quick) for point in workload.points)
        return [point for point in points if point is not None]

    def estimate(self, workload: Workload, names: Collection[str]) -> float:
        """Return about how many seconds a workload takes with these contestants."""
        turns = len(self.points_of(workload)) * sum(self.rounds_of(workload, name) for name in names)
        return turns * (1 if workload.kind == "time" else self.seconds_of(workload) + 0.2) + 2 * len(names)


class Measured(NamedTuple):
    """One workload after its run."""

    points: list[tuple[Point, Table]]
    faults: dict[str, str]
    """By contestant."""


def chosen(workload: Workload, peers: Collection[str] | None) -> list[str]:
    """Return the contestants of a workload: our own, and those of the named peers (None: all)."""
    return [
        name
        for name in workload.entries
        if peers is None or _is_ours(name) or any(peer in name for peer in peers)
    ]


def _is_ours(name: str) -> bool:
    return name in OURS or name.partition(" ")[0] in {"limpet", "remote", "process", "python"}


class Turns:
    """One workload on its way: who takes part, what was measured, and who had a fault."""

    def __init__(self, workload: Workload, plan: Plan, say: Callable[[str], None]) -> None:
        self._workload, self._plan, self._say = workload, plan, say
        self.faults: dict[str, str] = {}

    def run(self, contestants: list[Contestant]) -> Measured:
        """Let the contestants take turns at every point."""
        points = []
        with self._subjects(contestants) as subjects:
            if not self._workload.starts:
                self._warm_up(subjects)
            for point in self._plan.points_of(self._workload):
                points.append((point, self._point(point, subjects)))
                self._say(one_line(self._workload, *points[-1]))
        return Measured(points, self.faults)

    @contextmanager
    def _subjects(self, contestants: list[Contestant]) -> Iterator[list[Contestant | Running]]:
        """Yield what the load is given: started servers, or contestants that the load starts itself."""
        with ExitStack() as stack:
            subjects: list[Contestant | Running] = []
            for contestant in contestants:
                if self._workload.starts:
                    subjects.append(contestant)
                    continue
                try:
                    server = stack.enter_context(Running(contestant))
                    first_call(server)
                    subjects.append(server)
                except FAULTS as fault:
                    self._fault(contestant.name, fault)
            yield subjects

    def _warm_up(self, subjects: list[Contestant | Running]) -> None:
        first = self._plan.points_of(self._workload)[0]
        for subject in subjects:
            self._one({**first.options, "seconds": 1}, subject)

    def _point(self, point: Point, subjects: list[Contestant | Running]) -> Table:
        table: Table = {subject.name: [] for subject in subjects}
        given = dict(point.options)
        if not self._workload.starts:
            given["seconds"] = self._plan.seconds_of(self._workload)
        for number in range(self._plan.rounds_of(self._workload)):
            if number and time.monotonic() > self._plan.until:
                self._say("    the time of this run is over: one round only")
                break
            for subject in subjects:
                if number >= self._plan.rounds_of(self._workload, subject.name):
                    continue
                found = self._one(given, subject)
                if found is not None:
                    table[subject.name].append(found)
        return {name: rounds for name, rounds in table.items() if rounds and name not in self.faults}

    def _one(self, given: dict[str, int], subject: Contestant | Running) -> Figures | None:
        if subject.name in self.faults:
            return None
        try:
            return self._workload.load(subject, **given)
        except FAULTS as fault:
            self._fault(subject.name, fault)
            return None

    def _fault(self, name: str, fault: BaseException) -> None:
        self.faults[name] = f"{type(fault).__name__}: {fault}"[:500]
        self._say(f"    FAILED {name}: {self.faults[name]}")


def one_line(workload: Workload, point: Point, table: Table) -> str:
    """Return the progress of a run: the best figure of each contestant."""
    key, unit, scale = {
        "rate": ("cpu_us", "µs CPU", 1),
        "memory": ("bytes", "KiB", 1024),
        "time": ("ms", "ms", 1),
    }[workload.kind]
    shown = (
        f"{name} {min(each[key] for each in rounds) / scale:,.{1 if scale > 1 else 0}f} {unit}"
        for name, rounds in table.items()
    )
    return f"    {point.label}: " + ", ".join(shown)
