"""Servers to try from outside: as a process of its own, or in this loop where a test wants to look inside."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import IO

import msgspec
import uvicorn

from holdfast.engine.engine import Engine
from tests.http.back import DEFAULT, Config, ToolBack, build

ROOT = Path(__file__).parents[2]


class Process:
    """A server process, where it listens and what it has written."""

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

    def terminate(self, seconds: float) -> int:
        """Ask it to stop; return its exit code. Fails if it takes longer."""
        self._popen.send_signal(signal.SIGTERM)
        return self._popen.wait(seconds)

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()


def listening() -> socket.socket:
    """Return a socket that listens on a free port: nobody can take the port meanwhile."""
    sock = socket.create_server(("127.0.0.1", 0), backlog=2048)
    sock.setblocking(False)
    return sock


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
    return port


def wait_until_connected(port: int, popen: "subprocess.Popen[bytes]", seconds: float = 20.0) -> None:
    """Return when somebody accepts connections on the port."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert popen.poll() is None, f"the server ended with {popen.returncode}"
            assert time.monotonic() < deadline, "nobody listens"
            time.sleep(0.02)


@contextlib.contextmanager
def process(config: Config = DEFAULT) -> Iterator[Process]:
    """Run the test back as a process of its own; it is killed afterwards."""
    with listening() as sock, tempfile.TemporaryFile() as log:
        popen = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("back.py")),
                msgspec.json.encode(config),
                str(sock.fileno()),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            pass_fds=[sock.fileno()],
            stdout=log,
            stderr=log,
        )
        running = Process(sock.getsockname()[1], popen, log)
        sock.close()
        try:
            yield running
        finally:
            running.kill()


class Served:
    """A server in this loop."""

    def __init__(self, port: int, back: ToolBack, engine: Engine) -> None:
        self.port = port
        self.back = back
        self.engine = engine


@contextlib.asynccontextmanager
async def in_loop(config: Config = DEFAULT) -> AsyncIterator[Served]:
    """Serve on a real socket inside this loop."""
    back, engine, front = build(config)
    async with served(front) as port:
        yield Served(port, back, engine)


@contextlib.asynccontextmanager
async def served(app: object) -> AsyncIterator[int]:
    """Serve any ASGI application on a real socket; yield the port."""
    settings = uvicorn.Config(app, http="httptools", log_level="critical", timeout_graceful_shutdown=1)  # type: ignore[arg-type]
    settings.load()
    server = uvicorn.Server(settings)
    server.lifespan = settings.lifespan_class(settings)
    sock = listening()
    await server.startup(sockets=[sock])
    try:
        yield sock.getsockname()[1]
    finally:
        await server.shutdown(sockets=[sock])


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Return as soon as `condition()` is true; fail when it is not in time."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not become true in time"
        await asyncio.sleep(0.005)
