"""An outage of the store for longer than the lease costs no call: I1 to I8, I10, G11 while no replica reaches the store."""

import pytest

from tests.simulation.judge import BLOCKS, try_seeds


@pytest.mark.parametrize("seeds", BLOCKS[:8], ids=str)
def test_no_seed_of_outages_violates_an_invariant(seeds: range) -> None:
    try_seeds("outage", seeds)
