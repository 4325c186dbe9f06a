"""A rolling restart of all replicas loses no running request: I1 to I8, I10 and G11."""

import pytest

from tests.simulation.judge import BLOCKS, try_seeds


@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
def test_no_seed_of_restarts_violates_an_invariant(seeds: range) -> None:
    try_seeds("drain", seeds)
