"""A session that was left lives for its grace and ends once: I1 to I8, I10 over clients that come and go."""

import pytest

from tests.simulation.judge import BLOCKS, try_seeds


@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
def test_no_seed_of_sessions_violates_an_invariant(seeds: range) -> None:
    try_seeds("grace", seeds)
