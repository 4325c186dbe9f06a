"""The official suites against three replicas behind the balancer: every verdict as against one process."""

import asyncio
import logging
from pathlib import Path

import pytest

from limpet.config import Settings
from tests.chaos.fleet import fleet
from tests.conformance.suite import Check, stale, tally, unexplained
from tests.conformance.test_server import EXPLAINED, OPTIONAL, RUNS, SUITES, UNSCORED
from tests.redis_server import needs_redis

EVERYTHING = "examples/everything.py:server"


@needs_redis
@pytest.mark.slow
@pytest.mark.parametrize("name", ["required", "modern"])
def test_three_replicas_conform_as_one_process_does(name: str, tmp_path: Path) -> None:
    checks, said = asyncio.run(_run(name, tmp_path))
    logging.getLogger(__name__).info("conformance, %s, three replicas: %s", name, dict(tally(checks)))
    assert unexplained(checks, EXPLAINED["adaptive"]) == []
    assert stale(checks, EXPLAINED["adaptive"], OPTIONAL) == set()
    scenarios = {check.scenario for check in checks}
    assert (len(scenarios), len(checks)) == RUNS[name, "adaptive"]
    assert scenarios >= UNSCORED[name]
    for replica, text in said.items():
        assert "Traceback" not in text, (replica, text)


async def _run(name: str, output: Path) -> tuple[list[Check], dict[str, str]]:
    async with fleet(Settings(), target=EVERYTHING) as running:
        # By name, not by address: the suite tries DNS rebinding only against `localhost`.
        url = f"http://localhost:{running.port}/mcp"
        checks = await asyncio.to_thread(SUITES[name].run, url, output, EXPLAINED["adaptive"])
        return checks, running.logs()
