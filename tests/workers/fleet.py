"""Real `limpet serve` processes: their ids, children and output. They leave nothing behind."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from tests.http.client import Client, Connection, Cut, call, value
from tests.messages import Json
from tests.support import BOUND, wait_until

ROOT: Final = Path(__file__).parents[2]
SHOP: Final = str(Path(__file__).with_name("shop.py"))
PATIENCE: Final = BOUND


class Fleet:
    """One `limpet serve`, and the workers it has."""

    def __init__(self, popen: "subprocess.Popen[bytes]", log: IO[bytes], home: Path) -> None:
        self.popen = popen
        self._log = log
        self.home = home
        """Where it puts its temporary files."""
        self.port = 0

    @property
    def pid(self) -> int:
        return self.popen.pid

    def output(self) -> str:
        """Return everything it has written so far."""
        return os.pread(self._log.fileno(), 1 << 20, 0).decode()

    def workers(self) -> list[int]:
        """Return the processes it has started."""
        return children(self.pid)

    def wait_until_ready(self) -> None:
        wait_until(lambda: self.popen.poll() is not None or bool(self._said_where()))
        assert self.popen.poll() is None, self.output()
        self.port = int(self._said_where()[0])

    def _said_where(self) -> list[str]:
        return re.findall(r"serving +http://127\.0\.0\.1:(\d+)/", self.output())

    def tell(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def press_ctrl_c(self) -> None:
        """Send the signal of a terminal: to the parent and its workers at once."""
        os.killpg(self.pid, signal.SIGINT)

    def end(self, seconds: float = PATIENCE) -> int:
        """Ask it to stop; return its exit status."""
        self.tell(signal.SIGTERM)
        return self.popen.wait(seconds)


def children(pid: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in path.read_text().split()]
    return sorted(found)


def lives(pid: int) -> bool:
    """True if a process runs; a zombie does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@contextlib.contextmanager
def fleet(
    *options: str, env: dict[str, str] | None = None, http: str = "127.0.0.1:0", target: str = SHOP
) -> Iterator[Fleet]:
    """Run `limpet serve`, on the shop if nothing else is named. Afterwards no process and no file of it is left."""
    with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory() as home:
        popen = subprocess.Popen(
            [sys.executable, "-m", "limpet", "serve", target, "--http", http, *options],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "TMPDIR": home, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        started: set[int] = set()
        running = Fleet(popen, log, Path(home))
        try:
            running.wait_until_ready()
            started.update(running.workers())
            yield running
        finally:
            started.update(running.workers())
            if popen.poll() is None:
                running.tell(signal.SIGTERM)
            try:
                popen.wait(PATIENCE)
                wait_until(lambda: not any(map(lives, started)))
            finally:
                popen.kill()
                for pid in filter(lives, started):
                    os.kill(pid, signal.SIGKILL)
            assert list(Path(home).iterdir()) == [], "files are left"


class Anywhere(Client):
    """A client whose requests go to one replica after another, as behind a balancer."""

    ports: tuple[int, ...] = ()

    def turn(self) -> None:
        """Take the next replica."""
        if self.ports:
            self.ports = (*self.ports[1:], self.ports[0])
            self.port = self.ports[0]


async def at_every(ports: tuple[int, ...]) -> Anywhere:
    """Return a client with a session, opened at the first replica."""
    client = await Anywhere.opened(ports[0])
    client.ports = ports
    return client


async def increments(client: Anywhere, count: int) -> None:
    """Count in the session, each time on the next of three connections, which may lead to three replicas."""
    connections = [await Connection.open(port) for port in (client.ports * 3)[:3]]
    for number in range(count):
        response = await client.start("bump", on=connections[number % 3])
        assert isinstance(value(await response.answer()), int)


class Journey:
    """One call through restarts of replicas: resumed at another, sent again where it was refused before it ran."""

    def __init__(self, client: Anywhere, tool: str, **args: Json) -> None:
        self._client = client
        self._message = call(next(client.numbers), tool, **args)
        self._last_id = ""
        self.messages: list[Json] = []
        self.refused = 0
        """Times a replica that was stopping did not take it."""
        self.resumed = 0

    async def run(self) -> Json:
        """Return the value of the tool; an error answer unchanged."""
        while not (self.messages and "id" in self.messages[-1]):
            self._client.turn()
            with contextlib.suppress(Cut, OSError):
                await self._visit()
            await asyncio.sleep(0.02)
        return value(self.messages[-1])

    @property
    def progress(self) -> list[int]:
        """Its progress, in order of arrival."""
        told = [message["params"] for message in self.messages[:-1]]
        return [params["progress"] for params in told if "progress" in params]

    @property
    def runner(self) -> int:
        """The process that runs it; 0 while it has reported nothing."""
        told = [message["params"] for message in self.messages if "method" in message]
        return next((int(params["message"]) for params in told if "message" in params), 0)

    async def _visit(self) -> None:
        client = self._client
        self.resumed += bool(self._last_id)
        response = await (client.get(self._last_id) if self._last_id else client.post(self._message))
        try:
            if response.status == 503:
                self.refused += 1
                return
            assert response.status == 200, (response.status, await response.body())
            if not response.is_stream:
                self.messages.append(await response.json())
                return
            async for event in response.events():
                self._last_id = event.id or self._last_id
                if event.data:
                    self.messages.append(event.message)
        finally:
            response.connection.cut()
