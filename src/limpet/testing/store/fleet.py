"""Several replicas on one store, each with its own bench, and a decorator for tests that use them."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from limpet.stores.base import Orphan, Store
from limpet.testing.clock import VirtualClock
from limpet.testing.store.bench import Bench, Contract, plain_test
from limpet.testing.store.limits import tight

LEASE = 10.0
DEAD = b'{"error":"outcome unknown"}'


class Fleet:
    """Several replicas over one store, each with a bench of its own."""

    def __init__(self, stores: Sequence[Store], clock: VirtualClock) -> None:
        self.clock = clock
        self.benches: list[Bench] = [Bench(store, clock) for store in stores]

    async def lease(self, *numbers: int) -> None:
        """Renew these leases."""
        for number in numbers:
            await self.benches[number].store.renew(LEASE)

    async def orphans_of_dead_replicas(self, number: int = 1) -> list[Orphan]:
        """Let all leases but one end; return the orphans that its replica finds."""
        await self.advance(LEASE * 1.25, number)
        return await self.benches[number].store.orphans()

    async def advance(self, seconds: float, *numbers: int) -> None:
        """Let time pass while these renew as often as a replica should."""
        await self.lease(*numbers)
        for _ in range(round(seconds / LEASE * 4)):
            self.clock.advance(LEASE / 4)
            await self.lease(*numbers)

    async def heard(self, number: int, *wakeup: object) -> None:
        """Wait until a replica has received a wake-up."""
        async with asyncio.timeout(5):
            while wakeup not in self.benches[number].wakeups:  # noqa: ASYNC110 - the list is the bench's
                await asyncio.sleep(0.01)


C = TypeVar("C", bound=Contract)
FleetScenario = Callable[[C, Fleet], Coroutine[Any, Any, None]]


def fleet_scenario(**limits: int) -> Callable[[FleetScenario[C]], Callable[[C], None]]:
    """Run an asynchronous test on three fresh replicas."""

    def decorate(test: FleetScenario[C]) -> Callable[[C], None]:
        async def start(contract: C, stores: Sequence[Store], clock: VirtualClock) -> None:
            await test(contract, Fleet(stores, clock))

        return plain_test(test, start, tight(**limits), 3)

    return decorate
