"""The contract of a store as tests: a test for each rule of `holdfast.stores.base`, part by part."""

from holdfast.testing.store.asks import AskContract
from holdfast.testing.store.bench import Bench
from holdfast.testing.store.bounds import BoundContract
from holdfast.testing.store.claims import ClaimContract
from holdfast.testing.store.closing import ClosingContract
from holdfast.testing.store.life import LifeContract
from holdfast.testing.store.overview import OverviewContract
from holdfast.testing.store.replicas import ReplicaContract, SharedContract
from holdfast.testing.store.scopes import ScopeContract
from holdfast.testing.store.sessions import SessionContract
from holdfast.testing.store.settling import SettleContract
from holdfast.testing.store.state import StateContract
from holdfast.testing.store.streams import StreamContract
from holdfast.testing.store.tasks import TaskContract
from holdfast.testing.store.totals import TotalContract
from holdfast.testing.store.turns import TurnContract
from holdfast.testing.store.withdrawn import WithdrawnContract


class RequiredContract(
    SessionContract,
    ClosingContract,
    ClaimContract,
    SettleContract,
    StreamContract,
    TurnContract,
    LifeContract,
    AskContract,
    BoundContract,
    OverviewContract,
):
    """The required part. Subclass it in a test module, say how your store is made, and pytest runs the tests.

        class TestMyStore(RequiredContract):
            @asynccontextmanager
            async def make_store(self, limits, clock):
                yield MyStore(limits, clock)

    Every test gets a fresh store and an event loop of its own. The store must read the time from
    the clock it is given. For messages that show the values, put
    `pytest.register_assert_rewrite("holdfast.testing")` into conftest.py.
    """


class StoreContract(
    RequiredContract,
    StateContract,
    ScopeContract,
    TotalContract,
    TaskContract,
    ReplicaContract,
    WithdrawnContract,
):
    """All parts, for one process. A store that has only some of them subclasses the classes of those parts."""


__all__ = [
    "Bench",
    "ReplicaContract",
    "RequiredContract",
    "ScopeContract",
    "SharedContract",
    "StateContract",
    "StoreContract",
    "TaskContract",
    "TotalContract",
]
