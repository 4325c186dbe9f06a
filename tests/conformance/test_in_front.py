"""The official conformance suites through `limpet serve URL`: in front of our own server, in both eras or in one.

In front of our own server every check ends as it does without Limpet in between, also if it speaks only 2026-07-28 and the
client speaks 2025-11-25. In front of a server that does not speak 2026-07-28 the table below names every check of that revision that cannot succeed.
"""

from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.conformance.serving import EVERYTHING, ROOT, served
from tests.conformance.suite import Explained, Suite, stale, tally, unexplained
from tests.conformance.test_server import EXPLAINED, OPTIONAL, RUNS, SUITES

SESSIONLESS_ONLY: Final = f"{Path(__file__).parent / 'sessionless_only.py'}:server"
SESSIONS_ONLY: Final = f"{Path(__file__).parent / 'sessions_only.py'}:server"

NO_CUT: Final = "Limpet resumes the stream that the server behind closes: its own client sees no cut"
NO_NAMES: Final = "a question of a 2025 server has no name: Limpet chooses the key in inputRequests"
OWN_RESULT: Final = (
    "a 2025 server has no error for a missing capability: the client receives the tool's own result"
)
NO_MIRROR: Final = "a 2025 server does not compare headers with parameters"
POLLING: Final = "server-sse-polling"
NOT_POLLED: Final[Explained] = {
    (POLLING, "server-sse-content-type", "INFO"): NO_CUT,
    (POLLING, "server-sse-disconnect-resume", "INFO"): NO_CUT,
}
"""Which of the two occurs depends on how long the resumption takes."""
BRIDGED: Final[Explained] = {
    ("input-required-result-basic-elicitation", "sep-2322-elicitation-incomplete", "FAILURE"): NO_NAMES,
    ("input-required-result-ignore-extra-params", "sep-2322-ignore-unexpected-params", "WARNING"): NO_NAMES,
    ("server-stateless", "sep-2575-server-rejects-undeclared-capability", "FAILURE"): OWN_RESULT,
    ("server-stateless", "sep-2575-missing-capability-http-400", "FAILURE"): OWN_RESULT,
    **{
        ("http-custom-header-server-validation", f"sep-2243-server-{check}", "FAILURE"): NO_MIRROR
        for check in ("reject-invalid-param-chars", "reject-param-mismatch", "validate-param-match")
    },
}
"""Rules of 2026-07-28 that a server of 2025 behind Limpet cannot keep. The page in-front.md has the same list."""


class Run(NamedTuple):
    """A server behind Limpet, and a suite."""

    target: str
    suite: Suite
    counts: tuple[int, int]
    """Scenarios and verdicts."""
    explained: Explained


REQUIRED = SUITES["required"]
MODERN_ONLY: Final = Suite("CONFORMANCE", "conformance", ("--suite", "all", "--spec-version", "2026-07-28"))
"""Everything at this revision, without the extensions: no tasks."""
_SCENARIOS, _VERDICTS = RUNS["required", "adaptive"]
TABLE: Final = {
    "own server, 2025-11-25": Run(EVERYTHING, REQUIRED, (_SCENARIOS, _VERDICTS), NOT_POLLED),
    "own server, 2026-07-28": Run(EVERYTHING, SUITES["modern"], RUNS["modern", "adaptive"], {}),
    "2026-only server, 2025-11-25": Run(SESSIONLESS_ONLY, REQUIRED, (_SCENARIOS, _VERDICTS), NOT_POLLED),
    "2025-only server, 2026-07-28": Run(SESSIONS_ONLY, MODERN_ONLY, (40, 152), BRIDGED),
}


def test_the_page_lists_every_scenario_that_cannot_pass() -> None:
    page = (ROOT / "docs" / "in-front.md").read_text(encoding="utf-8")
    assert [scenario for scenario, _, _ in BRIDGED if f"`{scenario}`" not in page] == []


@pytest.mark.parametrize("name", TABLE)
def test_the_official_suite_passes_through_limpet_with_every_check_accounted_for(
    name: str, tmp_path: Path
) -> None:
    run = TABLE[name]
    explained = {**EXPLAINED["adaptive"], **run.explained}
    with (
        served(tmp_path / "behind.log", run.target) as behind,
        served(tmp_path / "front.log", behind.url.replace("localhost", "127.0.0.1")) as front,
    ):
        checks = run.suite.run(front.url, tmp_path / "checks", explained)
    print(f"conformance {run.suite.version} through a URL, {name}: {dict(tally(checks))}")
    assert unexplained(checks, explained) == []
    assert stale(checks, explained, OPTIONAL | NOT_POLLED.keys()) == set()
    scenarios, verdicts = run.counts
    assert len({check.scenario for check in checks}) == scenarios
    # A polled stream that is not cut has two verdicts less if it is no stream at all.
    assert len(checks) in {verdicts, verdicts - 2 if run.explained is NOT_POLLED else verdicts}
    assert behind.complaints() == []
    assert front.complaints() == []
