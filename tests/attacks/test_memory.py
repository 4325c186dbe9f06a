"""A part of the memory campaign: some attacks against a server with a small figure. `make attack` runs all of them."""

import asyncio

from tests.attacks.campaign import MIB, Row, attacked
from tests.attacks.memory_attacks import small_messages
from tests.attacks.text_attacks import unread_messages, used_sessions


def test_a_server_under_attack_stays_within_its_figure_and_serves_others() -> None:
    result = asyncio.run(attacked(Row((small_messages,)), 128 * MIB, scale=0.15))
    assert result.is_bounded, result
    assert result.served, result


def test_a_server_on_a_shared_store_forgets_descriptions_of_clients_beyond_its_figure() -> None:
    result = asyncio.run(attacked(Row((used_sessions,), shared=True), 128 * MIB, scale=0.2))
    assert result.is_bounded, result
    assert result.served, result


def test_a_client_that_reads_no_messages_of_its_calls_takes_no_more_than_its_share() -> None:
    result = asyncio.run(attacked(Row((unread_messages,)), 128 * MIB, scale=0.05))
    assert result.is_bounded, result
    assert result.served, result
