"""Servers of other SDKs behind Limpet, one of each kind: hosted in the process, on stdio, and over HTTP.

All of them have the tools of `hosted/parts.py`. The hosted ones run as `limpet serve` in the environment of their package;
the others are behind fronts of this process, on a thread of their own.
"""

import asyncio
import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from limpet import Process, Remote
from limpet.config import HttpSettings
from limpet.fronts.http.http1.start_and_stop import Service
from limpet.upstream.settings import ClientTimes
from tests.http.serving import listening, wait_until_connected
from tests.interop.peers import ROOT, serving
from tests.support import BOUND
from tools.ports import free_port

APPS: Final = Path(__file__).parent / "hosted"
FRAMEWORKS: Final = ("mcp1", "mcp2", "fastmcp")
QUICK: Final = ClientTimes(connect=BOUND, backoff=(0.01, 0.05))


class Row(NamedTuple):
    """A server, and the way in which Limpet stands in front of it."""

    server: str
    back: str

    def __str__(self) -> str:
        return f"{self.server}-{self.back}"


ROWS: Final = (
    *(Row(server, back) for server in FRAMEWORKS for back in ("hosted", "stdio", "http")),
    Row("ts", "stdio"),
    Row("ts", "http"),
)

AS_SESSIONS: Final = Row("mcp2", "http, as sessions")
"""Limpet uses sessions of this server for all clients: its functions can ask in the middle of a call only there."""
CHEAP: Final = tuple(
    row
    for row in ROWS
    if row.back == "hosted" or row.server not in {"mcp2", "fastmcp"} or row == ("mcp2", "http")
)
"""Every back, and every server where it makes a difference. A child of these two packages needs seconds to start."""


def peer(server: str) -> str:
    """Return the program that runs a server; a missing one fails the test."""
    path, make = (".node/bin/node", "node") if server == "ts" else (f".peers/{server}/bin/python", "peers")
    if not (ROOT / path).exists():
        pytest.fail(f"{path} is not installed: run `make {make}`")
    return str(ROOT / path)


def command(server: str, *port: str) -> list[str]:
    """Return how a server is started by its own SDK: on a port, or on stdio."""
    if server == "ts":
        return [peer(server), str(APPS / "ts_app.mjs"), *port]
    return [peer(server), str(APPS / "bare.py"), server, *port]


def limpet(framework: str, *words: str) -> list[str]:
    """Return a command line of limpet in the environment of a framework."""
    return [peer(framework), "-m", "limpet", *words]


def environment() -> dict[str, str]:
    """Return the variables by which an environment of a framework finds Limpet."""
    return {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONWARNINGS": "ignore"}


def app(framework: str, name: str = "mcp") -> str:
    """Return the target of `limpet serve` for an object of a framework."""
    return f"{APPS / f'{framework}_app.py'}:{name}"


@contextlib.contextmanager
def started(server: str, port: int, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a server by its own SDK over HTTP. Does not wait until it listens."""
    silent = subprocess.DEVNULL
    process = subprocess.Popen(command(server, str(port), *words), cwd=ROOT, stdout=silent, stderr=silent)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Fronts:
    """The ports of all rows, and of the bare HTTP servers."""

    def __init__(self, directory: Path) -> None:
        self._stack = contextlib.ExitStack()
        self.bare: dict[str, int] = {}
        """By server: the port of its own HTTP server."""
        self.ports: dict[Row, int] = {}
        with contextlib.ExitStack() as stack:
            self._start(stack, directory)
            self._stack = stack.pop_all()

    def _start(self, stack: contextlib.ExitStack, directory: Path) -> None:
        processes = {}
        for row in ROWS:
            if row.back == "http":
                port = self.bare[row.server] = free_port()
                processes[port] = stack.enter_context(started(row.server, port))
        self._serve_proxies(stack)
        for row in ROWS:
            if row.back == "hosted":
                room = directory / row.server
                room.mkdir()
                words = limpet(row.server, "serve")
                self.ports[row] = stack.enter_context(
                    serving(room, environment(), app(row.server), command=words)
                )
        for port, process in processes.items():
            wait_until_connected(port, process)

    def _serve_proxies(self, stack: contextlib.ExitStack) -> None:
        """Serve the rows that are not hosted, in one thread."""
        ready, stop = threading.Event(), threading.Event()

        async def run() -> None:
            async with contextlib.AsyncExitStack() as serving_all:
                for row in (*ROWS, AS_SESSIONS):
                    if row.back != "hosted":
                        sock = serving_all.enter_context(listening())
                        self.ports[row] = sock.getsockname()[1]
                        service = Service(self.target(row).front(HttpSettings()))
                        await serving_all.enter_async_context(service.running([sock]))
                ready.set()
                await asyncio.to_thread(stop.wait)

        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        stack.callback(thread.join)
        stack.callback(stop.set)
        assert ready.wait(BOUND), "the fronts do not listen"

    def target(self, row: Row) -> Process | Remote:
        """Return the proxy of a row that is not hosted."""
        if row.back == "stdio":
            return Process(command(row.server), times=QUICK)
        version = "sessions" if row == AS_SESSIONS else "auto"
        return Remote(url(self.bare[row.server]), protocol_version=version, times=QUICK)

    def close(self) -> None:
        """Stop everything."""
        self._stack.close()


def url(port: int) -> str:
    """Return the address of a server of this machine."""
    return f"http://127.0.0.1:{port}/mcp"
