"""Servers that the client is tried against, each in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from limpet import Client
from limpet.client import ClientTimes
from tests.http.serving import wait_until_connected
from tests.support import BOUND, until
from tools.ports import free_port

ROOT: Final = Path(__file__).parents[2]
PEERS: Final = Path(__file__).parent / "peers"
PATIENT: Final = ClientTimes(connect=BOUND, probe=BOUND)
"""On a busy machine a Python program may need many seconds until it answers."""
SERVE: Final = (sys.executable, "-m", "limpet", "serve", "tests/client/small.py:server")


def peer_command(name: str) -> list[str]:
    """Return how the fan-out server of an official SDK (mcp1, mcp2) is started on stdio."""
    python = ROOT / ".peers" / name / "bin" / "python"
    if not python.exists():
        pytest.fail(f"{name} is not installed: run `make peers`")
    return [str(python), str(PEERS / f"fanout{name[-1]}.py")]


@contextmanager
def listening(command: list[str], port: int) -> Iterator[str]:
    """Run a server until the block ends; its URL once the port takes connections."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_connected(port, process)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


@contextmanager
def peer_listening(name: str) -> Iterator[str]:
    """Run an official SDK's fan-out server over HTTP."""
    port = free_port()
    with listening([*peer_command(name), str(port)], port) as url:
        yield url


@contextmanager
def small_listening(*options: str) -> Iterator[str]:
    """Run the small Limpet server over HTTP."""
    port = free_port()
    with listening([*SERVE, "--http", f"127.0.0.1:{port}", *options], port) as url:
        yield url


async def has_begun(client: Client, name: str) -> None:
    """Return when a call of the small server's tool `wait` has begun."""

    async def is_running() -> bool:
        return bool((await client.call_tool("has_begun", {"name": name})).data)

    await until(is_running)
