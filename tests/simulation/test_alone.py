"""A call of one process runs once, whenever its connection is cut: I1 to I8, I10 over the short path of plain calls."""

import pytest

from tests.simulation.judge import BLOCKS, try_seeds


@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
def test_no_seed_of_one_process_violates_an_invariant(seeds: range) -> None:
    try_seeds("alone", seeds)
