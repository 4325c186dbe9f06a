"""An id is claimed once, if it is sent many times and to any replica: I1 to I8, I10 over racing duplicates and repeats."""

import pytest

from tests.simulation.judge import BLOCKS, try_seeds


@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
def test_no_seed_of_claims_violates_an_invariant(seeds: range) -> None:
    try_seeds("claim", seeds)
