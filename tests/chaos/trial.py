"""One trial: a fleet, its clients, the weather, the verdict, a report."""

import asyncio
import contextlib
import platform
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

from msgspec import Struct

import limpet
from tests.chaos.backs import BACKS
from tests.chaos.faults import FAULTS, Weather
from tests.chaos.fleet import Fleet, fleet
from tests.chaos.history import Found, History, Opening, read_history
from tests.chaos.intruder import Intruder, nothing_moves
from tests.chaos.judge import Judge
from tests.chaos.modern import Modern, all_hear
from tests.chaos.notes import Call, Notes, Plan, Received, Violation
from tests.chaos.players import Player
from tests.http.client import Connection, Cut
from tests.programs import program

SMALL: Final = Plan(
    seed=1,
    sessions=40,
    requests=8,
    events=10,
    interval=0.3,
    cuts=150,
    faults={"kill": 4, "stop": 3, "restart": 1},
    fault_seconds=22.0,
    grace=12.0,
    patience=40.0,
)
FULL: Final = Plan(
    seed=1,
    sessions=200,
    requests=20,
    events=10,
    interval=1.2,
    cuts=1_000,
    faults={"kill": 20, "stop": 20, "restart": 1},
    stop_seconds=7.0,
    away=2.0,
    fault_seconds=200.0,
    lease=5.0,
    grace=30.0,
    leavers=20,
    patience=120.0,
)
RECORDED: Final = 15.0
"""Seconds for what is still to be written when every session has been closed."""
_FAILED: Final = re.compile(
    r"^Traceback|^(?!.*log\.left_out).*(?<!call)\.failed[ \"](?!.*error\"?[=:] ?\"(SessionGone|StoreUnavailable): ).*$",
    re.MULTILINE,
)
"""Lines that no log may have. A handler may log that the store or its session is gone. A line that counts others, which were left out, comes after one of them."""


class Report(Struct, frozen=True, kw_only=True):
    """The result of a trial."""

    seed: int
    versions: dict[str, str]
    seconds: float
    planned: dict[str, int]
    fired: dict[str, int]
    counts: dict[str, int]
    statuses: dict[str, int]
    milliseconds: dict[str, float]
    violations: list[Violation]
    excused: dict[str, int] = {}
    """What a fault excused, by the reason: see `Judge.excused`."""
    weather: list[str]
    is_valid: bool
    """Enough of the planned faults happened."""

    @property
    def laws(self) -> set[str]:
        """Return the invariants that were violated."""
        return {violation.law for violation in self.violations}


async def trial(
    plan: Plan, *, broken: str = "", keep: Path | None = None, history: Path | None = None
) -> Report:
    """Run one. Its history is written to a file, and judged from there."""
    notes = Notes()
    began = time.time()
    has_line = any(FAULTS[kind].needs_line for kind, number in plan.faults.items() if number)
    async with fleet(
        plan.settings(),
        broken=broken,
        store=plan.store,
        back=plan.back,
        workers=plan.workers,
        has_line=has_line,
        keep=keep,
    ) as running:
        try:
            weather = await _play(plan, running, notes)
        finally:
            await Connection.cut_all()
        opening = Opening(
            plan=plan,
            versions=versions(),
            planned=_planned(plan),
            fired={**weather.fired, **{name: notes.counts.get(name, 0) for name in ("cuts", "duplicates")}},
            weather=weather.log,
        )
        path = history or running.home / "history.jsonl.gz"
        history_of(running, opening, notes).write(path)
        return judged(read_history(path), seconds=round(time.time() - began, 1))


def history_of(running: Fleet, opening: Opening, notes: Notes) -> History:
    """Return everything that is known of a trial."""
    return History(
        opening=opening,
        notes=notes,
        lives=running.lives(),
        outages=running.outages,
        journal=running.journal(),
        found=[*_in_logs(running, notes), *_in_database(running, notes)],
    )


def judged(history: History, *, seconds: float) -> Report:
    """Return the verdict on a history."""
    judge = Judge(history)
    violations = judge.judge()
    notes, opening = history.notes, history.opening
    counts = {
        "calls": len(notes.calls),
        "requests": sum(n for name, n in notes.statuses.items() if not name.startswith("intruder")),
        "events received": sum(_is_event(call, one) for call in notes.calls for one in call.received),
        "outcome unknown": judge.unknown,
        "starved": sum(entry.what == "starved" for entry in history.journal),
    }
    return Report(
        seed=opening.plan.seed,
        versions=opening.versions,
        seconds=seconds,
        planned=opening.planned,
        fired=opening.fired,
        counts={**counts, **dict(sorted(notes.counts.items()))},
        statuses=dict(sorted(notes.statuses.items())),
        milliseconds={
            **_quantiles("call", [call.ended - call.began for call in notes.calls if call.ended]),
            **_quantiles("loop lag", judge.lags),
            **_quantiles("told of a death", judge.reaped_after),
            "most memory, MB": round(judge.most_memory / 1e6, 1),
        },
        violations=violations,
        excused={reason: n for reason, n in sorted(judge.excused.items()) if n},
        weather=opening.weather,
        is_valid=judge.is_valid,
    )


def _is_event(call: Call, one: Received) -> bool:
    """True for a message that came as a numbered event of a stream, or, in 2026-07-28, as a notification: not for the empty events at the begin."""
    return (
        one.what != "mark" and bool(one.id) if call.era == "2025" else one.what == "other" and bool(one.text)
    )


