"""The simulated store keeps the contract that real stores keep: else the simulation would prove nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.config import Limits
from holdfast.stores.base import Store
from holdfast.testing import SharedContract, StoreContract, VirtualClock
from tests.simulation.cluster import Cluster


class TestOneReplica(StoreContract):
    @asynccontextmanager
    async def make_store(self, limits: Limits, clock: VirtualClock) -> AsyncIterator[Store]:
        yield Cluster(limits, clock).connect("only").store


class TestSeveralReplicas(SharedContract):
    @asynccontextmanager
    async def make_stores(
        self, limits: Limits, clock: VirtualClock, count: int
    ) -> AsyncIterator[list[Store]]:
        cluster = Cluster(limits, clock)
        yield [cluster.connect(f"r{number}").store for number in range(count)]
