"""Clients of other projects collect the results of slow calls. They check structured content against the output schema of its tool."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support import BOUND

ROOT: Final = Path(__file__).parents[2]
CLIENTS: Final = ROOT / "tests" / "interop" / "clients"
SERVER: Final = [sys.executable, str(ROOT / "tests" / "interop" / "slow_server.py")]
TICKET: Final = ["collect", "status", "ticket"]
TREE: Final = {"name": "root", "branches": [{"name": "leaf", "branches": []}]}
PROGRAMS: Final = {
    **{
        kind: [str(ROOT / f".peers/{kind}/bin/python"), str(CLIENTS / "slow.py"), kind]
        for kind in ("mcp1", "mcp2", "fastmcp")
    },
    **{kind: [str(ROOT / ".node/bin/node"), str(CLIENTS / "slow.mjs"), kind] for kind in ("ts1", "ts2")},
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_client_of_another_project_collects_results_that_have_an_output_schema(kind: str) -> None:
    command = [*PROGRAMS[kind], *SERVER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Error parsing structured content" not in done.stderr.replace("\n", " ").replace("  ", " ")
    found: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        found |= json.loads(line)
    results = {"tree": TREE, "word": {"result": "done"}}
    assert found["legacy"] == {**results, "tree first": TICKET, "word first": TICKET}
    if kind in ("mcp2", "fastmcp", "ts2"):
        # The client comes back with the state by itself.
        assert found["auto"] == {**results, "tree first": ["branches", "name"], "word first": ["result"]}
