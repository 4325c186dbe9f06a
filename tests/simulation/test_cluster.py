"""The simulated store keeps the rules and the contract that real stores keep: else the simulation would prove nothing."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from holdfast.config import Limits
from holdfast.stores.base import Store
from holdfast.testing import StoreContract, VirtualClock
from holdfast.testing.store.leases import LeaseContract
from holdfast.testing.store.replicas import BetweenReplicasContract
from holdfast.testing.store.tasks import OrphanTaskContract
from tests.rules.book import RuleBook, SharedRuleBook
from tests.simulation.cluster import Cluster


class TestCluster(
    RuleBook, SharedRuleBook, StoreContract, LeaseContract, OrphanTaskContract, BetweenReplicasContract
):
    @asynccontextmanager
    async def make_stores(
        self, limits: Limits, clock: VirtualClock, count: int
    ) -> AsyncIterator[Sequence[Store]]:
        cluster = Cluster(limits, clock)
        yield [cluster.connect(f"r{number}").store for number in range(count)]
