"""A stream that is cut anywhere continues anywhere, complete and in order: I1 to I8, I10 over cuts and takeovers."""

import pytest

from tests.simulation.judge import BLOCKS, try_seeds


@pytest.mark.parametrize("seeds", BLOCKS, ids=str)
def test_no_seed_of_streams_violates_an_invariant(seeds: range) -> None:
    try_seeds("log", seeds)
