"""A seed is a run: the same one, callback by callback, in another process with other hashes too."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.judge import describe
from tests.simulation.scenarios import SCENARIOS, play

ROOT = Path(__file__).parent.parent.parent
PROGRAM = """
import sys
from tests.simulation.scenarios import SCENARIOS, play
for name in SCENARIOS:
    for seed in (1, 2, 3):
        print(name, play(name, seed).fingerprint)
"""


def _fingerprints(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_seed_is_the_same_run_in_every_process() -> None:
    first = _fingerprints("1")
    assert first == _fingerprints("2")
    assert len(set(first.split())) == 3 * len(SCENARIOS) + len(SCENARIOS), "other seeds are other runs"


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_report_names_the_seed_and_the_events(name: str) -> None:
    run = play(name, 7)
    run.ledger.violate("I0", "made up")
    report = describe(name, run)
    assert f"{name} with seed 7" in report
    assert "I0: made up" in report
    assert "claims" in report or "closes" in report
