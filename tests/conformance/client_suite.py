"""The official suite in client mode: one command for all that a revision requires, every check of it read back.

The suite starts the clients of all scenarios at once, and one scenario measures time; so they take turns (`turns.py`).
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.conformance.suite import NODE, ROOT, Suite

SUITE: Final = Suite("CONFORMANCE", "conformance", ())
PROGRAM: Final = Path(__file__).with_name("in_turn.py")
STABLE: Final = "the older suite"
STABLE_SUITE: Final = Suite("CONFORMANCE_OLD", "conformance-old", ())
OLDEST, OLD, NEW = "2025-03-26", "2025-11-25", "2026-07-28"
ARGUMENTS: Final = {
    OLDEST: ("--suite", "backcompat", "--spec-version", OLDEST),
    OLD: ("--requirements", OLD),
    NEW: ("--requirements", NEW),
    # The only scenario for authorization that the newer suite has not got under its name.
    STABLE: ("--scenario", "auth/cross-app-access-complete-flow"),
}
TOLD: Final = {"INFO", "SKIPPED"}
"""Entries without a verdict: transcripts, and checks of another revision."""

REQUIRED: Final[dict[str, dict[str, int]]] = {
    "initialize": {OLD: 1},
    "tools_call": {OLD: 2, NEW: 2},
    "elicitation-sep1034-client-defaults": {OLD: 5},
    "sse-retry": {OLD: 3},
    "request-metadata": {NEW: 8},
    "sep-2322-client-request-state": {NEW: 5},
    "http-standard-headers": {NEW: 9},
    "http-custom-headers": {NEW: 18},
    "http-invalid-tool-headers": {NEW: 12},
    "json-schema-ref-no-deref": {NEW: 1},
    "auth/metadata-default": {OLD: 18, NEW: 18},
    "auth/metadata-var1": {OLD: 18, NEW: 18},
    "auth/metadata-var2": {OLD: 18, NEW: 18},
    "auth/metadata-var3": {OLD: 18, NEW: 18},
    "auth/basic-cimd": {OLD: 13, NEW: 12},
    "auth/scope-from-www-authenticate": {OLD: 14, NEW: 14},
    "auth/scope-from-scopes-supported": {OLD: 14, NEW: 14},
    "auth/scope-omitted-when-undefined": {OLD: 14, NEW: 14},
    "auth/scope-step-up": {OLD: 22, NEW: 25},
    "auth/scope-retry-limit": {OLD: 10, NEW: 11},
    "auth/token-endpoint-auth-basic": {OLD: 19, NEW: 19},
    "auth/token-endpoint-auth-post": {OLD: 19, NEW: 19},
    "auth/token-endpoint-auth-none": {OLD: 19, NEW: 19},
    "auth/pre-registration": {OLD: 14, NEW: 13},
    "auth/resource-mismatch": {NEW: 2},
    "auth/offline-access-scope": {NEW: 12},
    "auth/offline-access-not-supported": {NEW: 14},
    "auth/authorization-server-migration": {NEW: 27},
    "auth/iss-supported": {NEW: 14},
    "auth/iss-not-advertised": {NEW: 14},
    "auth/iss-supported-missing": {NEW: 8},
    "auth/iss-wrong-issuer": {NEW: 8},
    "auth/iss-unexpected": {NEW: 8},
    "auth/iss-normalized": {NEW: 8},
    "auth/metadata-issuer-mismatch": {NEW: 3},
}
"""Scenario, and for each revision how many checks succeed: fewer would mean that some were no longer made."""
UNSCORED: Final[dict[str, dict[str, int]]] = {
    "json-schema-2020-12-preservation": {OLD: 9, NEW: 9},
    "auth/client-credentials-jwt": {OLD: 8, NEW: 7},
    "auth/client-credentials-basic": {OLD: 9, NEW: 8},
    "auth/enterprise-managed-authorization": {OLD: 10, NEW: 9},
    "auth/dpop": {OLD: 12, NEW: 13},
    "auth/dpop-nonce": {OLD: 14, NEW: 15},
    "auth/wif-jwt-bearer": {OLD: 9, NEW: 8},
    "auth/cross-app-access-complete-flow": {STABLE: 10},
    "auth/2025-03-26-oauth-metadata-backcompat": {OLDEST: 12},
    "auth/2025-03-26-oauth-endpoint-fallback": {OLDEST: 7},
}
"""Scenarios that the suite runs without counting them: extensions, later additions, earlier forms. We count them."""
REFUSED: Final = {
    "auth/scope-retry-limit": "Unauthorized: ",
    "auth/resource-mismatch": "AuthorizationFailed: ",
    "auth/iss-supported-missing": "AuthorizationFailed: ",
    "auth/iss-wrong-issuer": "AuthorizationFailed: ",
    "auth/iss-unexpected": "AuthorizationFailed: ",
    "auth/iss-normalized": "AuthorizationFailed: ",
    "auth/metadata-issuer-mismatch": "AuthorizationFailed: ",
    "http-invalid-tool-headers": "client.tool_left_out ",
}
"""Servers that a client must not get along with, or whose tools it must leave out, and how ours says so. Everywhere else it has nothing to say."""
_DIRECTORY: Final = re.compile(r"(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


class Played(NamedTuple):
    """The result of a scenario: its verdicts by status, and the client's stderr."""

    verdicts: Counter[str]
    said: str


def expected(version: str) -> dict[str, int]:
    """Return the scenarios of a revision, and how many checks of each succeed."""
    tables = (REQUIRED | UNSCORED).items()
    return {scenario: counts[version] for scenario, counts in tables if version in counts}


def play(version: str, output: Path) -> dict[str, Played]:
    """Run all scenarios of a revision."""
    suite = STABLE_SUITE if version == STABLE else SUITE
    command = [str(NODE), str(suite.script()), "client", *ARGUMENTS[version], "-o", str(output)]
    command += ["--command", f"{sys.executable} -S -E {PROGRAM}", "--timeout", "220000"]
    with _turns(output.with_suffix(".turns")) as environment:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=240, check=False, cwd=ROOT, env=environment
        )
    played = dict(map(_read, output.rglob("checks.json")))
    assert played, f"the suite wrote no checks:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return played


@contextmanager
def _turns(path: Path) -> Iterator[dict[str, str]]:
    """Run the process that plays the clients; yields the environment in which it is found."""
    command = [sys.executable, "-m", "tests.conformance.turns", str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            # The older suite leaves the version to its clients; the newer one sets it for each scenario.
            yield {**os.environ, "CONFORMANCE_TURNS": str(path), "MCP_CONFORMANCE_PROTOCOL_VERSION": OLD}
        finally:
            process.kill()


def _read(checks: Path) -> tuple[str, Played]:
    named = _DIRECTORY.fullmatch(checks.parent.name)
    assert named is not None, f"cannot tell the scenario of {checks.parent.name}"
    group = "auth/" if checks.parent.parent.name == "auth" else ""
    entries = json.loads(checks.read_text(encoding="utf-8"))
    said = checks.with_name("stderr.txt").read_text(encoding="utf-8")
    return group + named["scenario"], Played(Counter(entry["status"] for entry in entries), said)


def judge(scenario: str, version: str, played: dict[str, Played]) -> None:
    """Account for every check of one scenario."""
    verdicts, said = played[scenario]
    assert verdicts.keys() <= {"SUCCESS", *TOLD}, said
    assert verdicts["SUCCESS"] == expected(version)[scenario], said
    assert said.startswith(REFUSED[scenario]) if scenario in REFUSED else said == ""
