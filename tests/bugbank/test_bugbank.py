"""Every mistake of the bank is found, within seconds: by the simulation, by two replicas whose commands meet, by one test, or by the tests of the rules."""

import pytest

from limpet.stores.memory import MemoryStore
from tests.bugbank.bugs import BUGS
from tests.bugbank.details import DETAILS
from tests.bugbank.finding import TRIED, broken_sentences, found_by, seeds_until_found
from tests.bugbank.replicas import broken_scenes

FEWEST = 40
"""Mistakes that the bank has at least."""


def test_the_bank_has_enough_mistakes_and_each_has_an_origin() -> None:
    assert len(BUGS) >= FEWEST
    assert [name for name, bug in BUGS.items() if not bug.origin] == []


SIMULATED = [name for name, bug in BUGS.items() if found_by(bug) == "simulation"]
STAGED = [name for name, bug in BUGS.items() if found_by(bug) == "two replicas"]
CONTRACTED = [name for name, bug in BUGS.items() if found_by(bug) == "rules"]


@pytest.mark.parametrize("name", SIMULATED)
def test_the_simulation_finds(name: str) -> None:
    bug = BUGS[name]
    with bug.patches():
        assert seeds_until_found(bug), f"{name!r} lived through {TRIED} seeds of {bug.scenario}"


@pytest.mark.parametrize("name", CONTRACTED)
def test_the_contract_of_stores_finds(name: str) -> None:
    with BUGS[name].patches():
        assert any(broken_sentences()), f"{name!r} keeps the contract"


@pytest.mark.parametrize("name", STAGED)
def test_two_replicas_find(name: str) -> None:
    bug = BUGS[name]
    with bug.patches():
        assert bug.scene in broken_scenes()


@pytest.mark.parametrize("name", DETAILS)
def test_one_test_finds(name: str) -> None:
    detail = DETAILS[name]
    assert not detail.is_found()
    with detail.patches():
        assert detail.is_found()


def test_without_a_bug_the_scenes_of_two_replicas_pass() -> None:
    assert broken_scenes() == []


def test_without_a_bug_the_contract_is_kept() -> None:
    assert list(broken_sentences()) == []


def test_a_patch_is_gone_after_its_test() -> None:
    before = vars(MemoryStore).copy()
    for bug in BUGS.values():
        with bug.patches():
            pass
    assert vars(MemoryStore) == before
