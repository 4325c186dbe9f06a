"""Every mistake of the bank is found, within seconds, by the simulation, by two replicas whose commands meet, or by the tests of the rules."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from holdfast.config import Limits
from holdfast.stores.base import Store
from holdfast.stores.memory import MemoryStore
from holdfast.testing import VirtualClock
from tests.bugbank.bugs import BUGS, Bug
from tests.bugbank.replicas import broken_scenes
from tests.rules.book import RuleBook
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


def _broken_sentences() -> list[str]:
    """Return which tests of the rules fail."""
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
STAGED = [name for name, bug in BUGS.items() if bug.scene]
CONTRACTED = [name for name, bug in BUGS.items() if not bug.scenario and not bug.scene]


@pytest.mark.parametrize("name", SIMULATED)
def test_the_simulation_finds(name: str) -> None:
    bug = BUGS[name]
    with bug.patches():
        assert _violations(bug), f"{name!r} lived through {TRIED} seeds of {bug.scenario}"


@pytest.mark.parametrize("name", CONTRACTED)
def test_the_contract_of_stores_finds(name: str) -> None:
    with BUGS[name].patches():
        assert _broken_sentences(), f"{name!r} keeps the contract"


@pytest.mark.parametrize("name", STAGED)
def test_two_replicas_find(name: str) -> None:
    bug = BUGS[name]
    with bug.patches():
        assert bug.scene in broken_scenes()


def test_without_a_bug_the_scenes_of_two_replicas_pass() -> None:
    assert broken_scenes() == []


def test_without_a_bug_the_contract_is_kept() -> None:
    assert _broken_sentences() == []


def test_a_patch_is_gone_after_its_test() -> None:
    before = vars(MemoryStore).copy()
    for bug in BUGS.values():
        with bug.patches():
            pass
    assert vars(MemoryStore) == before
