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
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Final

import msgspec
from typing_extensions import override

from limpet.config import Settings
from tests.chaos.databases import KINDS, Database, FailingRedis
from tests.chaos.history import Life, Outage
from tests.chaos.line import CUT, DEAF, HOLD, PASS, Line
from tests.chaos.replica import BEHIND, PEER, Entry, ReplicaConfig
from tests.programs import program
from tests.support import BOUND, until
from tests.workers.fleet import children
from tests.workers.fleet import lives as is_alive
from tools.ports import free_port

ROOT: Final = Path(__file__).parents[2]
_PATIENCE: Final = BOUND


def environment(code: Path) -> dict[str, str]:
    """Return the environment in which `limpet` and `tests` are those of a tree."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(code), str(code / "src")])}


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

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal that it survives."""
        os.kill(self.pid, number)

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
        back: str = "native",
        has_line: bool = False,
    ) -> None:
        self.home = home
        self._store = store
        self._back = back
        self.line: Line | None = Line() if has_line else None
        self.code = code
        self.settings = settings
        self._broken = broken
        self._anonymous = anonymous
        self._target = target
        """The target that `limpet serve` gets instead of the server on trial."""
        self.database: Database
        self.port = 0
        self.slots: list[Slot] = []
        self.outages: list[Outage] = []
        self._urls: dict[str, str] = {}
        """By address: the URL of the database."""
        self._behind: subprocess.Popen[bytes] | None = None
        self._behind_port = 0
        self._haproxy: subprocess.Popen[bytes] | None = None

    def program(self, name: str, port: int) -> list[str]:
        """Return the module that a replica runs, and its arguments."""
        if self._target:
            where = ("--http", f"127.0.0.1:{port}", "--store", self._url(name))
            return ["limpet", "serve", self._target, *where]
        config = ReplicaConfig(
            name=name,
            port=port,
            store=self._url(name),
            back=self._back,
            behind=f"http://127.0.0.1:{self._behind_port}/mcp",
            journal=str(self.home / f"{name}.journal"),
            settings=self.settings,
            anonymous=self._anonymous,
            broken=self._broken,
        )
        return ["tests.chaos.replica", msgspec.json.encode(config).decode()]

    def _url(self, name: str) -> str:
        """Return where a replica finds the database: on a way of its own, if there is one."""
        letter = name.partition(".")[0]
        if letter not in self._urls:
            ports = self.database.ports
            if self.line is not None:
                ports = tuple(self.line.open(letter, port) for port in ports)
            self._urls[letter] = self.database.url_at(*ports)
        return self._urls[letter]

    async def start(self, replicas: int) -> None:
        """Start everything and wait until it serves."""
        self.port, *ports = (free_port() for _ in range(replicas + 1))
        self.database = KINDS[self._store](self.home)
        if self._back == "url":
            self._behind_port = free_port()
            await self.start_behind()
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

    # What can go wrong beside the replicas

    @contextlib.contextmanager
    def outage(self, what: str, *, lost: bool = False) -> Iterator[None]:
        """Write down that something is not there."""
        one = Outage(time.time(), time.time() + 60, what, lost)
        self.outages.append(one)
        try:
            yield
        finally:
            one.over = time.time()

    async def restart_database(self, away: float) -> None:
        """End the database as a power loss would, and bring it back."""
        with self.outage("restart"):
            self.database.stop()
            await asyncio.sleep(away)
            await asyncio.to_thread(self.database.restart)

    async def pause_database(self, seconds: float) -> None:
        """Freeze the database."""
        pid = self.database.pid()
        with self.outage("pause"):
            os.kill(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(seconds)
            finally:
                os.kill(pid, signal.SIGCONT)

    async def fail_over(self, lag: float) -> None:
        """Lose the database, with everything that was written in the last `lag` seconds."""
        database = self.database
        assert isinstance(database, FailingRedis)
        assert self.line is not None
        with self.outage("failover", lost=True):
            database.part()
            await asyncio.sleep(lag)
            new, old = await asyncio.to_thread(database.fail_over)
            self.line.tell("lead", str(new), str(old))
        await asyncio.to_thread(database.follow)

    async def fill(self, seconds: float) -> None:
        """Let the database have no room."""
        with self.outage("full"):
            await asyncio.to_thread(self.database.fill)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(self.database.empty)

    async def part(self, slot: Slot, seconds: float) -> None:
        """Part one replica from the database: nothing passes, and nothing ends."""
        await self._bother(slot, HOLD, PASS, seconds)

    async def lose_replies(self, slot: Slot, seconds: float) -> None:
        """Let the commands of one replica reach the database, lose the replies, then cut its connections."""
        await self._bother(slot, DEAF, CUT, seconds)

    async def _bother(self, slot: Slot, mode: str, after: str, seconds: float) -> None:
        assert self.line is not None
        life = slot.lives[-1]
        at = len(life.stopped)
        life.stopped.append((time.time(), 0.0))
        self.line.tell(mode, slot.letter)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.line.tell(after, slot.letter)
            # Its connections are made again, and its lease is renewed.
            life.stopped[at] = (life.stopped[at][0], time.time() + 1.0)

    async def start_behind(self) -> None:
        """Start the server behind, and wait until it serves."""
        with (self.home / "behind.log").open("ab") as output:
            self._behind = subprocess.Popen(
                [str(PEER / "bin" / "python"), BEHIND, str(self._behind_port)],
                env={**os.environ, "CHAOS_JOURNALS": str(self.home)},
                stdout=output,
                stderr=output,
            )

        def accepts() -> bool:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self._behind_port), 1).close()
                return True
            return False

        await until(accepts, _PATIENCE, every=0.05)

    async def kill_behind(self, chance: Random) -> str:
        """Kill a process of the server behind: the only one, or the program of some session. Return its name."""
        with self.outage("behind"):
            if self._behind is not None:
                self._behind.kill()
                self._behind.wait()
                await asyncio.sleep(0.2)
                await self.start_behind()
                return "the server behind"
            programs = [pid for slot in self.slots if slot.is_up for pid in children(slot.pid)]
            await until(lambda: bool(programs) or bool(children(self.slots[0].pid)), every=0.05)
            pid = chance.choice(programs or children(self.slots[0].pid))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return f"the program {pid}"

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
        for popen in (*(slot.popen for slot in self.slots), self._haproxy, self._behind):
            if popen is not None:
                popen.kill()
                popen.wait()
        if hasattr(self, "database"):
            self.database.end()
        if self.line is not None:
            self.line.end()


