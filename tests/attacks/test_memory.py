"""A part of the memory campaign: one attack against a server with a small figure. `make attack` runs all of them."""

import asyncio

from tests.attacks import memory_attacks as attacks
from tests.attacks.campaign import MIB, attacked


def test_a_server_under_attack_stays_within_its_figure_and_serves_others() -> None:
    result = asyncio.run(attacked([attacks.small_messages], 128 * MIB, scale=0.15))
    assert result.is_bounded, result
    assert result.served, result
