"""`python -m tests.chaos.soak [--hours 0.5] [--store redis] [--rate 60]`: look whether anything grows while clients come and go.

Three replicas behind a balancer. Clients of both eras open sessions, call, are cut, resume, and delete their session or leave without a word, wave after
wave. Nothing is killed: a process that starts again would hide a leak. Every ten seconds each process is measured from outside (`/proc`), by its journal
(tasks of its loop), and in the database. When the load is over, every session has been closed, and the answers that are kept for repeats have expired,
descriptors, threads, tasks and keys must be back where they were after the first minutes. The report and a chart are in `docs/proof`.
"""

import argparse
import asyncio
import math
import os
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from statistics import linear_regression, median
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bench.charts import Series, panels
from limpet.core.records import KEPT_SECONDS
from tests.chaos.databases import KINDS
from tests.chaos.fleet import Fleet, Slot, fleet
from tests.chaos.history import History, Opening
from tests.chaos.judge import Judge
from tests.chaos.modern import Modern
from tests.chaos.notes import Notes, Plan
from tests.chaos.players import Player
from tests.chaos.record import REPORTS, commit
from tests.chaos.replica import Entry

EVERY: Final = 10.0
"""Seconds between two measurements."""
SETTLED: Final = 0.25
"""The share of the run after which a process has all its modules, caches and pools."""
SLOPE: Final = 8.0
"""MB in an hour: more is a leak."""
LEAST_HOURS: Final = 0.25
"""A shorter run says nothing about memory: a process still fills its caches."""
WARM_SECONDS: Final = 120.0
"""The first calls open the connections that stay."""
MORE: Final = {"descriptors": 8, "threads": 2, "tasks": 8}
"""What a process may have more at the end than before the load: connections to the database that it keeps."""
TAIL: Final = 16_384
"""Bytes of a journal: its last seconds. A sweep looks at 50 sessions at once, each in a task, so the fewest of several moments count."""
REST: Final = KEPT_SECONDS + 60
"""Seconds after the load: the last answers that were kept for idempotency keys expire, and their hidden sessions end."""
WAVE: Final = Plan(
    seed=1, sessions=10, requests=6, events=6, interval=0.15, cuts=12, faults={}, grace=8.0, patience=60.0, moderns=3, modern_calls=8, leavers=0, lease=15.0, fault_seconds=0.0
)  # fmt: skip
LEAVE: Final = 5
"""Of so many clients one leaves without a word."""


class Sample(Struct, frozen=True, kw_only=True):
    """What one moment looks like: one value for each process, and one for the database."""

    after: float
    megabytes: list[float]
    descriptors: list[int]
    threads: list[int]
    tasks: list[int]
    keys: int


class SoakReport(Struct, frozen=True, kw_only=True):
    """The result."""

    date: str
    commit: str
    command: str
    hours: float
    sessions: int
    calls: int
    events: int
    cuts: int
    slope: list[float]
    """MB in an hour, of each process, after the time in which it settles."""
    before: Sample
    after: Sample
    faults: list[str]
    samples: list[Sample]


