"""Every mistake of the bank is found, within seconds, by the simulation or by the contract of stores."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.config import Limits
from holdfast.stores.base import Store
from holdfast.stores.memory import MemoryStore
from holdfast.testing import StoreContract, VirtualClock
from tests.bugbank.bugs import BUGS, Bug
from tests.simulation.scenarios import play

TRIED = 300
"""Seeds after which a bug counts as not found."""


class _Memory(StoreContract):
    @asynccontextmanager
    async def make_store(self, limits: Limits, clock: VirtualClock) -> AsyncIterator[Store]:
        yield MemoryStore(limits, clock)


def _broken_sentences() -> list[str]:
    """Return which tests of the contract fail."""
    contract, failed = _Memory(), []
    for name in sorted(dir(contract)):
        if name.startswith("test_"):
            try:
                getattr(contract, name)()
            except AssertionError:
                failed.append(name)
    return failed


def _violations(bug: Bug) -> list[str]:
    """Return the violations of the bug's invariant that the first seed finds."""
    for seed in range(TRIED):
        violated = [
            v for v in play(bug.scenario, seed).ledger.violations if v.startswith(f"{bug.invariant}:")
        ]
        if violated:
            return violated
    return []


SIMULATED = [name for name, bug in BUGS.items() if bug.scenario]
CONTRACTED = [name for name, bug in BUGS.items() if not bug.scenario]


@pytest.mark.parametrize("name", SIMULATED)
def test_the_simulation_finds(name: str) -> None:
    bug = BUGS[name]
    with bug.patches():
        assert _violations(bug), f"{name!r} lived through {TRIED} seeds of {bug.scenario}"


@pytest.mark.parametrize("name", CONTRACTED)
def test_the_contract_of_stores_finds(name: str) -> None:
    with BUGS[name].patches():
        assert _broken_sentences(), f"{name!r} keeps the contract"


def test_without_a_bug_the_contract_is_kept() -> None:
    assert _broken_sentences() == []


def test_a_patch_is_gone_after_its_test() -> None:
    before = vars(MemoryStore).copy()
    for bug in BUGS.values():
        with bug.patches():
            pass
    assert vars(MemoryStore) == before
