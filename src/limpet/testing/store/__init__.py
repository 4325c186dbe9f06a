"""The contract of a store as tests: what a backend has to do, and whole sessions over it.

    class               for                                    tests
    ─────────────────   ────────────────────────────────────   ───────────────────────────────────────────────
    StoreContract       every store                            sessions, state, tasks, one replica
    BackendContract     a backend for the rules                commits, logs (`limpet.stores.shared.shelf`)
    SharedContract      a store that several processes share   leases, orphans, wake-ups, one session at three replicas

Subclass them in a test module, say how your stores are made, and pytest runs the tests:

    class TestMyStore(StoreContract, BackendContract, SharedContract):
        @asynccontextmanager
        async def make_stores(self, limits, clock, count):
            with fresh_database() as url:
                yield [MyStore(url, limits, clock, replica=f"replica{number}") for number in range(count)]

Every test gets fresh stores and an event loop of its own. A store must read the time from the clock it is given. For
messages that show the values, put `pytest.register_assert_rewrite("limpet.testing")` into conftest.py.
"""

from limpet.testing.store.bench import Bench
from limpet.testing.store.documents import BellContract, DocumentContract
from limpet.testing.store.fleets import FleetContract
from limpet.testing.store.leases import LeaseContract
from limpet.testing.store.logs import ClosedBellContract, LogContract
from limpet.testing.store.replicas import BetweenReplicasContract, ReplicaContract
from limpet.testing.store.sessions import SessionContract
from limpet.testing.store.state import SharedStateContract, StateContract
from limpet.testing.store.tasks import OrphanTaskContract, TaskContract


class BackendContract(DocumentContract, LogContract):
    """Commits and logs: for a store whose sessions are `limpet.stores.shared.sessions.SharedSessions`."""


class StoreContract(SessionContract, StateContract, TaskContract, ReplicaContract):
    """Every part of a store, at one replica. A store without state or tasks subclasses the other classes."""


class SharedContract(
    FleetContract,
    LeaseContract,
    SharedStateContract,
    OrphanTaskContract,
    BetweenReplicasContract,
    BellContract,
    ClosedBellContract,
):
    """For stores that several processes share."""


__all__ = [
    "BackendContract",
    "Bench",
    "ReplicaContract",
    "SessionContract",
    "SharedContract",
    "StateContract",
    "StoreContract",
    "TaskContract",
]
