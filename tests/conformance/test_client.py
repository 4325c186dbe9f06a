"""The official conformance suite in client mode, sessions: the rules of 2025-11-25, and of the revisions before."""

from pathlib import Path

import pytest

from tests.conformance.client_suite import (
    NEW,
    OLD,
    OLDEST,
    REQUIRED,
    STABLE,
    Played,
    expected,
    judge,
    play,
)

VERSIONS = (OLD, OLDEST, STABLE)
CASES = [(version, scenario) for version in VERSIONS for scenario in expected(version)]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Played]]:
    room: Path = tmp_path_factory.mktemp("conformance")
    return {version: play(version, room / version) for version in VERSIONS}


@pytest.mark.parametrize(("version", "scenario"), CASES)
def test_the_official_scenario_passes_with_every_check_accounted_for(
    version: str, scenario: str, played: dict[str, dict[str, Played]]
) -> None:
    judge(scenario, version, played[version])


@pytest.mark.parametrize("version", VERSIONS)
def test_no_scenario_is_left_out(version: str, played: dict[str, dict[str, Played]]) -> None:
    assert played[version].keys() == expected(version).keys()


def test_the_required_ones_are_as_many_as_the_suite_names() -> None:
    assert [sum(version in counts for counts in REQUIRED.values()) for version in (OLD, NEW)] == [18, 32]
