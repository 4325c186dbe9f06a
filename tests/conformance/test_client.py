"""The official conformance suite in client mode: every scenario alone, every check accounted for.

Alone, because the suite would start all scenarios at once, and one of them measures time.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conformance.suite import NODE, ROOT, Suite

SUITE: Final = Suite("CONFORMANCE", "conformance", ())
PROGRAM: Final = Path(__file__).parent / "client.py"

SCENARIOS: Final = [
    ("2025-11-25", "initialize", 1),
    ("2025-11-25", "tools_call", 2),
    ("2025-11-25", "elicitation-sep1034-client-defaults", 5),
    ("2025-11-25", "sse-retry", 3),
    ("2025-11-25", "json-schema-2020-12-preservation", 9),
    ("2026-07-28", "tools_call", 2),
    ("2026-07-28", "request-metadata", 8),
    ("2026-07-28", "sep-2322-client-request-state", 5),
    ("2026-07-28", "http-standard-headers", 9),
    ("2026-07-28", "http-custom-headers", 18),
    ("2026-07-28", "http-invalid-tool-headers", 12),
    ("2026-07-28", "json-schema-ref-no-deref", 1),
    ("2026-07-28", "json-schema-2020-12-preservation", 9),
]
"""Revision, scenario, and how many checks succeed: fewer would mean that some were no longer made."""
TOLD: Final = {"INFO", "SKIPPED"}
"""Entries that judge nothing: transcripts, and what the scenario's revision does not ask for."""


def play(version: str, scenario: str, output: Path, *more: str) -> tuple[Counter[str], str]:
    """Run one scenario and return its verdicts by status, and what the suite and the client said."""
    command = [str(NODE), str(SUITE._script()), "client", "--scenario", scenario, "--spec-version", version]
    command += ["--command", f"{sys.executable} {PROGRAM}", "--timeout", "30000", "-o", str(output), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False, cwd=ROOT)
    entries: list[dict[str, Any]] = [
        entry
        for file in output.rglob("checks.json")
        for entry in json.loads(file.read_text(encoding="utf-8"))
    ]
    assert "CLIENT EXITED WITH ERROR" not in done.stdout, done.stdout[-3000:]
    return Counter(entry["status"] for entry in entries), done.stdout[-3000:]


@pytest.mark.parametrize(("version", "scenario", "successes"), SCENARIOS)
def test_the_official_scenario_passes_with_every_check_accounted_for(
    version: str, scenario: str, successes: int, tmp_path: Path
) -> None:
    verdicts, said = play(version, scenario, tmp_path)
    assert verdicts.keys() <= {"SUCCESS", *TOLD}, said
    assert verdicts["SUCCESS"] == successes, said