def _in_logs(running: Fleet, notes: Notes) -> Iterator[Found]:
    """Look for secrets, payloads and failures in the logs of all processes."""
    for name, text in running.logs().items():
        if any(secret in text for secret in notes.secrets):
            yield Found("I11", f"the log of {name} shows a session id or a token", time.time())
        if "nonce-" in text:
            line = next(line for line in text.splitlines() if "nonce-" in line)
            yield Found("I11", f"the log of {name} shows a payload: {line[:200]}", time.time())
        failed = _FAILED.search(text)
        if failed is not None and name != "behind":
            yield Found("I12", f"{name} has failed inside: {text[failed.start() :][:1500]}", time.time())


def _in_database(running: Fleet, notes: Notes) -> Iterator[Found]:
    """Look for data that outlived its session."""
    left = list(running.database.left(notes.sessions))
    notes.counts["keys left"] = len(left)
    for name, fault in left:
        if fault:
            yield Found("I9", f"the key {name} {fault}", time.time())


def _planned(plan: Plan) -> dict[str, int]:
    return {**plan.faults, "cuts": plan.cuts, "duplicates": plan.imitations}


async def _play(plan: Plan, running: Fleet, notes: Notes) -> Weather:
    players = [Player(number, plan, notes, running.port) for number in range(plan.sessions)]
    leavers = [Player(plan.sessions + number, plan, notes, running.port) for number in range(plan.leavers)]
    for player in leavers:
        player.cuts.clear()
        await player.open()
    weather = Weather(running, plan)
    moderns = [Modern(number, plan, notes, running.port) for number in range(plan.moderns)]
    intruding = asyncio.create_task(Intruder(players, notes, plan.seed).run())
    over = asyncio.Event()
    staying = [asyncio.create_task(player.stay(over)) for player in players]
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(weather.run())
        chance = Random(f"{plan.seed}/leavers")
        for player in leavers:
            tasks.create_task(_leave(player, chance.uniform(0, plan.fault_seconds)))
        for play in (*(player.play for player in players), *(modern.play for modern in moderns)):
            tasks.create_task(play())
    intruding.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await intruding
    over.set()
    await asyncio.gather(*staying)
    if moderns and "errand" in BACKS[plan.back].modern:
        await all_hear(running, moderns, notes)
    await nothing_moves(running, players[:3], notes, plan.seed)
    await asyncio.gather(*(player.delete() for player in players))
    await until_closed(plan, running, notes)
    return weather


async def _leave(player: Player, after: float) -> None:
    """Leave then, as soon as a connection holds for one event; until then stay in touch."""
    deadline = time.time() + after
    while time.time() < deadline:
        await asyncio.sleep(min(2.0, max(0.0, deadline - time.time())))
        with contextlib.suppress(Cut, OSError):
            await player.client.tell("notifications/roots/list_changed")
    while True:
        with contextlib.suppress(Exception):
            await player.leave()
            return
        await asyncio.sleep(0.1)


async def until_closed(plan: Plan, running: Fleet, notes: Notes) -> None:
    """Wait until abandoned sessions are removed and their listeners were called; not much longer than promised."""
    deadline = time.time() + plan.idle + plan.lease + 10
    while time.time() < deadline:
        closed = {entry.session for entry in running.journal() if entry.what == "closed"}
        if BACKS[plan.back].knows_clients:
            is_over = set(notes.sessions) <= closed
        else:
            is_over = not any(fault for _, fault in running.database.left(notes.sessions))
        if is_over:
            break
        await asyncio.sleep(0.3)
    # The replica that called the listeners also records it in the store.
    deadline = time.time() + RECORDED
    while time.time() < deadline:
        await asyncio.sleep(1.0)
        if not any(fault for _, fault in running.database.left(notes.sessions)):
            return


def versions() -> dict[str, str]:
    """Return the subject of the trial and its surroundings."""
    redis = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=False).stdout
    balancer = subprocess.run(
        [program("haproxy"), "-v"], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    return {
        "limpet": limpet.__version__,
        "python": platform.python_version(),
        "redis": redis.partition("v=")[2].partition(" ")[0],
        "haproxy": balancer[0].split()[2] if balancer else "",
    }


def _quantiles(name: str, values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    ordered = sorted(values)
    return {
        f"{name} {label}": round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 1)
        for label, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    }


def show(report: Report) -> str:
    """Return a report as people read it."""
    lines = [f"seed {report.seed}, {report.seconds} s, {report.versions}"]
    lines += [
        f"  {kind}: {report.fired.get(kind, 0)} of {number} planned"
        for kind, number in report.planned.items()
    ]
    tables: list[tuple[str, dict[str, Any]]] = [
        ("counts", report.counts),
        ("statuses", report.statuses),
        ("ms", report.milliseconds),
        ("excused", report.excused),
    ]
    for title, table in tables:
        lines.append(f"{title}: " + ", ".join(f"{name} {value}" for name, value in table.items()))
    lines.append(f"violations: {len(report.violations)}")
    lines += [f"  {violation.law} {violation.what}" for violation in report.violations[:50]]
    if not report.is_valid:
        lines.append("INVALID: fewer than 95 % of the planned faults fired")
    return "\n".join(lines)