class Load:
    """Clients that come and go."""

    def __init__(self, running: Fleet, rate: float) -> None:
        self._running = running
        self._rate = rate
        self._waves: set[asyncio.Task[None]] = set()
        self._numbers = count(1)
        self.sessions = self.calls = self.events = self.cuts = 0
        self.faults: list[str] = []

    async def run(self, seconds: float) -> None:
        """Begin waves until the time is over, and wait until the last of them has ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            wave = asyncio.create_task(self._wave(replace(WAVE, seed=next(self._numbers))))
            self._waves.add(wave)
            wave.add_done_callback(self._waves.discard)
            await asyncio.sleep(60 * WAVE.sessions / self._rate)
        await asyncio.gather(*self._waves)

    async def _wave(self, plan: Plan) -> None:
        notes = Notes()
        players = [Player(number, plan, notes, self._running.port) for number in range(plan.sessions)]
        moderns = [Modern(number, plan, notes, self._running.port) for number in range(plan.moderns)]
        await asyncio.gather(*(player.play() for player in players), *(modern.play() for modern in moderns))
        await asyncio.gather(*(player.delete() for player in players if player.number % LEAVE))
        opening = Opening(plan=plan, versions={}, planned={}, fired={}, weather=[])
        judge = Judge(History(opening=opening, notes=notes))
        self.faults += [f"{one.law} {one.what}" for one in judge.received()]
        self.sessions += len(players)
        self.calls += len(notes.calls)
        self.events += sum(len(call.received) for call in notes.calls)
        self.cuts += notes.counts.get("cuts", 0)


def measured(running: Fleet, began: float) -> Sample:
    """Measure all processes, and the database."""
    slots = running.slots
    return Sample(
        after=round(time.time() - began, 1),
        megabytes=[round(_pages(slot.pid) * os.sysconf("SC_PAGE_SIZE") / 1e6, 2) for slot in slots],
        descriptors=[len(os.listdir(f"/proc/{slot.pid}/fd")) for slot in slots],  # noqa: PTH208 - names are enough
        threads=[len(os.listdir(f"/proc/{slot.pid}/task")) for slot in slots],  # noqa: PTH208 - names are enough
        tasks=[_tasks(running, slot) for slot in slots],
        keys=running.database.size(),
    )


def _pages(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1])


def _tasks(running: Fleet, slot: Slot) -> int:
    with (running.home / f"{slot.lives[-1].name}.journal").open("rb") as journal:
        journal.seek(-min(TAIL, journal.seek(0, os.SEEK_END)), os.SEEK_END)
        lines = journal.read().splitlines()[1:-1]
    entries = [msgspec.json.decode(line, type=Entry) for line in lines]
    return min((round(entry.value) for entry in entries if entry.what == "tasks"), default=0)


def slopes(samples: Sequence[Sample]) -> list[float]:
    """Return by how many MB an hour each process grows, after the time in which it settles."""
    settled = samples[math.floor(len(samples) * SETTLED) :]
    hours = [sample.after / 3600 for sample in settled]
    processes = zip(*(sample.megabytes for sample in settled), strict=True)
    return [round(linear_regression(hours, values).slope, 2) for values in processes]


def grown(before: Sample, after: Sample) -> list[str]:
    """Return the things that are there after the load and were not before it."""
    found = []
    for name, more in MORE.items():
        pairs = zip(getattr(before, name), getattr(after, name), strict=True)
        found += [
            f"{then} {name} after the load, {first} before it" for first, then in pairs if then > first + more
        ]
    if after.keys > before.keys:
        found.append(f"{after.keys} keys after the load, {before.keys} before it")
    return found


async def soak(hours: float, store: str, rate: float) -> SoakReport:
    """Hold one."""
    began, samples = time.time(), list[Sample]()
    async with fleet(WAVE.settings(), store=store) as running:
        load = Load(running, rate)
        await load.run(WARM_SECONDS)
        await asyncio.sleep(2 * WAVE.idle)
        before = measured(running, began)
        working = asyncio.create_task(load.run(hours * 3600))
        while not working.done():
            await asyncio.wait({working}, timeout=EVERY)
            samples.append(measured(running, began))
        await working
        ended = time.time() - began
        resting = asyncio.create_task(asyncio.sleep(REST))
        while not resting.done():
            await asyncio.wait({resting}, timeout=EVERY)
            samples.append(measured(running, began))
        after = samples[-1]
    slope = slopes([sample for sample in samples if sample.after < ended])
    leaks = [f"memory grows by {one} MB in an hour" for one in slope if one > SLOPE and hours >= LEAST_HOURS]
    faults = [*load.faults, *grown(before, after), *leaks]
    return SoakReport(
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        commit=commit(),
        command=f"python -m tests.chaos.soak --hours {hours:g} --store {store} --rate {rate:g}",
        hours=hours,
        sessions=load.sessions,
        calls=load.calls,
        events=load.events,
        cuts=load.cuts,
        slope=slope,
        before=before,
        after=after,
        faults=faults,
        samples=samples,
    )


def chart(report: SoakReport) -> str:
    """Return the report as a picture."""

    def of(name: str) -> Series:
        columns = zip(*(getattr(sample, name) for sample in report.samples), strict=True)
        hours = [sample.after / 60 for sample in report.samples]
        return {
            f"replica {letter}": list(zip(hours, column, strict=True))
            for letter, column in zip("abc", columns, strict=True)
        }

    keys = {"database": [(sample.after / 60, float(sample.keys)) for sample in report.samples]}
    titles = {
        "memory, MB": of("megabytes"),
        "tasks": of("tasks"),
        "descriptors": of("descriptors"),
        "threads": of("threads"),
        "keys or rows": keys,
    }
    subtitle = f"{report.sessions:,} sessions, {report.calls:,} calls in {report.hours:g} hours; minutes from left to right"
    return panels("Three replicas while clients come and go", subtitle, titles)


def show(report: SoakReport) -> str:
    """Return the report as people read it."""
    typical = {
        name: [
            round(median(column))
            for column in zip(*(getattr(one, name) for one in report.samples), strict=True)
        ]
        for name in MORE
    }
    lines = [
        f"{report.sessions} sessions, {report.calls} calls, {report.events} messages, {report.cuts} cuts in {report.hours:g} hours",
        f"memory grows by {report.slope} MB in an hour; median under load: {typical}",
        f"before: {report.before}",
        f"after: {report.after}",
        *report.faults,
    ]
    return "\n".join(lines)


def main() -> int:
    """Hold the soak of the command line; 0 only if nothing grew and every call was right."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak")
    parser.add_argument("--hours", type=float, default=0.5)
    parser.add_argument("--store", choices=sorted(KINDS), default="redis")
    parser.add_argument("--rate", type=float, default=60.0, help="sessions that are opened in a minute")
    arguments = parser.parse_args()
    report = asyncio.run(soak(arguments.hours, arguments.store, arguments.rate))
    REPORTS.mkdir(exist_ok=True)
    (REPORTS / "soak.json").write_bytes(msgspec.json.encode(report) + b"\n")
    (REPORTS / "soak.svg").write_text(chart(report))
    print(show(report))
    return int(bool(report.faults))


if __name__ == "__main__":
    sys.exit(main())
