"""Replicas behind a balancer on one database, Redis unless told otherwise: real processes on ports of their own, to be killed, stopped and started."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from holdfast.config import Settings
from tests.chaos.databases import KINDS, Database
from tests.chaos.replica import Entry, ReplicaConfig
from tests.programs import program
from tests.support import BOUND, until
from tools.ports import free_port

ROOT: Final = Path(__file__).parents[2]
_PATIENCE: Final = BOUND


def environment(code: Path) -> dict[str, str]:
    """Return the environment in which `holdfast` and `tests` are those of a tree."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(code), str(code / "src")])}


class Life(Struct):
    """One process at one address, from its start to its end."""

    name: str
    pid: int
    began: float
    leaving: float | None = None
    """When it was asked to end."""
    ended: float | None = None
    stopped: list[tuple[float, float]] = []
    """When it was stopped (SIGSTOP) and continued."""


class Slot:
    """One address behind the balancer, and the process that serves it now."""

    def __init__(self, fleet: "Fleet", letter: str, port: int) -> None:
        self._fleet = fleet
        self.letter = letter
        self.port = port
        self.code = fleet.code
        """The tree whose code the next process here runs."""
        self.popen: subprocess.Popen[bytes] | None = None
        self.lives: list[Life] = []
        self.stopped = False
        self.serves = False

    @property
    def is_up(self) -> bool:
        return self.serves and not self.stopped

    @property
    def pid(self) -> int:
        assert self.popen is not None
        return self.popen.pid

    def start(self) -> None:
        """Start a process here; `ready` tells when it serves."""
        name = f"{self.letter}.{len(self.lives) + 1}"
        log = self._fleet.home / f"{name}.log"
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", *self._fleet.program(name, self.port)],
                cwd=self.code,
                env=environment(self.code),
                stdout=output,
                stderr=output,
            )
        self.lives.append(Life(name, self.popen.pid, time.time()))

    async def ready(self) -> None:
        """Return when the process here accepts connections."""
        await until(self._accepts, _PATIENCE, every=0.05, explain=self._log)
        self.serves = True

    def _accepts(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            assert self.popen is not None
            assert self.popen.poll() is None, f"the replica ended\n{self._log()}"
            return False
        return True

    def _log(self) -> str:
        name = self.lives[-1].name
        return f"replica {name}:\n{(self._fleet.home / f'{name}.log').read_text(errors='replace')[-2000:]}"

    def kill(self) -> None:
        """End it as a machine that loses power would."""
        assert self.popen is not None
        self.lives[-1].ended = time.time()
        self.popen.kill()
        self.popen.wait()
        self.stopped = self.serves = False

    def stop(self) -> None:
        """Freeze it."""
        os.kill(self.pid, signal.SIGSTOP)
        self.stopped = True
        self.lives[-1].stopped.append((time.time(), 0.0))

    def go_on(self) -> None:
        """Let it continue as if nothing had happened."""
        began, _ = self.lives[-1].stopped[-1]
        self.lives[-1].stopped[-1] = (began, time.time())
        self.stopped = False
        os.kill(self.pid, signal.SIGCONT)

    async def terminate(self, seconds: float = _PATIENCE) -> int:
        """Ask it to drain and end; return its exit code."""
        assert self.popen is not None
        self.serves = False
        self.lives[-1].leaving = time.time()
        self.popen.send_signal(signal.SIGTERM)
        popen, name = self.popen, self.lives[-1].name
        await until(lambda: popen.poll() is not None, seconds, explain=lambda: f"replica {name} does not end")
        self.lives[-1].ended = time.time()
        return self.popen.returncode


class Fleet:
    """A database, replicas and the balancer, in one directory."""

    def __init__(
        self,
        home: Path,
        settings: Settings,
        *,
        broken: str = "",
        anonymous: bool = False,
        target: str = "",
        code: Path = ROOT,
        store: str = "redis",
    ) -> None:
        self.home = home
        self._store = store
        self.code = code
        self.settings = settings
        self._broken = broken
        self._anonymous = anonymous
        self._target = target
        """The target that `holdfast serve` gets instead of the server on trial."""
        self.database: Database
        self.port = 0
        self.slots: list[Slot] = []
        self.outages: list[tuple[float, float]] = []
        """When the database was unavailable."""
        self._haproxy: subprocess.Popen[bytes] | None = None

    def program(self, name: str, port: int) -> list[str]:
        """Return the module that a replica runs, and its arguments."""
        if self._target:
            where = ("--http", f"127.0.0.1:{port}", "--store", self.database.url)
            return ["holdfast", "serve", self._target, *where]
        config = ReplicaConfig(
            name=name,
            port=port,
            store=self.database.url,
            journal=str(self.home / f"{name}.journal"),
            settings=self.settings,
            anonymous=self._anonymous,
            broken=self._broken,
        )
        return ["tests.chaos.replica", msgspec.json.encode(config).decode()]

    async def start(self, replicas: int) -> None:
        """Start everything and wait until it serves."""
        self.port, *ports = (free_port() for _ in range(replicas + 1))
        self.database = KINDS[self._store](self.home)
        self.slots = [Slot(self, chr(ord("a") + index), port) for index, port in enumerate(ports)]
        for slot in self.slots:
            slot.start()
        for slot in self.slots:
            await slot.ready()
        self._start_balancer()

    def _start_balancer(self) -> None:
        servers = "\n".join(
            f"  server {slot.letter} 127.0.0.1:{slot.port} check inter 500ms fall 2 rise 1"
            for slot in self.slots
        )
        config = self.home / "haproxy.cfg"
        # Without abortonclose a replica notices a client's cut only when it writes.
        config.write_text(f"""
global
  maxconn 8000
defaults
  mode http
  timeout connect 1s
  timeout check 1s
  timeout client 120s
  timeout server 120s
  retries 3
  retry-on conn-failure
  option redispatch 1
  option abortonclose
  option httpchk GET /readyz
listen balancer
  bind 127.0.0.1:{self.port}
  balance roundrobin
{servers}
""")
        with (self.home / "haproxy.log").open("wb") as output:
            self._haproxy = subprocess.Popen(
                [program("haproxy"), "-db", "-f", str(config)], stdout=output, stderr=output
            )

    async def balanced(self) -> None:
        """Return when the balancer passes requests on."""

        async def passes() -> bool:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                return False
            writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
            head = await reader.readline()
            writer.close()
            return b" 200 " in head

        await until(passes, _PATIENCE, every=0.05)

    async def restart_database(self, away: float) -> None:
        """End the database as a power loss would, and bring it back."""
        began = time.time()
        self.outages.append((began, began + away + 60))
        self.database.stop()
        await asyncio.sleep(away)
        await asyncio.to_thread(self.database.restart)
        self.outages[-1] = (began, time.time())

    def lives(self) -> list[Life]:
        """Return every process there has been."""
        return [life for slot in self.slots for life in slot.lives]

    def journal(self) -> list[Entry]:
        """Return all journals in the order of time."""
        entries: list[Entry] = []
        for path in self.home.glob("*.journal"):
            for line in path.read_bytes().splitlines():
                with contextlib.suppress(msgspec.DecodeError):
                    entries.append(msgspec.json.decode(line, type=Entry))
        return sorted(entries, key=lambda entry: entry.at)

    def logs(self) -> dict[str, str]:
        """Return the logs of all processes."""
        return {path.stem: path.read_text(errors="replace") for path in sorted(self.home.glob("*.log"))}

    def end(self) -> None:
        """End every process."""
        for popen in (*(slot.popen for slot in self.slots), self._haproxy):
            if popen is not None:
                popen.kill()
                popen.wait()
        if hasattr(self, "database"):
            self.database.end()


@contextlib.asynccontextmanager
async def fleet(
    settings: Settings,
    *,
    replicas: int = 3,
    broken: str = "",
    anonymous: bool = False,
    target: str = "",
    code: Path = ROOT,
    store: str = "redis",
    keep: Path | None = None,
) -> AsyncIterator[Fleet]:
    """Run a fleet. Afterwards nothing of it is left except, if wanted, a copy of its logs and journals."""
    with tempfile.TemporaryDirectory(prefix="holdfast-chaos-") as home:
        running = Fleet(
            Path(home), settings, broken=broken, anonymous=anonymous, target=target, code=code, store=store
        )
        try:
            await running.start(replicas)
            await running.balanced()
            yield running
        finally:
            running.end()
            if keep is not None:
                shutil.copytree(home, keep, dirs_exist_ok=True)
