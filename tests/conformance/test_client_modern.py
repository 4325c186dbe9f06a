"""The official conformance suite in client mode: the rules of 2026-07-28."""

from pathlib import Path

import pytest

from tests.conformance.client_suite import NEW, Played, expected, judge, play


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    room: Path = tmp_path_factory.mktemp("conformance")
    return play(NEW, room / NEW)


@pytest.mark.parametrize("scenario", expected(NEW))
def test_the_official_scenario_passes_with_every_check_accounted_for(
    scenario: str, played: dict[str, Played]
) -> None:
    judge(scenario, NEW, played)


def test_no_scenario_is_left_out(played: dict[str, Played]) -> None:
    assert played.keys() == expected(NEW).keys()
