"""The simulated store keeps the rules and the contract that real stores keep: else the simulation would prove nothing."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from limpet.config import Limits
from limpet.stores.base import Store
from limpet.testing import StoreContract, VirtualClock
from limpet.testing.store.leases import LeaseContract
from limpet.testing.store.replicas import BetweenReplicasContract
from limpet.testing.store.tasks import OrphanTaskContract
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
