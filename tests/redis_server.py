"""Real Redis servers for tests: one, a primary with a replica, a cluster of three, a sentinel. They leave nothing."""

import contextlib
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import pytest

from tests.support import BOUND, wait_until
from tools.ports import free_port

needs_redis = pytest.mark.skipif(
    shutil.which("redis-server") is None,
    reason="redis-server is not installed; tools/install-system.sh installs it",
)

PATIENCE: Final = BOUND


def _printed(answer: BinaryIO) -> Iterator[str]:
    """Read one answer of the protocol; yields its lines."""
    head = answer.readline()
    if not head.endswith(b"\r\n"):
        raise ConnectionResetError
    kind, told = head[:1], head[1:-2].decode()
    if kind == b"*":
        for _ in range(int(told)):
            yield from _printed(answer)
    elif kind == b"$" and int(told) >= 0:
        yield answer.read(int(told) + 2)[:-2].decode(errors="replace")
    else:
        yield "" if kind == b"$" else told


class RedisServer:
    """One redis-server process on a port of its own, in a directory of its own."""

    def __init__(
        self, directory: Path, *options: str, port: int = 0, sentinel: str = "", program: str = "redis-server"
    ) -> None:
        self.port = port or free_port()
        self._home = directory
        self._options = options
        self._sentinel = sentinel
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._home.mkdir(exist_ok=True)
        command = [self._program]
        if self._sentinel:
            config = self._home / "sentinel.conf"
            config.write_text(self._sentinel)
            command += [str(config), "--sentinel"]
        command += ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._home)]
        if not self._sentinel:
            command += ["--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            [*command, *self._options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_until(lambda: "PONG" in self.tell("PING"))
        except BaseException:
            self.stop()
            raise

    def tell(self, *words: str) -> str:
        """Send a command; return the text that redis-cli prints, empty if the server is not running."""
        asked = [word.encode() for word in words]
        try:
            with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as line:
                line.sendall(
                    b"*%d\r\n" % len(asked) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in asked)
                )
                with line.makefile("rb") as answer:
                    return "\n".join(_printed(answer)).strip()
        except ConnectionError:
            return ""

    def dump(self) -> bytes:
        """Return all that it keeps, as it would be on the disk, uncompressed."""
        self.tell("CONFIG", "SET", "rdbcompression", "no")
        assert self.tell("SAVE") == "OK"
        return (self._home / "dump.rdb").read_bytes()

    def stop(self) -> None:
        """End it as a machine that loses power would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def redis_server(*options: str, program: str = "redis-server") -> Iterator[RedisServer]:
    """Run one server."""
    with tempfile.TemporaryDirectory() as directory:
        server = RedisServer(Path(directory) / "one", *options, program=program)
        try:
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def redis_pair() -> Iterator[tuple[RedisServer, RedisServer]]:
    """Run a primary and a replica that has caught up."""
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        primary = RedisServer(Path(directory) / "primary", "--repl-diskless-sync-delay", "0")
        stack.callback(primary.stop)
        replica = RedisServer(Path(directory) / "replica", "--replicaof", "127.0.0.1", str(primary.port))
        stack.callback(replica.stop)
        wait_until(lambda: "master_link_status:up" in replica.tell("INFO", "replication"))
        yield primary, replica


def replicate(primary: RedisServer, replica: RedisServer) -> None:
    """Wait until the replica has everything that is on the primary now."""

    def offset(server: RedisServer, name: str) -> int:
        found = [line for line in server.tell("INFO", "replication").splitlines() if line.startswith(name)]
        return int(found[0].partition(":")[2])

    wanted = offset(primary, "master_repl_offset")
    wait_until(lambda: offset(replica, "slave_repl_offset") >= wanted)


@contextlib.contextmanager
def redis_cluster() -> Iterator[list[RedisServer]]:
    """Run a cluster of three. A node is marked as failing after a minute: a busy machine must not look like a failure."""
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        nodes, addresses = [], []
        for number in range(3):
            bus = free_port()
            options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "60000")
            node = RedisServer(Path(directory) / str(number), *options, "--cluster-port", str(bus))
            stack.callback(node.stop)
            nodes.append(node)
            addresses.append(f"127.0.0.1:{node.port}@{bus}")
        made = subprocess.run(
            ["redis-cli", "--cluster", "create", *addresses, "--cluster-yes"],
            capture_output=True,
            check=False,
        )
        assert made.returncode == 0, made.stdout
        wait_until_whole(nodes)
        yield nodes


def wait_until_whole(nodes: list[RedisServer]) -> None:
    """Wait until every node of a cluster takes commands; one that has started again needs seconds."""
    wait_until(lambda: all("cluster_state:ok" in node.tell("CLUSTER", "INFO") for node in nodes))
