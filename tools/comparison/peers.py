"""The servers that are compared: how each one is started, with which version."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
SERVERS: Final = Path(__file__).parent / "servers"
VERSIONS: Final = dict(
    line.split("=", 1)
    for line in (ROOT / "tools" / "versions.env").read_text().splitlines()
    if "=" in line and not line.startswith("#")
)
START_SECONDS: Final = 60.0


class Peer(NamedTuple):
    """A package, and the server that is written with it."""

    name: str
    version: str
    program: str
    words: tuple[str, ...]

    def command(self, port: int, store: Path) -> list[str]:
        """Return the command line of the server. Only Limpet has a store."""
        words = [word.format(port=port, store=store) for word in self.words]
        return [self.program, *words]


def _python(name: str, key: str, script: str) -> Peer:
    return Peer(f"`{name}`", VERSIONS[key], str(ROOT / ".peers" / key.lower() / "bin" / "python"), (script,))


PEERS: Final = (
    Peer(
        "Limpet",
        "",
        sys.executable,
        (
            *("-m", "limpet", "serve", f"{SERVERS / 'of_limpet.py'}:server", "--log-level", "error"),
            *("--http", "127.0.0.1:{port}", "--store", "sqlite:///{store}"),
        ),
    ),
    _python("mcp", "MCP1", str(SERVERS / "of_mcp.py")),
    _python("mcp", "MCP2", str(SERVERS / "of_mcp.py")),
    _python("fastmcp", "FASTMCP", str(SERVERS / "of_fastmcp.py")),
    Peer(
        "TypeScript SDK",
        VERSIONS["TS_SERVER"],
        str(ROOT / ".node" / "bin" / "node"),
        (str(SERVERS / "of_typescript.mjs"),),
    ),
)


@contextmanager
def started(peer: Peer, port: int, store: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a server, and kill it at the end. Does not wait until it listens."""
    if not Path(peer.program).exists():
        raise RuntimeError(f"{peer.program} is not installed: run `make peers` and `make node`")
    packages = str(ROOT / ".peers" / "typescript")
    process = subprocess.Popen(
        peer.command(port, store),
        env={
            **os.environ,
            "PORT": str(port),
            "PACKAGES": packages,
            "PYTHONWARNINGS": "ignore",
            "RUNS": f"{store}.runs",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_until_connected(port: int, process: "subprocess.Popen[bytes]") -> None:
    """Return when the server accepts connections."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} does not listen; its exit status is {process.poll()}")
        time.sleep(0.05)
