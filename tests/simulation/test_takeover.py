"""The calls of a dead replica end once, and a fenced replica writes nothing more: I1 to I8, I10 over crashes, stops, partitions."""

import pytest

from tests.simulation.judge import BLOCKS, try_seeds


@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
def test_no_seed_of_deaths_violates_an_invariant(seeds: range) -> None:
    try_seeds("takeover", seeds)
