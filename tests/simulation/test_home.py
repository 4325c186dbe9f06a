"""A session keeps a home, and each of its calls starts once and there: I1 to I8, I10 and G11 over the ways in which a home goes."""

import pytest

from tests.simulation.judge import BLOCKS, try_seeds


# A quarter of the seeds of other scenarios: a run has more replicas, and waits for leases.
@pytest.mark.parametrize("seeds", BLOCKS[::4], ids=str)
def test_no_seed_of_a_lost_home_violates_an_invariant(seeds: range) -> None:
    try_seeds("home", seeds)
