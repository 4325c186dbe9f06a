"""Each parser that sees bytes of others keeps its rules for some hundred random inputs; `python -m tests.fuzz` tries more."""

import pytest

from tests.fuzz.__main__ import run
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_parser_takes_any_bytes(name: str) -> None:
    assert run(TARGETS[name], seed=1, count=300) == 300


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_the_inputs_to_begin_with_are_taken(name: str) -> None:
    for data in TARGETS[name].seeds:
        TARGETS[name].run(data)
