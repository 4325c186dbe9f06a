"""A rolling upgrade under load, and a step back: replicas of two releases side by side on one Redis lose nothing.

The replicas of the old release are replaced one after another by those of the new one, then one of them by one of the
old release again. Clients call, count, ask, are cut and resume all the while, wherever the balancer sends them.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.chaos.fleet import Fleet, Slot, fleet
from tests.chaos.history import Opening
from tests.chaos.judge import Judge
from tests.chaos.notes import Call, Notes, Plan
from tests.chaos.players import OPENING_BYTES, Player, Trick
from tests.chaos.replica import TOKEN
from tests.chaos.test_replicas import ASKING
from tests.chaos.trial import history_of, until_closed
from tests.http.client import sessionless
from tests.support import until

PLAN: Final = Plan(
    seed=1,
    sessions=6,
    requests=0,
    events=6,
    interval=0.1,
    cuts=0,
    stop_seconds=0.0,
    duplicates=0.0,
    leavers=0,
    principals=4,
    # No replica dies, and none is stopped before its calls have ended: a loaded machine may be slow.
    lease=30.0,
    drain=60.0,
    grace=12.0,
    patience=30.0,
    fault_seconds=0.0,
)
KINDS: Final = ("ticks", "ticks", "ticks", "fanout", "bump", "bump", "quick")
CUT: Final = 0.5
"""The share of calls whose first connection is cut."""
FEW: Final = 3
"""Calls begun at every replica before the next one is replaced."""


class Traveller(Player):
    """A client that calls until the upgrade is over."""

    async def travel(self, over: asyncio.Event) -> None:
        await self.open()
        await self.calls_of(self._kinds(over))

    def _kinds(self, over: asyncio.Event) -> Iterator[str]:
        while not over.is_set():
            if self.random.random() < CUT and not self.cuts:
                self.cuts.append(Trick("answer", self.random.randrange(OPENING_BYTES)))
            yield self.random.choice(KINDS)


async def replace(slot: Slot, code: Path) -> None:
    """Let a replica drain and end, and start one of this code in its place."""
    assert await slot.terminate() == 0
    slot.code = code
    slot.start()
    await slot.ready()


async def side_by_side(running: Fleet) -> None:
    """Return when every replica has begun some calls from now on."""
    since = time.time()
    names = {slot.lives[-1].name for slot in running.slots}

    def begun() -> Counter[str]:
        entries = running.journal()
        return Counter(entry.replica for entry in entries if entry.what == "start" and entry.at > since)

    await until(lambda: all(begun()[name] >= FEW for name in names), every=0.2, explain=lambda: str(begun()))


async def goes_on(parked: Slot, retried: Slot) -> None:
    """Park a call at one replica; its retry arrives at another, which cannot know the data of the first one's release."""
    params: dict[str, Any] = {"name": "name_of_user", "arguments": {}}
    first = await sessionless(parked.port, "tools/call", params, token=f"{TOKEN}ann", capabilities=ASKING)
    wanted = (await first.answer())["result"]
    responses = {key: {"action": "accept", "content": {"name": "Ada"}} for key in wanted["inputRequests"]}
    retry = {**params, "requestState": wanted["requestState"], "inputResponses": responses}
    second = await sessionless(retried.port, "tools/call", retry, token=f"{TOKEN}ann", capabilities=ASKING)
    answer = await second.answer()
    assert "result" in answer, answer
    assert answer["result"]["structuredContent"]["result"] == f"Ada told {parked.pid}"


async def roll(running: Fleet, old: Path, new: Path) -> None:
    """Replace one after another; then go back with one."""
    first, second, *others = running.slots
    await side_by_side(running)
    await replace(first, new)
    await side_by_side(running)
    await goes_on(first, second)
    await goes_on(second, first)
    for slot in (second, *others):
        await replace(slot, new)
    await side_by_side(running)
    await replace(first, old)
    await side_by_side(running)
    await goes_on(first, second)
    await goes_on(second, first)


async def _under_load(running: Fleet, old: Path, new: Path, notes: Notes) -> None:
    """Roll under load, let every call end, end the sessions."""
    travellers = [Traveller(number, PLAN, notes, running.port) for number in range(PLAN.sessions)]
    over = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for traveller in travellers:
            tasks.create_task(traveller.travel(over))
        await roll(running, old, new)
        over.set()
    await asyncio.gather(*(traveller.delete() for traveller in travellers))
    await until_closed(PLAN, running, notes)


async def upgrade(old: Path, new: Path, *, replicas: int) -> Notes:
    """Roll out a tree of code over another one. Raises `AssertionError` if a call, a count or an invariant of the trials is lost."""
    notes = Notes()
    async with fleet(PLAN.settings(), code=old, replicas=replicas) as running:
        await _under_load(running, old, new, notes)
        opening = Opening(plan=PLAN, versions={}, planned={}, fired={}, weather=[])
        violations = Judge(history_of(running, opening, notes)).judge()
        lives = [[life.name for life in slot.lives] for slot in running.slots]
        starts = [entry for entry in running.journal() if entry.what == "start"]
    assert violations == []
    assert [call.nonce for call in notes.calls if not _ended_well(call)] == []
    assert len(notes.counters) == PLAN.sessions
    bumps = Counter(call.session for call in notes.calls if call.tool == "bump")
    assert notes.counters == dict(bumps)
    # The run was a rolling upgrade: both releases served every session, and streams were cut and resumed meanwhile.
    letters = "abc"[:replicas]
    assert lives == [[f"{one}.1", f"{one}.2", *([f"{one}.3"] if one == "a" else [])] for one in letters]
    of_this = {f"{one}.2" for one in letters}
    for session in notes.sessions:
        assert {entry.replica in of_this for entry in starts if entry.session == session} == {True, False}
    assert notes.counts["cuts"] > 2 * PLAN.sessions
    assert sum(call.resumes > 0 for call in notes.calls) > 2 * PLAN.sessions
    return notes


def _ended_well(call: Call) -> bool:
    return call.answer is not None and call.code is None and not call.answer["result"].get("isError")
