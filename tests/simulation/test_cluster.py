"""The simulated store keeps the contract that real stores keep: else the simulation would prove nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.config import Limits
from holdfast.stores.base import Store
from holdfast.testing import SharedContract, StoreContract, VirtualClock
from holdfast.testing.simulation_store import Cluster


class TestOneSeat(StoreContract):
    @asynccontextmanager
    async def make_store(self, limits: Limits, clock: VirtualClock) -> AsyncIterator[Store]:
        yield Cluster(limits, clock).seat("only").store


class TestSeveralSeats(SharedContract):
    @asynccontextmanager
    async def make_stores(
        self, limits: Limits, clock: VirtualClock, count: int
    ) -> AsyncIterator[list[Store]]:
        cluster = Cluster(limits, clock)
        yield [cluster.seat(f"r{number}").store for number in range(count)]
