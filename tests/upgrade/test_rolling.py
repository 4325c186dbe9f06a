"""A rolling upgrade from the predecessor to this commit, under load, and a step back."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.fleet import ROOT, environment
from tests.http.client import http_test
from tests.redis_server import needs_redis
from tests.upgrade.rolling import upgrade


def test_a_replica_of_the_predecessor_runs_the_predecessors_code(predecessor: Path) -> None:
    program = "import limpet, tests.chaos.replica as replica; print(limpet.__file__, replica.__file__)"
    said = subprocess.run(
        [sys.executable, "-c", program],
        cwd=predecessor,
        env=environment(predecessor),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert said == [
        str(predecessor / "src/limpet/__init__.py"),
        str(predecessor / "tests/chaos/replica.py"),
    ]


@needs_redis
@pytest.mark.slow
@http_test
async def test_a_rolling_upgrade_under_load_and_a_step_back_lose_no_call(predecessor: Path) -> None:
    await upgrade(predecessor, ROOT, replicas=3)
