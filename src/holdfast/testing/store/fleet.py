"""Several replicas on one store, each with its own bench, and a decorator for tests that use them."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from holdfast.config import Limits
from holdfast.stores.base import Orphan, Store
from holdfast.testing.clock import VirtualClock
from holdfast.testing.store.bench import Bench, plain_test
from holdfast.testing.store.limits import tight

LEASE = 10.0
DEAD = b'{"error":"outcome unknown"}'


class Fleet:
    """Several replicas over one store, each with a bench of its own."""

    def __init__(self, stores: list[Store], clock: VirtualClock) -> None:
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


class FleetContract:
    """The base of every contract of several replicas: a function that makes the stores."""

    def make_stores(
        self, limits: Limits, clock: VirtualClock, count: int
    ) -> AbstractAsyncContextManager[list[Store]]:
        """Return a context with so many replicas of one fresh, empty store, with names of their own."""
        raise NotImplementedError("say how your stores are made: override make_stores")


C = TypeVar("C", bound=FleetContract)
FleetScenario = Callable[[C, Fleet], Coroutine[Any, Any, None]]


def fleet_scenario(**limits: int) -> Callable[[FleetScenario[C]], Callable[[C], None]]:
    """Run an asynchronous test on a fresh fleet."""

    def decorate(test: FleetScenario[C]) -> Callable[[C], None]:
        async def on_a_fleet(self: C) -> None:
            clock = VirtualClock()
            async with self.make_stores(tight(**limits), clock, 3) as stores:
                await test(self, Fleet(stores, clock))

        return plain_test(test, on_a_fleet)

    return decorate
