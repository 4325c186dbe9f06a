"""The tool that makes mutants: each kind of change is there while it is applied, and gone afterwards. And its record is complete."""

from collections import Counter

import pytest

from limpet.core import fate
from limpet.core.fate import Fate, FateInput
from limpet.core.lifecycle import SessionInput, SessionState
from limpet.core.lifecycle import step as session_step
from limpet.core.rules import calls
from tests.bugbank.mutants import MODULES, PAGE, applied, known_survivors, mutants, rows

STALE = "core.rules.calls: is_stale: `return now - kept_at > max(grace, KEPT_SECONDS)` Gt swapped"
CELL = "core.fate: TABLE: `GONE, input 4` has no effect"
ENTRY = "core.lifecycle: TRANSITIONS: `SessionState.ATTACHED, SessionInput.BROKE` has no effect"


def test_each_mutant_has_its_own_name() -> None:
    names = Counter(one.text() for module in MODULES for one in mutants(module))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("name", [STALE, CELL, ENTRY])
def test_a_mutant_behaves_differently_and_only_while_it_is_applied(name: str) -> None:
    def behaviour() -> object:
        return (
            calls.is_stale(0.0, 0.0, 300.0),
            fate.step(Fate.GONE, FateInput.ENDED),
            session_step(SessionState.ATTACHED, SessionInput.BROKE),
        )

    right = behaviour()
    [mutant] = [one for one in mutants(f"limpet.{name.partition(':')[0]}") if one.text() == name]
    with applied(mutant) as is_there:
        assert is_there
        assert behaviour() != right
    assert behaviour() == right


def test_each_survivor_has_a_reason_and_the_table_counts_it() -> None:
    survivors = known_survivors()
    assert [one for one, reason in survivors.items() if not reason] == []
    table = rows(PAGE.read_text())
    counted = Counter(one.partition(":")[0] for one in survivors)
    assert {name: count - found for name, (count, found) in table.items() if count > found} == counted
