"""The official conformance suite's authorization scenarios in client mode: each alone, every check accounted for."""

from pathlib import Path
from typing import Final

import pytest

from tests.conformance.test_client import TOLD, play

OLD, NEW = "2025-11-25", "2026-07-28"

SCENARIOS: Final = [
    ("metadata-default", {OLD: 18, NEW: 18}),
    ("metadata-var1", {OLD: 18, NEW: 18}),
    ("metadata-var2", {OLD: 18, NEW: 18}),
    ("metadata-var3", {OLD: 18, NEW: 18}),
    ("basic-cimd", {OLD: 13, NEW: 12}),
    ("scope-from-www-authenticate", {OLD: 14, NEW: 14}),
    ("scope-from-scopes-supported", {OLD: 14, NEW: 14}),
    ("scope-omitted-when-undefined", {OLD: 14, NEW: 14}),
    ("scope-step-up", {OLD: 22, NEW: 25}),
    ("scope-retry-limit", {OLD: 10, NEW: 11}),
    ("token-endpoint-auth-basic", {OLD: 19, NEW: 19}),
    ("token-endpoint-auth-post", {OLD: 19, NEW: 19}),
    ("token-endpoint-auth-none", {OLD: 19, NEW: 19}),
    ("pre-registration", {OLD: 13, NEW: 12}),
    ("resource-mismatch", {NEW: 2}),
    ("offline-access-scope", {NEW: 12}),
    ("offline-access-not-supported", {NEW: 14}),
    ("authorization-server-migration", {NEW: 27}),
    ("iss-supported", {NEW: 14}),
    ("iss-not-advertised", {NEW: 14}),
    ("iss-supported-missing", {NEW: 8}),
    ("iss-wrong-issuer", {NEW: 8}),
    ("iss-unexpected", {NEW: 8}),
    ("iss-normalized", {NEW: 8}),
    ("metadata-issuer-mismatch", {NEW: 3}),
    ("2025-03-26-oauth-metadata-backcompat", {"2025-03-26": 12}),
    ("2025-03-26-oauth-endpoint-fallback", {"2025-03-26": 7}),
]
"""Scenario, and for each revision how many checks succeed: fewer would mean that some were no longer made."""
EXTENSIONS: Final = [
    ("client-credentials-jwt", {OLD: 8, NEW: 7}),
    ("client-credentials-basic", {OLD: 8, NEW: 7}),
    ("enterprise-managed-authorization", {OLD: 9, NEW: 8}),
    ("dpop", {OLD: 12, NEW: 13}),
    ("dpop-nonce", {OLD: 14, NEW: 15}),
    ("wif-jwt-bearer", {OLD: 8, NEW: 7}),
]
"""Extensions belong to no revision; the suite runs them only when it is told to."""


@pytest.mark.parametrize(
    ("scenario", "version", "successes", "more"),
    [
        pytest.param(scenario, version, count, more, id=f"{version}-{scenario}")
        for table, more in ((SCENARIOS, ()), (EXTENSIONS, ("--force",)))
        for scenario, counts in table
        for version, count in counts.items()
    ],
)
def test_the_official_authorization_scenario_passes_with_every_check_accounted_for(
    scenario: str, version: str, successes: int, more: tuple[str, ...], tmp_path: Path
) -> None:
    verdicts, said = play(version, f"auth/{scenario}", tmp_path, *more)
    assert verdicts.keys() <= {"SUCCESS", *TOLD}, said
    assert verdicts["SUCCESS"] == successes, said
