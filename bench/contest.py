"""Servers pinned to one core, driven from the other, in short interleaved slices.

These machines are noisy: figures of different runs say little, ratios of neighbouring slices
say much. Every answer is verified by the load generator; a run with one wrong answer is no run.
"""

import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent
SERVER_CORE, LOAD_CORE = "0", "1"
_START_SECONDS = 20.0


class Contestant(NamedTuple):
    """A server: its name, the command that runs it on $PORT, and how it is called."""

    name: str
    command: list[str]
    folder: Path
    modern: bool = False
    """Whether each request stands alone (2026-07-28), or all are of one session."""
    env: Mapping[str, str] = {}
    """Variables beside those of this process and $PORT."""
    core: str = SERVER_CORE


LIMIT = Contestant("bare uvicorn", [sys.executable, "limit_asgi.py"], ROOT / "limits")
HOLDFAST = Contestant(
    "holdfast",
    [
        str(Path(sys.executable).parent / "holdfast"),
        "serve",
        "echo.py:server",
        "--http",
        "127.0.0.1:{port}",
        "--log-level",
        "error",
    ],
    ROOT / "servers",
)
MODERN = HOLDFAST._replace(name="holdfast 2026", modern=True)


class Slice(NamedTuple):
    """One server under load for a moment."""

    per_second: float
    cpu_us: float
    p50_us: float
    p99_us: float


class Running:
    """A started server, with one session if it is called on one."""

    def __init__(self, contestant: Contestant, port: int) -> None:
        self.name = contestant.name
        self.port = port
        command = [part.format(port=port) for part in contestant.command]
        self.process = subprocess.Popen(
            ["taskset", "-c", contestant.core, *command],
            cwd=contestant.folder,
            env={**os.environ, "PORT": str(port), **contestant.env},
            start_new_session=True,
        )
        self.url = f"http://127.0.0.1:{port}/mcp"
        self._wait_until_open()
        self._era = [] if contestant.modern else [self._initialize()]

    def _wait_until_open(self) -> None:
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"{self.name} did not start") from None
                time.sleep(0.01)

    def _initialize(self) -> str:
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "bench", "version": "1"},
            },
        }
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), headers)  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - loopback
            return str(response.headers["Mcp-Session-Id"])

    def cpu_seconds(self) -> float:
        """Return the processor time the server has used so far."""
        total = 0.0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            total += int((task / "schedstat").read_text(encoding="ascii").split()[0]) / 1e9
        return total

    def load(self, connections: int, seconds: float) -> Slice:
        """Drive it for a moment; every answer is checked."""
        before = self.cpu_seconds()
        done = subprocess.run(
            ["taskset", "-c", LOAD_CORE, "wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--timeout", "10s",
             "-s", str(ROOT / "echo.lua"), self.url, "--", *self._era],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        found = re.search(r"RESULT (\{.*\})", done.stdout)
        if found is None:
            raise RuntimeError(f"{self.name}: wrk said {done.stdout[-500:]}")
        result: dict[str, Any] = json.loads(found[1])
        if result["bad"] or result["errors"] or not result["good"]:
            raise RuntimeError(f"{self.name}: wrong answers: {result}")
        cpu = (self.cpu_seconds() - before) / result["requests"] * 1e6
        return Slice(result["requests"] / result["seconds"], cpu, result["p50"], result["p99"])

    def stop(self) -> None:
        """End it."""
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextmanager
def running(contestants: list[Contestant]) -> Iterator[list[Running]]:
    """Start all of them; idle ones cost nothing."""
    for program in ("wrk", "taskset"):
        if shutil.which(program) is None:
            raise RuntimeError(f"{program} is missing: tools/install-system.sh installs it")
    with ExitStack() as stack:
        servers = []
        for contestant in contestants:
            server = Running(contestant, free_port())
            stack.callback(server.stop)
            servers.append(server)
        yield servers


def contest(
    contestants: list[Contestant], *, connections: int, rounds: int, seconds: float, warm_up: int = 1
) -> dict[str, list[Slice]]:
    """Return the slices of each, measured A, B, A, B, …; the first `warm_up` rounds are not counted."""
    slices: dict[str, list[Slice]] = {contestant.name: [] for contestant in contestants}
    with running(contestants) as servers:
        for number in range(warm_up + rounds):
            for server in servers:
                measured = server.load(connections, seconds)
                if number >= warm_up:
                    slices[server.name].append(measured)
    return slices


def ratio(slices: dict[str, list[Slice]], name: str, reference: str) -> float:
    """Return the median over rounds of requests per second beside the reference's of the same round."""
    pairs = zip(slices[name], slices[reference], strict=True)
    return statistics.median(ours.per_second / theirs.per_second for ours, theirs in pairs)


def cpu_ratio(slices: dict[str, list[Slice]], name: str, reference: str) -> float:
    """Return the reference's processor time per request as a part of ours: what noise disturbs least."""
    return min(s.cpu_us for s in slices[reference]) / min(s.cpu_us for s in slices[name])


def free_port() -> int:
    """Return a port that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
