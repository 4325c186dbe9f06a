"""One ordinary tool, two questions one after the other and five at once: real clients of either era, its body run once each."""

import json
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.serving import everything
from tests.support import BOUND

ROOT: Final = Path(__file__).parents[2]
CLIENTS: Final = ROOT / "tests" / "interop" / "clients"
COMMANDS: Final = {
    "mcp2": [str(ROOT / ".peers/mcp2/bin/python"), str(CLIENTS / "interview.py"), "mcp2"],
    "fastmcp": [str(ROOT / ".peers/fastmcp/bin/python"), str(CLIENTS / "interview.py"), "fastmcp"],
    "ts2": [str(ROOT / ".node/bin/node"), str(CLIENTS / "interview.mjs")],
}
VERSIONS: Final = {"auto": "2026-07-28", "legacy": "2025-11-25"}


@pytest.mark.parametrize("peer", COMMANDS)
def test_an_ordinary_handler_works_unmodified_in_both_eras_and_its_body_runs_once(
    peer: str, tmp_path: Path
) -> None:
    with everything(tmp_path / "server.log") as served:
        command = [*COMMANDS[peer], served.url, *VERSIONS]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")] == [
        {
            "version": version,
            "result": {"name": "Ada", "color": "green", "lines": ["a line"] * 5, "runs": runs},
            "asked": ["elicitation"] * 2 + ["sampling"] * 5,
        }
        for runs, version in enumerate(VERSIONS.values(), 1)
    ]
