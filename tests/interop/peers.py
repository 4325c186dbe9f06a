"""The foreign clients, each in a process of its own, and what came of one conversation with the server."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import Struct

from tests.interop.proxy import Cut, Request, proxied
from tests.interop.server import COUNTS, ERAS

ROOT: Final = Path(__file__).parents[2]
CLIENTS: Final = Path(__file__).parent / "clients"
SERVE: Final = [sys.executable, "-m", "holdfast", "serve", f"{Path(__file__).parent / 'server.py'}:server"]
PATIENCE: Final = 30.0


class Peer(Struct, frozen=True):
    """A client program and how it is told to connect."""

    name: str
    mode: str
    """`legacy`: it shakes hands; `auto`: it finds out, here that there are only sessions."""
    program: str
    script: str
    needs: str
    """The make target that installs it."""
    asks_at_once: int
    """How many of five concurrent questions it takes at a time."""
    rewinds: bool
    """Whether it takes up a call that is cut twice where the first cut was, and so hears again what came between."""

    def __str__(self) -> str:
        return self.name if self.mode == "legacy" else f"{self.name}-fallback"

    def environment(self, directory: Path) -> dict[str, str]:
        """Return what its server is told: where to count, and to have only sessions for one that would do without."""
        return {COUNTS: str(directory), ERAS: "both" if self.mode == "legacy" else "sessions"}

    def command(self) -> list[str]:
        """Return how it is started. A peer that is not installed fails the test: nothing may pass untried."""
        program = ROOT / self.program
        if not program.exists():
            pytest.fail(f"{self.program} is not installed: run `make {self.needs}`")
        return [str(program), str(CLIENTS / self.script)]


def _python(name: str, mode: str, asks_at_once: int) -> Peer:
    return Peer(name, mode, f".peers/{name}/bin/python", f"{name}.py", "peers", asks_at_once, rewinds=True)


def _node(name: str, mode: str) -> Peer:
    return Peer(name, mode, ".node/bin/node", f"{name}.mjs", "node", 5, rewinds=False)


PEERS: Final = (
    # Its session handles what the server sends in one loop, so it can only answer one question after another.
    _python("mcp1", "legacy", 1),
    _python("mcp2", "legacy", 5),
    _python("mcp2", "auto", 5),
    _node("ts1", "legacy"),
    _node("ts2", "legacy"),
    _node("ts2", "auto"),
)


class Run(Struct):
    """What the client printed, what the server counted, and the HTTP requests between them."""

    peer: Peer
    steps: dict[str, dict[str, Any]]
    counts: Counter[str]
    requests: list[Request]
    client_errors: str
    server_complaints: str
    """What the server wrote beside its banner."""


def over_http(peer: Peer, directory: Path) -> Run:
    """Let the client talk to a server process through a proxy that cuts three of its connections."""
    cuts = [
        Cut(b"cut standalone", loses=False),
        Cut(b"step 2", loses=False),
        Cut(b"step 4", loses=True),
    ]
    with _serving(directory, peer.environment(directory)) as (port, log), proxied(port, cuts) as proxy:
        url = f"http://127.0.0.1:{proxy.port}/mcp"
        steps, errors = _converse(peer, {"mode": peer.mode, "url": url})
    assert all(cut.done for cut in cuts), f"never came by: {cuts}"
    complaints = re.sub(r"(?s)\A.*?  clients   [^\n]*\n", "", log.read_text())
    return Run(peer, steps, _counted(directory), proxy.requests, errors, complaints)


def over_stdio(peer: Peer, directory: Path) -> Run:
    """Let the client start the server itself."""
    asked = {"mode": peer.mode, "command": [*SERVE, "--stdio"], "env": peer.environment(directory)}
    steps, errors = _converse(peer, asked)
    return Run(peer, steps, _counted(directory), [], errors, "")


def _converse(peer: Peer, asked: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], str]:
    with subprocess.Popen(
        [*peer.command(), json.dumps(asked)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The scripts share modules; none of them sees our environment's packages.
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
    ) as process:
        late = threading.Timer(PATIENCE, process.kill)
        late.start()
        printed, errors = process.communicate()
        late.cancel()
    assert process.returncode == 0, f"{peer} ended with {process.returncode}:\n{printed}\n{errors}"
    # Not splitlines(): it also splits at U+2028, which the clients send on purpose.
    steps = [json.loads(line) for line in printed.rstrip("\n").split("\n")]
    return {step.pop("step"): step for step in steps}, errors


@contextlib.contextmanager
def _serving(directory: Path, environment: dict[str, str]) -> Iterator[tuple[int, Path]]:
    """Run `holdfast serve` on a free port; stop it as an operator would, and expect it to obey."""
    log = directory / "server.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*SERVE, "--http", "127.0.0.1:0"],
            stdout=errors,
            stderr=errors,
            env={**os.environ, **environment, "COLUMNS": "400"},
        )
    try:
        yield _port(process, log), log
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def _port(process: "subprocess.Popen[bytes]", log: Path) -> int:
    """Wait for the banner, which is printed when connections are accepted."""
    deadline = time.monotonic() + 20
    while (found := re.search(r"serving\s+http://127\.0\.0\.1:(\d+)/mcp", log.read_text())) is None:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, f"the server does not begin: {log.read_text()}"
        time.sleep(0.02)
    return int(found[1])


def _counted(directory: Path) -> Counter[str]:
    """Add up what each server process wrote down when it stopped."""
    counts: Counter[str] = Counter()
    files = list(directory.glob("*.json"))
    assert files, "no server process stopped in order"
    for file in files:
        counts.update(json.loads(file.read_text()))
    return counts
