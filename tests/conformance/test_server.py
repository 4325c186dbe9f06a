"""The official conformance suites against the everything server, in every response mode, every check accounted for.

A verdict other than SUCCESS fails the test unless the table below names it with its reason; a reason that no
longer applies fails it too.
"""

from pathlib import Path
from typing import Final

import pytest

from tests.conformance.serving import everything
from tests.conformance.suite import Check, Explained, Suite, read_checks, stale, tally, unexplained

SUITES: Final = {
    "required": Suite("CONFORMANCE", "conformance", ("--requirements", "2025-11-25")),
    "modern": Suite("CONFORMANCE", "conformance", ("--requirements", "2026-07-28")),
    "older": Suite("CONFORMANCE", "conformance", ("--suite", "all", "--spec-version", "2025-06-18")),
    "stable": Suite("CONFORMANCE_OLD", "conformance-old", ("--suite", "all")),
}
UNSCORED: Final = {
    "required": {"server-session-lifecycle", "json-schema-2020-12", "server-sse-polling"},
    "modern": {
        "json-schema-2020-12",
        "http-header-validation",
        "http-custom-header-server-validation",
        "tasks-lifecycle",
        "tasks-capability-negotiation",
        "tasks-wire-fields",
        "tasks-request-state-removal",
        "tasks-mrtr-input",
        "tasks-request-headers",
        "tasks-dispatch-and-envelope",
        "tasks-status-notifications",
        "tasks-required-task-error",
        "tasks-mrtr-composition",
    },
}
"""Scenarios that the suite runs for a revision without counting them. We count them."""
RUNS: Final = {
    ("required", "adaptive"): (30 + 3, 84),
    ("required", "sse"): (30 + 3, 84),
    ("required", "json"): (30 + 3, 74),
    ("modern", "adaptive"): (37 + 13, 198),
    ("older", "adaptive"): (27, 56),
    ("stable", "adaptive"): (32, 47),
    ("stable", "sse"): (32, 47),
    ("stable", "json"): (32, 37),
}
"""How many scenarios and verdicts there are; fewer would mean that something was no longer tried."""

QUICK: Final = "tools/list is ready at once and answered in JSON: there are no streams to look at"
NO_LOGS: Final = "one JSON body has no room for log messages; the specification lets a server leave them out"
NO_PROGRESS: Final = "one JSON body has no room for progress; the specification lets a server leave it out"
NO_ASKS: Final = "one JSON body has no room for a request to the client; the tool's result says so"
SKIPS: Final = "the suite skips this one for every server"
NO_STREAM: Final = "there is no stream to close and resume"
EXPLAINED: Final[dict[str, Explained]] = {
    "adaptive": {
        ("server-sse-multiple-streams", "server-sse-streams-functional", "INFO"): QUICK,
        ("tasks-status-notifications", "tasks-status-notifications", "SKIPPED"): SKIPS,
    },
    "sse": {},
    "json": {
        ("server-sse-multiple-streams", "server-sse-streams-functional", "INFO"): QUICK,
        ("server-sse-polling", "server-sse-content-type", "INFO"): NO_STREAM,
        ("tools-call-with-logging", "tools-call-with-logging", "FAILURE"): NO_LOGS,
        ("tools-call-with-progress", "tools-call-with-progress", "FAILURE"): NO_PROGRESS,
        ("tools-call-sampling", "tools-call-sampling", "FAILURE"): NO_ASKS,
        ("tools-call-elicitation", "tools-call-elicitation", "FAILURE"): NO_ASKS,
        ("elicitation-sep1034-defaults", "elicitation-sep1034-general", "FAILURE"): NO_ASKS,
        ("elicitation-sep1330-enums", "elicitation-sep1330-general", "FAILURE"): NO_ASKS,
    },
}
"""By response mode: every verdict that is not SUCCESS, and why it is right."""
OPTIONAL: Final = {("server-sse-multiple-streams", "server-sse-streams-functional", "INFO")}
"""May as well succeed: on a busy machine tools/list is late and comes as a stream; not all runs look at it."""


REPEATS: Final = {("stable", "sse"), ("stable", "json")}
"""The older suite in these modes. The newer suite finds the same faults, so this is for campaigns."""


@pytest.mark.parametrize(
    ("name", "mode"),
    [pytest.param(*run, marks=pytest.mark.campaign if run in REPEATS else ()) for run in RUNS],
)
def test_the_official_suite_passes_with_every_check_accounted_for(
    name: str, mode: str, tmp_path: Path
) -> None:
    suite = SUITES[name]
    with everything(tmp_path / "server.log", "--response", mode) as served:
        checks = suite.run(served.url, tmp_path / "checks", EXPLAINED[mode])
    print(f"conformance {suite.version}, {name}, {mode}: {dict(tally(checks))}")
    assert unexplained(checks, EXPLAINED[mode]) == []
    assert stale(checks, EXPLAINED[mode], OPTIONAL) == set()
    scenarios = {check.scenario for check in checks}
    assert (len(scenarios), len(checks)) == RUNS[name, mode]
    assert scenarios >= UNSCORED.get(name, set())
    assert served.complaints() == []


def test_a_warning_or_a_skipped_check_is_not_treated_as_success(tmp_path: Path) -> None:
    directory = tmp_path / "server-ping-2026-01-01T00-00-00-000Z"
    directory.mkdir()
    statuses = ("SUCCESS", "WARNING", "SKIPPED", "FAILURE")
    entries = ", ".join(f'{{"id": "ping-{status}", "status": "{status}"}}' for status in statuses)
    (directory / "checks.json").write_text(f"[{entries}]", encoding="utf-8")
    found = unexplained(read_checks(tmp_path), EXPLAINED["adaptive"])
    assert [check.status for check in found] == ["WARNING", "SKIPPED", "FAILURE"]


def test_a_suite_that_is_not_installed_fails_with_the_command_that_installs_it(tmp_path: Path) -> None:
    missing = Suite("CONFORMANCE", "nowhere", ())
    with pytest.raises(pytest.fail.Exception, match="make node"):
        missing.run("http://localhost:1/mcp", tmp_path, {})


def test_a_verdict_that_is_not_explained_is_asked_for_once_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    right, wrong = Check("a", "b", "SUCCESS"), Check("a", "b", "FAILURE")
    for runs, explained, found in (
        ([[wrong], [right]], {}, [right]),
        ([[wrong], [wrong]], {}, [wrong]),
        ([[right]], {}, [right]),
        ([[wrong]], {wrong[:3]: "why"}, [wrong]),
    ):
        monkeypatch.setattr(Suite, "_run", lambda *_, runs=runs: runs.pop(0))
        assert Suite("CONFORMANCE", "nowhere", ()).run("http://h", tmp_path, explained) == found
        assert runs == []
