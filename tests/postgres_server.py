"""Real PostgreSQL servers for tests: one, a primary with a standby, a pooler in front. They leave nothing.

PostgreSQL does not run as root: then the servers run as the user of Debian's package. Each has a directory and a port of its own. They write
nothing to the disk where durability is not the subject.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support import wait_until
from tools.ports import free_port

USER: Final = "postgres"
ROLE: Final = "limpet"
_INSTALLED: Final = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
FAST: Final = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")
_SMALL: Final = (
    "shared_buffers=16MB",
    "max_connections=60",
    "listen_addresses=127.0.0.1",
    "wal_level=replica",
    "max_wal_senders=2",
    "max_wal_size=128MB",
    "min_wal_size=32MB",
)
needs_postgres = pytest.mark.skipif(
    not _INSTALLED, reason="PostgreSQL is not installed; tools/install-system.sh installs it"
)
PGBOUNCER: Final = os.environ.get("PGBOUNCER") or shutil.which(
    "pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin"
)
"""The pooler: that of the system, or another version (docs/stores.md)."""
needs_pgbouncer = pytest.mark.skipif(
    PGBOUNCER is None,
    reason="pgbouncer is not installed; tools/install-system.sh installs it",
)


def program(name: str) -> str:
    """Return the path of a program of the newest PostgreSQL."""
    return str(_INSTALLED[-1].parent / name)


def _as_user() -> dict[str, Any]:
    """Return who runs the servers."""
    return {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}


def _give(path: Path) -> Path:
    """Let the user of the servers use a path."""
    if os.geteuid() == 0:
        shutil.chown(path, USER, USER)
    return path


def run(*command: str) -> None:
    """Run a program of PostgreSQL."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", **_as_user())
    assert done.returncode == 0, done.stderr


class PostgresServer:
    """One server."""

    def __init__(self, home: Path, *settings: str, data: str = "data") -> None:
        self.home = home
        self.data = home / data
        self.port = free_port()
        self.settings: list[str] = [*_SMALL, *settings]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"postgres://{ROLE}@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    def make(self, *options: str) -> None:
        """Make an empty database."""
        run(program("initdb"), "-D", str(self.data), "-U", ROLE, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions", *options)  # fmt: skip

    def start(self, *, ready: bool = True) -> None:
        """Start it and wait until it answers."""
        options = [word for one in self.settings for word in ("-c", one)]
        with (self.home / f"{self.data.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [program("postgres"), "-D", str(self.data), "-p", str(self.port), "-k", str(self.home), *options],
                stdout=log,
                stderr=log,
                cwd="/",
                **_as_user(),
            )  # fmt: skip
        if ready:
            try:
                wait_until(self.answers, explain=self.log)
            except BaseException:
                self.stop()
                raise

    def log(self) -> str:
        """Return the end of its log."""
        return (self.home / f"{self.data.name}.log").read_text(errors="replace")[-3_000:]

    def answers(self) -> bool:
        """Return True if it takes connections."""
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            done = subprocess.run(
                [program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False
            )
            return done.returncode == 0
        return False

    def tell(self, statement: str, *, database: str = "postgres") -> str:
        """Run statements; return the output of psql."""
        command = [program("psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port), "-U", ROLE, "-d", database]  # fmt: skip
        done = subprocess.run(command, input=statement, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def has_ended(self) -> bool:
        """Return True if it has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End it at once; with SIGINT in order."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None


def server_home(path: Path) -> Path:
    """Make a directory that the servers may use. Those above it must let others pass."""
    path.mkdir()
    if os.geteuid() == 0:
        for above in path.parents[: len(path.parents) - 2]:
            above.chmod(above.stat().st_mode | 0o011)
    return _give(path)


def make_standby(primary: PostgresServer, *settings: str) -> PostgresServer:
    """Start a standby that streams from a primary."""
    standby = PostgresServer(primary.home, *(settings or FAST), data="standby")
    run(program("pg_basebackup"), "-h", "127.0.0.1", "-p", str(primary.port), "-U", ROLE, "-D", str(standby.data), "-R", "-X", "stream", "-c", "fast", "--no-sync")  # fmt: skip
    standby.start()
    return standby


@contextlib.contextmanager
def postgres_home() -> Iterator[Path]:
    """Return a directory that the servers may use."""
    with tempfile.TemporaryDirectory(prefix="limpet-pg-", ignore_cleanup_errors=True) as home:
        yield _give(Path(home))


@contextlib.contextmanager
def postgres_server(*settings: str) -> Iterator[PostgresServer]:
    """Run one server."""
    with postgres_home() as home:
        server = PostgresServer(home, *(settings or FAST))
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def postgres_pair() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """Run a primary and a standby that streams from it."""
    with postgres_home() as home, contextlib.ExitStack() as stack:
        primary = PostgresServer(home, *FAST, data="primary")
        primary.make()
        primary.start()
        stack.callback(primary.stop)
        standby = make_standby(primary)
        stack.callback(standby.stop)
        yield primary, standby


def replicate(primary: PostgresServer, standby: PostgresServer) -> None:
    """Wait until the standby has everything that is on the primary now."""
    wanted = primary.tell("SELECT pg_current_wal_insert_lsn()")
    primary.tell("SELECT pg_switch_wal()")
    wait_until(lambda: standby.tell(f"SELECT pg_last_wal_replay_lsn() >= '{wanted}'") == "t")


@contextlib.contextmanager
def pgbouncer(server: PostgresServer, *settings: str) -> Iterator[str]:
    """Run a pooler in transaction mode with two connections to a server; yield its URL."""
    with postgres_home() as home:
        port = free_port()
        (home / "users").write_text(f'"{ROLE}" ""\n')
        lines = [
            "[databases]",
            f"postgres = host=127.0.0.1 port={server.port}",
            "[pgbouncer]",
            *(f"listen_addr = 127.0.0.1, listen_port = {port}, pool_mode = transaction, default_pool_size = 2".split(", ")),
            *(f"auth_type = trust, auth_file = {home}/users, unix_socket_dir =, logfile = {home}/log".split(", ")),
            *settings,
        ]  # fmt: skip
        (home / "ini").write_text("\n".join(lines))
        for path in home.iterdir():
            _give(path)
        command = [PGBOUNCER or "pgbouncer", "-q", str(home / "ini")]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd="/", **_as_user())

        def accepts() -> bool:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                return True
            return False

        try:
            wait_until(accepts)
            yield f"postgres://{ROLE}@127.0.0.1:{port}/postgres"
        finally:
            process.kill()
            process.wait()
