"""A tool of ten minutes, and a client that gives up after one: each row of docs/how-to/slow-calls.md, in real time.

python -m tools.ten_minutes [SECONDS]

The client is that of `mcp` 2. The tool is a function, one of a program behind, and one of a server behind a URL; over HTTP in both eras and
with tasks, and on stdio. Exit status 1: a result was lost.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.client.servers import listening
from tests.interop.test_slow import FRONT, PEER
from tests.workers.fleet import fleet
from tools.ports import free_port

ROOT: Final = Path(__file__).parents[1]
CLIENT: Final = [str(ROOT / ".peers/mcp2/bin/python"), str(ROOT / "tests/interop/clients/ten_minutes.py")]
PATIENCE: Final = 60.0
BACKS: Final = ("native", "child", "url")


def collected(seconds: float, patience: float = PATIENCE) -> dict[str, Any]:
    """Run all rows at once; return the results of the client, by target and mode."""
    hand_over = ("--hand-over", f"{patience * 0.75:g}")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        port = free_port()
        behind = stack.enter_context(listening([*PEER, folder, str(port)], port))
        env = {"SLOW_FOLDER": folder, "SLOW_URL": behind}
        served = {
            name: stack.enter_context(fleet(*hand_over, env=env, target=f"{FRONT}:{name}")) for name in BACKS
        }
        stdio = ["env", f"SLOW_FOLDER={folder}", sys.executable, "-m", "limpet", "serve", "--stdio"]
        targets = {
            **{f"http-{name}": f"http://127.0.0.1:{one.port}/mcp" for name, one in served.items()},
            **{f"stdio-{name}": [*stdio, *hand_over, f"{FRONT}:{name}"] for name in ("native", "child")},
        }
        done = subprocess.run(
            [*CLIENT, str(seconds), str(patience), json.dumps(targets)],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return {name: found for line in done.stdout.splitlines() for name, found in json.loads(line).items()}


def main() -> None:
    """Print one line for each row."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    for name, found in collected(seconds).items():
        print(f"{name:<20} {found['result']:<16} after {found['seconds']:>6} s, in {found['calls']} calls")


if __name__ == "__main__":
    main()
