"""Servers to try from outside: as a process of its own, or in this loop where a test wants to look inside."""

import asyncio
import contextlib
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

import uvicorn

from limpet.engine.engine import Engine
from limpet.fronts.http.http1.start_and_stop import Service
from limpet.fronts.http.read.request import Application
from limpet.ports import Clock
from tests.http.back import DEFAULT, Config, ToolBack, build
from tests.http.client import Connection
from tests.support import BOUND, wait_until

ROOT = Path(__file__).parents[2]
ADDRESS = re.compile(r"serving\s+https?://127\.0\.0\.1:(\d+)/")

LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Runs a program with a soft and a hard limit of descriptors."""


class Process:
    """A server process: its port and its output."""

    def __init__(self, port: int, popen: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        self.port = port
        self._popen = popen
        self._log = log

    @property
    def pid(self) -> int:
        return self._popen.pid

    def output(self) -> str:
        """Return everything it has written so far."""
        self._log.seek(0)
        return self._log.read().decode()

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._popen.send_signal(number)

    def ended(self, seconds: float) -> int:
        """Wait for its end; return its exit code. Fails if it takes longer."""
        return self._popen.wait(seconds)

    def terminate(self, seconds: float) -> int:
        """Ask it to stop; return its exit code. Fails if it takes longer."""
        self.tell(signal.SIGTERM)
        return self.ended(seconds)


def listening() -> socket.socket:
    """Return a socket that listens on a free port, so that no other process can take the port."""
    sock = socket.create_server(("127.0.0.1", 0), backlog=2048)
    sock.setblocking(False)
    return sock


def wait_until_connected(port: int, popen: "subprocess.Popen[bytes]", seconds: float = BOUND) -> None:
    """Return when the process accepts connections on the port."""

    def connects() -> bool:
        assert popen.poll() is None, f"the server ended with {popen.returncode}"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_until(connects, seconds)


@contextlib.contextmanager
def process(config: Config = DEFAULT) -> Iterator[Process]:
    """Run the test back as a process of its own, served as `limpet serve` does; it is killed afterwards."""
    with listening() as sock:
        program = [sys.executable, str(Path(__file__).with_name("back.py"))]
        command = [*program, pickle.dumps(config).hex(), str(sock.fileno())]
        with _running(command, sock.fileno()) as (popen, log):
            port = sock.getsockname()[1]
            sock.close()
            wait_until_connected(port, popen)
            yield Process(port, popen, log)


@contextlib.contextmanager
def limpet_serve(target: str, *options: str, descriptors: tuple[int, int] | None = None) -> Iterator[Process]:
    """Run `limpet serve` on a free port; it is killed afterwards. `descriptors`: its soft and its hard limit."""
    command = [sys.executable, "-m", "limpet", "serve", target, "--http", "127.0.0.1:0", *options]
    if descriptors is not None:
        command = [sys.executable, "-c", LIMITED, *map(str, descriptors), *command]
    with _running(command) as (popen, log):

        def output() -> str:
            log.seek(0)
            return log.read().decode()

        wait_until(lambda: popen.poll() is not None or bool(ADDRESS.search(output())), explain=output)
        found = ADDRESS.search(output())
        assert found is not None, f"the server ended with {popen.returncode}: {output()}"
        wait_until_connected(int(found[1]), popen)
        yield Process(int(found[1]), popen, log)


@contextlib.contextmanager
def _running(command: list[str], *fds: int) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    with tempfile.TemporaryFile() as log:
        popen = subprocess.Popen(
            command,
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
                "PYTHONUNBUFFERED": "1",
            },
            pass_fds=fds,
            stdout=log,
            stderr=log,
        )
        try:
            yield popen, log
        finally:
            popen.kill()
            popen.wait()


class Served:
    """A server in this loop."""

    def __init__(self, port: int, back: ToolBack, engine: Engine) -> None:
        self.port = port
        self.back = back
        self.engine = engine


@contextlib.asynccontextmanager
async def in_loop(config: Config = DEFAULT, clock: Clock | None = None) -> AsyncIterator[Served]:
    """Serve on a real socket inside this loop, as `limpet serve` does."""
    back, engine, front = build(config, clock)
    with listening() as sock:
        async with Service(front).running([sock]):
            try:
                yield Served(sock.getsockname()[1], back, engine)
            finally:
                await Connection.cut_all()


@contextlib.asynccontextmanager
async def under_uvicorn(app: Application) -> AsyncIterator[int]:
    """Run an application by uvicorn, which takes no signals; yield the port. Requests that hang at the end are cancelled."""
    config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    sock = listening()
    await server.startup(sockets=[sock])
    try:
        yield sock.getsockname()[1]
    finally:
        await Connection.cut_all()
        await server.shutdown(sockets=[sock])
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)
