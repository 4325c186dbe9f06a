"""The official conformance suites as Python sees them: run one against a URL, read back every single check.

An exit code is not enough: a check that only warns, or is skipped, passes there.
"""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support import BOUND

ROOT: Final = Path(__file__).parents[2]
NODE: Final = ROOT / ".node" / "bin" / "node"
PINS: Final = dict(
    line.split("=", 1)
    for line in (ROOT / "tools" / "versions.env").read_text(encoding="utf-8").splitlines()
    if "=" in line and not line.startswith("#")
)
TRANSCRIPT: Final = {"outgoing-request", "incoming-response", "incoming-sse-event", "stream-closed"}
"""Entries that describe and have no verdict."""
_DIRECTORY: Final = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


class Check(NamedTuple):
    """One verdict of a scenario."""

    scenario: str
    name: str
    status: str
    message: str = ""


class Suite(NamedTuple):
    """One version of the suite and the scenarios to run."""

    pin: str
    """The version's name in tools/versions.env."""
    directory: str
    arguments: tuple[str, ...]

    @property
    def version(self) -> str:
        return PINS[self.pin]

    def run(self, url: str, output: Path, explained: "Explained") -> list[Check]:
        """Run it and return every verdict; once more if one is not explained.

        It has time limits of its own, such as 600 ms for the first event of a stream. On a loaded machine one of them ends
        early, and seldom in both runs.
        """
        checks = self._run(url, output)
        return self._run(url, output / "again") if unexplained(checks, explained) else checks

    def _run(self, url: str, output: Path) -> list[Check]:
        # Its exit status is not needed: the verdicts say more.
        command = [str(NODE), str(self.script()), "server", "--url", url, "-o", str(output), *self.arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False)
        checks = read_checks(output)
        assert checks, f"the suite wrote no checks:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        return checks

    def script(self) -> Path:
        """Return the program, or fail and say how to install it."""
        package = ROOT / ".node" / self.directory / "node_modules" / "@modelcontextprotocol" / "conformance"
        manifest = package / "package.json"
        if not NODE.exists() or not manifest.exists():
            pytest.fail(f"conformance suite {self.version} is not installed: run `make node`")
        found = json.loads(manifest.read_text(encoding="utf-8"))["version"]
        if found != self.version:
            pytest.fail(f"conformance suite {found} is installed, not {self.version}: run `make node`")
        return package / "dist" / "index.js"


def read_checks(output: Path) -> list[Check]:
    """Return the findings of the scenarios, without transcripts."""
    checks = []
    for file in sorted(output.glob("*/checks.json")):
        named = _DIRECTORY.fullmatch(file.parent.name)
        assert named is not None, f"cannot tell the scenario of {file.parent.name}"
        checks += [
            Check(named["scenario"], entry["id"], entry["status"], entry.get("errorMessage") or "")
            for entry in json.loads(file.read_text(encoding="utf-8"))
            if entry["id"] not in TRANSCRIPT or entry["status"] != "INFO"
        ]
    return checks


def tally(checks: list[Check]) -> Counter[str]:
    """Count the verdicts by status."""
    return Counter(check.status for check in checks)


Explained = Mapping[tuple[str, str, str], str]
"""Verdicts that are not SUCCESS, each with the reason why it is right: scenario, check, status."""


def unexplained(checks: list[Check], explained: Explained) -> list[Check]:
    """Return the verdicts that are neither SUCCESS nor explained."""
    return [check for check in checks if check.status != "SUCCESS" and check[:3] not in explained]


def stale(
    checks: list[Check], explained: Explained, optional: AbstractSet[tuple[str, str, str]]
) -> set[tuple[str, str, str]]:
    """Return the explained verdicts of the scenarios that ran which did not occur and are not optional."""
    ran = {check.scenario for check in checks}
    found = {check[:3] for check in checks}
    return {entry for entry in explained.keys() - optional if entry[0] in ran} - found
