"""Faults on a schedule from a seed: which fault, when, and whether it happened."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, NamedTuple

from tests.chaos.fleet import Fleet, Slot
from tests.chaos.notes import Plan
from tests.support import until

FEWEST_UP: Final = 1
"""Replicas that no fault takes away: a fleet without any has nothing to show."""


class Fault(NamedTuple):
    """One thing that goes wrong, so many seconds after the load began."""

    after: float
    kind: str


def schedule(plan: Plan) -> list[Fault]:
    """Return a plan's faults in the order of time."""
    chance = Random(f"{plan.seed}/faults")
    kinds = ["kill"] * plan.kills + ["stop"] * plan.stops
    faults = [Fault(round(chance.uniform(0.02, 1) * plan.fault_seconds, 2), kind) for kind in kinds]
    # In the thick of it.
    restarts = range(plan.redis_restarts)
    faults += [Fault(round(chance.uniform(0.2, 0.6) * plan.fault_seconds, 2), "redis") for _ in restarts]
    return sorted(faults)


class Weather:
    """Carries a schedule out."""

    def __init__(self, fleet: Fleet, plan: Plan) -> None:
        self._fleet = fleet
        self._plan = plan
        self._random = Random(f"{plan.seed}/weather")
        self._began = time.time()
        self.fired: Counter[str] = Counter()
        self.log: list[str] = []

    async def run(self) -> None:
        """Let everything happen that is planned; returns when all of it is over."""
        faults: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": self._kill,
            "stop": self._stop,
            "redis": self._redis,
        }
        async with asyncio.TaskGroup() as tasks:
            for fault in schedule(self._plan):
                await asyncio.sleep(max(0.0, self._began + fault.after - time.time()))
                tasks.create_task(self._one(fault.kind, faults[fault.kind]))

    async def _one(self, kind: str, carry_out: Callable[[], Awaitable[None]]) -> None:
        await carry_out()
        self.fired[kind] += 1

    async def _victim(self) -> Slot:
        def up() -> list[Slot]:
            return [slot for slot in self._fleet.slots if slot.is_up]

        await until(lambda: len(up()) > FEWEST_UP, every=0.05)
        return self._random.choice(up())

    def _say(self, what: str) -> None:
        self.log.append(f"{time.time() - self._began:7.2f} {what}")

    async def _kill(self) -> None:
        slot = await self._victim()
        name = slot.lives[-1].name
        slot.kill()
        self._say(f"kill -9 {name}")
        await asyncio.sleep(self._random.uniform(0.1, 0.5))
        slot.start()
        await slot.ready()

    async def _stop(self) -> None:
        slot = await self._victim()
        slot.stop()
        self._say(f"SIGSTOP {slot.lives[-1].name}")
        try:
            await asyncio.sleep(self._plan.stop_seconds)
        finally:
            slot.go_on()

    async def _redis(self) -> None:
        self._say(f"database killed, back in {self._plan.redis_away:g} s")
        await self._fleet.restart_database(self._plan.redis_away)