class Worker(Slot):
    """One of the workers of `limpet serve --workers`: its parent starts the next one."""

    def __init__(self, fleet: "Crew", letter: str, port: int) -> None:
        super().__init__(fleet, letter, port)
        self._crew = fleet
        self._pid = 0

    @property
    @override
    def pid(self) -> int:
        return self._pid

    @override
    def start(self) -> None:
        """Its parent does."""

    @override
    async def ready(self) -> None:
        """Return when a worker serves that no other place has."""
        found: list[tuple[str, int]] = []

        def serves() -> bool:
            assert self._crew.parent.poll() is None, f"the parent of the workers ended\n{self._crew.said()}"
            taken = {slot.lives[-1].name for slot in self._crew.slots if slot.lives}
            found[:] = [one for one in self._crew.serving() if one[0] not in taken]
            return bool(found)

        await until(serves, _PATIENCE, every=0.05, explain=self._crew.said)
        name, self._pid = found[0]
        self.lives.append(Life(name, self._pid, time.time()))
        self.serves = True

    @override
    def kill(self) -> None:
        self.lives[-1].ended = time.time()
        os.kill(self._pid, signal.SIGKILL)
        self.stopped = self.serves = False

    @override
    async def terminate(self, seconds: float = _PATIENCE) -> int:
        self.serves = False
        life = self.lives[-1]
        life.leaving = time.time()
        os.kill(self._pid, signal.SIGTERM)
        await until(lambda: not is_alive(life.pid), seconds)
        life.ended = time.time()
        return 0


class Crew(Fleet):
    """One `limpet serve --workers`, without a balancer."""

    parent: subprocess.Popen[bytes]

    @override
    async def start(self, replicas: int) -> None:
        self.port = free_port()
        self.database = KINDS[self._store](self.home)
        config = ReplicaConfig(
            name="",
            port=self.port,
            store="",
            journal=str(self.home / "worker"),
            settings=self.settings,
            broken=self._broken,
        )
        options = [
            "--http",
            f"127.0.0.1:{self.port}",
            "--workers",
            str(replicas),
            "--store",
            self.database.url_at(),
        ]
        with (self.home / "workers.log").open("wb") as output:
            self.parent = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "limpet",
                    "serve",
                    str(Path(__file__).with_name("worker.py")),
                    *options,
                ],
                cwd=self.code,
                env={**environment(self.code), "CHAOS_WORKER": msgspec.json.encode(config).decode()},
                stdout=output,
                stderr=output,
            )
        self.slots = [Worker(self, chr(ord("a") + index), self.port) for index in range(replicas)]
        for slot in self.slots:
            await slot.ready()

    def serving(self) -> list[tuple[str, int]]:
        """Return the workers that are there, by name and process."""
        found = [(entry.replica, int(entry.value)) for entry in self.journal() if entry.what == "ready"]
        return [(name, pid) for name, pid in found if is_alive(pid)]

    def said(self) -> str:
        """Return the end of the log."""
        return (self.home / "workers.log").read_text(errors="replace")[-2_000:]

    async def replace_all(self) -> None:
        """Ask the parent to replace its workers one after another (SIGHUP), and wait until it has."""
        for slot in self.slots:
            slot.serves = False
            slot.lives[-1].leaving = time.time()
        self.parent.send_signal(signal.SIGHUP)
        for slot in self.slots:
            life = slot.lives[-1]
            await until(lambda life=life: not is_alive(life.pid), _PATIENCE, explain=self.said)
            life.ended = time.time()
        for slot in self.slots:
            await slot.ready()

    @override
    def end(self) -> None:
        if hasattr(self, "parent"):
            workers = children(self.parent.pid)
            self.parent.kill()
            self.parent.wait()
            for pid in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for slot in self.slots:
            slot.popen = None
        super().end()


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
    back: str = "native",
    workers: int = 0,
    has_line: bool = False,
    keep: Path | None = None,
) -> AsyncIterator[Fleet]:
    """Run a fleet. Afterwards nothing of it is left except, if wanted, a copy of its logs and journals."""
    with tempfile.TemporaryDirectory(prefix="limpet-chaos-") as home:
        kind = Crew if workers else Fleet
        running = kind(
            Path(home),
            settings,
            broken=broken,
            anonymous=anonymous,
            target=target,
            code=code,
            store=store,
            back=back,
            has_line=has_line,
        )
        try:
            await running.start(workers or replicas)
            await running.balanced()
            yield running
        finally:
            running.end()
            if keep is not None:
                shutil.copytree(home, keep, dirs_exist_ok=True)
