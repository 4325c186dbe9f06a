"""What finds a mistake of the bank, and how soon."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal

from limpet.config import Limits
from limpet.stores.base import Store
from limpet.stores.memory import MemoryStore
from limpet.testing import VirtualClock
from tests.bugbank.bugs import Bug
from tests.dicts import DictReplica, Shelves
from tests.rules.book import RuleBook, SharedRuleBook
from tests.simulation.scenarios import play

TRIED = 300
"""Seeds after which a bug counts as not found."""


class _Memory(RuleBook):
    @asynccontextmanager
    async def make_stores(
        self, limits: Limits, clock: VirtualClock, count: int
    ) -> AsyncIterator[Sequence[Store]]:
        assert count == 1
        yield [MemoryStore(limits, clock)]


def found_by(bug: Bug) -> Literal["simulation", "test", "two replicas", "rules"]:
    """Return which harness must find a mistake."""
    if bug.scenario:
        return "simulation"
    if bug.test:
        return "test"
    return "two replicas" if bug.scene else "rules"


class _Dicts(SharedRuleBook):
    @asynccontextmanager
    async def make_stores(
        self, limits: Limits, clock: VirtualClock, count: int
    ) -> AsyncIterator[Sequence[Store]]:
        shelves = Shelves(limits, clock)
        yield [DictReplica(limits, clock, shelves, f"replica{number}") for number in range(count)]


def broken_sentences() -> Iterator[str]:
    """Yield the tests of the rules that fail, for one replica and for several."""
    for contract in (_Memory(), _Dicts()):
        for name in sorted(one for one in dir(contract) if one.startswith("test_")):
            try:
                getattr(contract, name)()
            except Exception:
                yield name


def seeds_until_found(bug: Bug, first: int = 0) -> int:
    """Return how many seeds the simulation needs to see the invariant of a mistake broken; 0: it does not."""
    for count in range(1, TRIED + 1):
        violations = play(bug.scenario, first + count - 1).ledger.violations
        if any(one.startswith(f"{bug.invariant}:") for one in violations):
            return count
    return 0
