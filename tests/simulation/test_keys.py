"""A call of 2026-07-28 with an idempotency key runs once, and all its repeats get one answer: I1, I3, I4 over cuts and deaths."""

import pytest

from tests.simulation.judge import BLOCKS, try_seeds


@pytest.mark.parametrize("seeds", BLOCKS[:3], ids=str)
def test_no_seed_of_repeats_violates_an_invariant(seeds: range) -> None:
    try_seeds("keys", seeds)
