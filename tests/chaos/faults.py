"""Faults on a schedule from a seed: which fault, when, and whether it happened."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, NamedTuple

from tests.chaos.fleet import Crew, Fleet, Slot
from tests.chaos.notes import Plan
from tests.support import until

FEWEST_UP: Final = 1
"""Replicas that no fault takes away: a fleet without any has nothing to show."""
LOST_SECONDS: Final = 1.0
"""How much a failover loses."""
DEAF_SECONDS: Final = 0.3
FULL_SECONDS: Final = 1.0


class Fault(NamedTuple):
    """One thing that goes wrong, so many seconds after the load began."""

    after: float
    kind: str


def schedule(plan: Plan) -> list[Fault]:
    """Return a plan's faults in the order of time."""
    chance = Random(f"{plan.seed}/faults")
    faults = []
    for kind, number in plan.faults.items():
        # What concerns all replicas happens in the thick of it.
        first, last = (0.2, 0.8) if FAULTS[kind].is_common else (0.02, 1.0)
        faults += [
            Fault(round(chance.uniform(first, last) * plan.fault_seconds, 2), kind) for _ in range(number)
        ]
    return sorted(faults)


class Weather:
    """Carries a schedule out."""

    def __init__(self, fleet: Fleet, plan: Plan) -> None:
        self.fleet = fleet
        self.plan = plan
        self.random = Random(f"{plan.seed}/weather")
        self._began = time.time()
        self.fired: Counter[str] = Counter()
        self.log: list[str] = []
        self._busy: set[Slot] = set()
        self.common = asyncio.Lock()
        """One at a time of the faults that concern all."""

    async def run(self) -> None:
        """Let everything happen that is planned; returns when all of it is over."""
        async with asyncio.TaskGroup() as tasks:
            for fault in schedule(self.plan):
                await asyncio.sleep(max(0.0, self._began + fault.after - time.time()))
                tasks.create_task(self._one(fault.kind))

    async def _one(self, kind: str) -> None:
        fault = FAULTS[kind]
        if fault.is_common:
            async with self.common:
                await fault.happen(self)
        else:
            await fault.happen(self)
        self.fired[kind] += 1

    async def victim(self) -> Slot:
        """Return a replica that works, while another one does too; it is free again after `release`."""

        def up() -> list[Slot]:
            return [slot for slot in self.fleet.slots if slot.is_up and slot not in self._busy]

        await until(lambda: len(up()) > FEWEST_UP, every=0.05)
        slot = self.random.choice(up())
        self._busy.add(slot)
        return slot

    def release(self, slot: Slot) -> None:
        """Let other faults have it."""
        self._busy.discard(slot)

    def say(self, what: str) -> None:
        """Write down what happens now."""
        self.log.append(f"{time.time() - self._began:7.2f} {what}")


async def _again(slot: Slot) -> None:
    slot.start()
    await slot.ready()


async def kill(weather: Weather) -> None:
    """SIGKILL to a replica, and another process in its place."""
    slot = await weather.victim()
    weather.say(f"SIGKILL {slot.lives[-1].name}")
    slot.kill()
    await asyncio.sleep(weather.random.uniform(0.1, 0.5))
    await _again(slot)
    weather.release(slot)


async def stop(weather: Weather) -> None:
    """SIGSTOP to a replica for longer than its lease."""
    slot = await weather.victim()
    weather.say(f"SIGSTOP {slot.lives[-1].name}")
    slot.stop()
    try:
        await asyncio.sleep(weather.plan.stop_seconds)
    finally:
        slot.go_on()
        weather.release(slot)


async def term(weather: Weather) -> None:
    """SIGTERM to a replica under load: it drains; another process in its place."""
    slot = await weather.victim()
    weather.say(f"SIGTERM {slot.lives[-1].name}")
    await slot.terminate()
    await _again(slot)
    weather.release(slot)


async def roll(weather: Weather) -> None:
    """A rolling restart of all replicas: SIGHUP with workers, SIGTERM one after another without."""
    weather.say("rolling restart")
    if isinstance(weather.fleet, Crew):
        await until(lambda: all(slot.is_up for slot in weather.fleet.slots), every=0.05)
        await weather.fleet.replace_all()
        return
    for slot in weather.fleet.slots:
        await until(lambda slot=slot: slot.is_up and slot not in weather._busy, every=0.05)
        weather._busy.add(slot)
        await slot.terminate()
        await _again(slot)
        weather.release(slot)


async def hup(weather: Weather) -> None:
    """SIGHUP to a single process, which must go on."""
    slot = await weather.victim()
    weather.say(f"SIGHUP {slot.lives[-1].name}")
    slot.tell(signal.SIGHUP)
    await asyncio.sleep(0.5)
    assert slot.popen is None or slot.popen.poll() is None, "a replica ended for SIGHUP"
    weather.release(slot)


async def clock(weather: Weather) -> None:
    """The clock of a replica steps five minutes forward, or back again."""
    slot = await weather.victim()
    weather.say(f"clock step at {slot.lives[-1].name}")
    slot.tell(signal.SIGUSR1)
    weather.release(slot)


async def part(weather: Weather) -> None:
    """One replica has no way to the database, for longer than its lease."""
    slot = await weather.victim()
    weather.say(f"{slot.lives[-1].name} parted from the database")
    await weather.fleet.part(slot, weather.plan.stop_seconds)
    weather.release(slot)


async def lose(weather: Weather) -> None:
    """The commands of one replica are applied, and their replies are lost."""
    slot = await weather.victim()
    weather.say(f"replies to {slot.lives[-1].name} lost")
    await weather.fleet.lose_replies(slot, DEAF_SECONDS)
    weather.release(slot)


async def restart(weather: Weather) -> None:
    """The database is killed and comes back; with a standby, the standby takes over."""
    weather.say(f"database killed, back in {weather.plan.away:g} s")
    await weather.fleet.restart_database(weather.plan.away)


async def pause(weather: Weather) -> None:
    """The database stands still."""
    weather.say(f"database paused for {weather.plan.away:g} s")
    await weather.fleet.pause_database(weather.plan.away)


async def failover(weather: Weather) -> None:
    """The database is lost; its standby takes over without the writes of the last second."""
    weather.say("failover that loses a second")
    await weather.fleet.fail_over(LOST_SECONDS)


async def full(weather: Weather) -> None:
    """The disk, or the memory of the database, is full for a while."""
    weather.say("database full")
    await weather.fleet.fill(FULL_SECONDS)


async def behind(weather: Weather) -> None:
    """A process of the server behind is killed."""
    weather.say(f"SIGKILL {await weather.fleet.kill_behind(weather.random)}")


class Kind(NamedTuple):
    """A kind of fault."""

    happen: Callable[[Weather], Awaitable[None]]
    is_common: bool = False
    """It concerns all replicas."""
    needs_line: bool = False
    """Replicas reach their database through a process that can fail."""


FAULTS: Final[dict[str, Kind]] = {
    "kill": Kind(kill),
    "stop": Kind(stop),
    "term": Kind(term),
    "roll": Kind(roll, is_common=True),
    "hup": Kind(hup),
    "clock": Kind(clock),
    "part": Kind(part, needs_line=True),
    "lose": Kind(lose, needs_line=True),
    "restart": Kind(restart, is_common=True),
    "pause": Kind(pause, is_common=True),
    "failover": Kind(failover, is_common=True, needs_line=True),
    "full": Kind(full, is_common=True),
    "behind": Kind(behind, is_common=True),
}
