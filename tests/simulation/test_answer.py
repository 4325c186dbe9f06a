"""An ask is resolved once, by its own first answer, wherever that arrives: I1 to I8, I10 over late and double answers."""

import pytest

from tests.simulation.judge import BLOCKS, try_seeds


@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
def test_no_seed_of_answers_violates_an_invariant(seeds: range) -> None:
    try_seeds("answer", seeds)
