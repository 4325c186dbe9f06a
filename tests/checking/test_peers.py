"""The check finds the known faults of the official SDKs."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from limpet.testing import check
from tests.http.serving import wait_until_connected
from tests.interop import peers
from tests.support import async_test
from tools.ports import free_port

ROOT: Final = Path(__file__).parents[2]
SERVERS: Final = Path(__file__).parent / "servers"
PEERS: Final = {
    "mcp 2.3": (".peers/mcp2/bin/python", "slow_of_mcp2.py"),
    "TypeScript 2.4": (".node/bin/node", "slow_of_typescript.mjs"),
}


@contextlib.contextmanager
def serving(peer: str) -> Iterator[str]:
    """Run a server of another project; yield its URL."""
    name, script = PEERS[peer]
    if not (ROOT / name).exists():
        pytest.fail(f"{name} is not installed: run `make peers` and `make node`")
    port = free_port()
    environment = {**os.environ, "PORT": str(port), "PACKAGES": str(ROOT / ".peers" / "typescript")}
    with subprocess.Popen(
        [ROOT / name, SERVERS / script], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_until_connected(port, process)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


@pytest.mark.parametrize("peer", PEERS)
def test_the_lost_answers_of_duplicate_ids_are_found_and_limpet_in_front_prevents_them(
    peer: str, tmp_path: Path
) -> None:
    @async_test
    async def attempt() -> None:
        healthy = await check(url, only=["parallel", "reused-id"], timeout=30)
        assert [row.verdict for row in healthy.rows] == ["pass", "pass", "pass"], str(healthy)
        # This probe waits for all of the time limit; on a loaded machine the handshake needs more of it.
        report = await check(url, only=["duplicate-ids"], timeout=2)
        if report.rows[0].verdict != "pass":
            report = await check(url, only=["duplicate-ids"], timeout=15)
        assert [row.verdict for row in report.rows] == ["pass", "fail"], str(report)
        row = report.row("duplicate-ids")
        assert "with the same id failed" in row.happened
        assert "no answer within" in row.happened
        assert "limpet serve URL" in row.remedy
        assert report.tool == "look"

    @async_test
    async def in_front() -> None:
        report = await check(f"http://127.0.0.1:{port}/mcp", only=["parallel", "duplicate-ids", "id-types"])
        assert {row.verdict for row in report.rows} == {"pass"}, str(report)

    with serving(peer) as url:
        attempt()
        # The remedy of the row.
        with peers.serving(tmp_path, {}, url) as port:
            in_front()
