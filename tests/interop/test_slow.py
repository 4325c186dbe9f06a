"""Clients of other projects collect the results of slow calls, of functions and of servers behind, in both eras.

They check structured content against the output schema of its tool. They also send idempotency keys, and name their conversations.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.client.servers import listening
from tests.support import BOUND
from tests.workers.fleet import fleet
from tools.ports import free_port

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path(__file__).parent
FRONT: Final = str(HERE / "slow_front.py")
PEER: Final = [str(ROOT / ".peers/mcp2/bin/python"), str(HERE / "slow_peer.py")]
PROGRAMS: Final = {
    **{
        kind: [str(ROOT / f".peers/{kind}/bin/python"), str(HERE / "clients" / "slow.py"), kind]
        for kind in ("mcp1", "mcp2", "fastmcp")
    },
    **{
        kind: [str(ROOT / ".node/bin/node"), str(HERE / "clients" / "slow.mjs"), kind]
        for kind in ("ts1", "ts2")
    },
}
SESSIONLESS: Final = ("mcp2", "fastmcp", "ts2")
WITH_TASKS: Final = ("mcp2", "fastmcp")
"""The clients that can have an extension for tasks."""
CHILD_ON_STDIO: Final = ("ts2",)
"""The clients of a stdio server that starts a program behind it: each needs a new program, which takes seconds to start."""
TICKET: Final = ["collect", "status", "ticket"]
TREE: Final = {"name": "root", "branches": [{"name": "leaf", "branches": []}]}
RESULTS: Final = {"tree": TREE, "word": {"result": "done"}, "orders": ["soup", "soup", "fish"]}
TICKETS: Final = {"tree first": TICKET, "word first": TICKET}
AT_ONCE: Final = {"tree first": ["branches", "name"], "word first": ["result"]}
"""The client comes back with the state, or polls the task, by itself."""


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Serve functions, a program and a URL; yield their addresses, and the command of a server on stdio."""
    folder = str(tmp_path_factory.mktemp("slow"))
    with contextlib.ExitStack() as stack:
        port = free_port()
        behind = stack.enter_context(listening([*PEER, folder, str(port)], port))
        env = {"SLOW_FOLDER": folder, "SLOW_URL": behind}
        served = {
            name: stack.enter_context(fleet(env=env, target=f"{FRONT}:{name}"))
            for name in ("native", "child", "url")
        }
        stdio = ["env", f"SLOW_FOLDER={folder}", sys.executable, FRONT]
        yield {
            **{f"http-{name}": f"http://127.0.0.1:{one.port}/mcp" for name, one in served.items()},
            **{f"stdio-{name}": [*stdio, name] for name in ("native", "child")},
        }


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_client_of_another_project_collects_the_results_of_slow_calls(
    kind: str, fronts: dict[str, Any]
) -> None:
    targets = {
        name: place for name, place in fronts.items() if name != "stdio-child" or kind in CHILD_ON_STDIO
    }
    command = [*PROGRAMS[kind], json.dumps(targets)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * BOUND, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Error parsing structured content" not in done.stderr.replace("\n", " ").replace("  ", " ")
    found: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        found |= json.loads(line)
    modes = {"legacy": PROGRAMS, "auto": SESSIONLESS, "tasks": WITH_TASKS}
    assert list(found) == [
        f"{target} {mode}"
        for target in targets
        for mode, kinds in modes.items()
        if kind in kinds and not (mode == "tasks" and target.startswith("stdio"))
    ]
    for name, shown in found.items():
        is_legacy = name.endswith("legacy")
        assert shown | RESULTS | (TICKETS if is_legacy else AT_ONCE) == shown, name
        # A session has no keys: it recognises a repeat by its id. And it is itself the conversation.
        assert shown["runs once"] is not is_legacy, name
        if "native" in name:
            assert shown["conversations"] == ([1, 2, 3] if is_legacy else [1, 2, 1]), name
        if name.endswith("tasks"):
            assert shown["tasks"] == ["tree", "word"], name
