"""The foreign clients, each in its own process, and the result of one conversation with the server."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from msgspec import Struct

from tests.interop.proxy import Cut, Request, proxied
from tests.interop.server import COUNTS, ERAS
from tests.support import BOUND, wait_until

ROOT: Final = Path(__file__).parents[2]
CLIENTS: Final = Path(__file__).parent / "clients"
SERVE: Final = [sys.executable, "-m", "limpet", "serve", "--log-level", "warning"]
SERVER: Final = f"{Path(__file__).parent / 'server.py'}:server"
LOG: Final = "server.log"
PATIENCE: Final = BOUND


Mode = Literal["legacy", "fallback", "modern"]
"""A client shakes hands; or it finds out, and there are only sessions; or it finds out, and does without one."""


class Peer(Struct, frozen=True):
    """A client program and its arguments."""

    name: str
    mode: Mode
    program: str
    script: str
    needs: str
    """The make target that installs it."""
    asks_at_once: int
    """How many of five concurrent questions it takes at a time."""
    rewinds: bool
    """Whether it resumes a call that is cut twice at the first cut, and so receives the events between them twice."""

    def __str__(self) -> str:
        return self.name if self.mode == "legacy" else f"{self.name}-{self.mode}"

    @property
    def listens(self) -> bool:
        """Whether it can listen for changes; fastmcp's client has no way to."""
        return self.name != "fastmcp"

    def environment(self, directory: Path) -> dict[str, str]:
        """Return the environment of its server: the directory of the counts, and the target."""
        return {COUNTS: str(directory), ERAS: "sessions" if self.mode == "fallback" else "both"}

    def asked(self, talk: str | None = None) -> dict[str, Any]:
        """Return its instructions: how to connect, and the steps."""
        usual = "modern" if self.mode == "modern" else "converse"
        return {"mode": "legacy" if self.mode == "legacy" else "auto", "talk": talk or usual}

    def command(self) -> list[str]:
        """Return how it is started. A peer that is not installed fails the test: nothing may pass untried."""
        program = ROOT / self.program
        if not program.exists():
            pytest.fail(f"{self.program} is not installed: run `make {self.needs}`")
        return [str(program), str(CLIENTS / self.script)]


def _python(name: str, mode: Mode, asks_at_once: int = 5) -> Peer:
    # A script that had a package's name would be found in its place.
    script = f"{name}_client.py" if name == "fastmcp" else f"{name}.py"
    return Peer(name, mode, f".peers/{name}/bin/python", script, "peers", asks_at_once, rewinds=True)


def _node(name: str, mode: Mode) -> Peer:
    return Peer(name, mode, ".node/bin/node", f"{name}.mjs", "node", 5, rewinds=False)


PEERS: Final = (
    # Its session handles messages of the server in one loop, so it can only answer one question after another.
    _python("mcp1", "legacy", 1),
    _python("mcp2", "legacy"),
    _python("mcp2", "fallback"),
    _node("ts1", "legacy"),
    _node("ts2", "legacy"),
    _node("ts2", "fallback"),
)
MODERN_PEERS: Final = (_python("mcp2", "modern"), _python("fastmcp", "modern"), _node("ts2", "modern"))


class Run(Struct):
    """The client's output, the server's counts, and the HTTP requests between them."""

    peer: Peer
    steps: dict[str, dict[str, Any]]
    counts: Counter[str]
    requests: list[Request]
    client_errors: str
    server_complaints: str
    """The server's output without its banner."""


Way = Callable[[int], contextlib.AbstractContextManager[tuple[str, dict[str, str]]]]
"""Puts something more in front of a port; returns the URL, and the variables by which a client finds it."""


@contextlib.contextmanager
def directly(port: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Put nothing more in front."""
    yield f"http://127.0.0.1:{port}/mcp", {}


def over_http(peer: Peer, directory: Path, way: Way = directly, options: tuple[str, ...] = ()) -> Run:
    """Let the client talk to a server process through a proxy, which cuts three connections of a session."""
    cuts = [
        Cut(b"cut standalone", loses=False),
        Cut(b"step 2", loses=False),
        Cut(b"step 4", loses=True),
    ]
    if peer.mode == "modern":
        cuts = []
    with (
        serving(directory, peer.environment(directory), command=[*SERVE, *options]) as port,
        proxied(port, cuts) as proxy,
        way(proxy.port) as (url, environment),
    ):
        steps, errors = converse(peer, {**peer.asked(), "url": url}, environment)
    assert all(cut.done for cut in cuts), f"never came by: {cuts}"
    complaints = re.sub(r"(?s)\A.*?  clients   [^\n]*\n", "", (directory / LOG).read_text())
    return Run(peer, steps, counted(directory), proxy.requests, errors, complaints)


def over_stdio(peer: Peer, directory: Path) -> Run:
    """Let the client start the server itself."""
    command = {"command": [*SERVE, SERVER, "--stdio"], "env": peer.environment(directory)}
    steps, errors = converse(peer, {**peer.asked(), **command})
    return Run(peer, steps, counted(directory), [], errors, "")


def converse(
    peer: Peer, asked: dict[str, Any], environment: dict[str, str] | None = None
) -> tuple[dict[str, dict[str, Any]], str]:
    """Run a client to its end; return its output by step, and its errors."""
    with started(peer, asked, environment) as process:
        late = threading.Timer(PATIENCE, process.kill)
        late.start()
        printed, errors = process.communicate()
        late.cancel()
    assert process.returncode == 0, f"{peer} ended with {process.returncode}:\n{printed}\n{errors}"
    # Not splitlines(): it also splits at U+2028, which the clients send on purpose.
    steps = [json.loads(line) for line in printed.rstrip("\n").split("\n")]
    return {step.pop("step"): step for step in steps}, errors


def started(
    peer: Peer, asked: dict[str, Any], environment: dict[str, str] | None = None
) -> "subprocess.Popen[str]":
    """Start a client, with more variables if it needs them."""
    return subprocess.Popen(
        [*peer.command(), json.dumps(asked)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The scripts share modules; none of them sees our environment's packages.
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", **(environment or {})},
    )


@contextlib.contextmanager
def serving(
    directory: Path,
    environment: dict[str, str],
    server: str = SERVER,
    *,
    command: list[str] = SERVE,
    port: int = 0,
) -> Iterator[int]:
    """Run `limpet serve` on a port, by default a free one; stop it as an operator would, and expect it to obey."""
    log = directory / LOG
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, server, "--http", f"127.0.0.1:{port}"],
            stdout=errors,
            stderr=errors,
            env={**os.environ, **environment, "COLUMNS": "400"},
        )
    try:
        yield _port(process, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def _port(process: "subprocess.Popen[bytes]", log: Path) -> int:
    """Wait for the banner, which is printed when connections are accepted."""
    banner = re.compile(r"serving\s+http://127\.0\.0\.1:(\d+)/\S*mcp")
    wait_until(
        lambda: process.poll() is not None or bool(banner.search(log.read_text())), explain=log.read_text
    )
    found = banner.search(log.read_text())
    assert found is not None, log.read_text()
    return int(found[1])


def counted(directory: Path) -> Counter[str]:
    """Add up the numbers that each server process wrote when it stopped."""
    counts: Counter[str] = Counter()
    files = list(directory.glob("*.json"))
    assert files, "no server process stopped in order"
    for file in files:
        counts.update(json.loads(file.read_text()))
    return counts
