"""A started server: pinned to its core, with its processor time, its memory and its sessions."""

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self

import uvloop

from bench.connection import open_sessions
from bench.contestants import Contestant
from tools.ports import free_port

_START_SECONDS: Final = 30.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Running:
    """A contestant's process, which listens."""

    def __init__(self, contestant: Contestant) -> None:
        self.contestant = contestant
        self.name, self.modern = contestant.name, contestant.modern
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._sessions: list[str] = []
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self.process = subprocess.Popen(
            ["taskset", "-c", contestant.core, *(part.format(port=self.port) for part in contestant.command)],
            cwd=contestant.folder,
            env={**os.environ, "PORT": str(self.port), **contestant.env},
            # supergateway ends when its input does.
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,
        )
        try:
            self._wait_until_open()
        except BaseException:
            self.stop()
            raise

    def _wait_until_open(self) -> None:
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"{self.name} did not start: {self.errors()}") from None
                time.sleep(0.002)

    def errors(self) -> str:
        """Return the end of what the server wrote to its standard error."""
        self._errors.seek(0)
        return self._errors.read()[-2_000:].decode(errors="replace")

    def cpu_seconds(self) -> float:
        """Return the processor time that the process has used so far; its children count only if they are its workers."""
        main = Path(f"/proc/{self.process.pid}/task")
        tasks = [*main.iterdir()]
        if self.contestant.has_workers:
            children = {
                pid for task in tasks for pid in (task / "children").read_text(encoding="ascii").split()
            }
            tasks += [task for pid in children for task in Path(f"/proc/{pid}/task").iterdir()]
        return sum(int((task / "schedstat").read_text(encoding="ascii").split()[0]) for task in tasks) / 1e9

    def resident_bytes(self) -> int:
        """Return the memory that the process has now."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE

    def sessions(self, count: int) -> list[str]:
        """Return that many open sessions; those that are missing are opened. 2026-07-28 has none."""
        if self.modern:
            return []
        if count > len(self._sessions):
            self._sessions += uvloop.run(open_sessions(self.port, count - len(self._sessions)))
        return self._sessions[:count]

    def opened(self, session: str) -> None:
        """Use a session that was opened already: a server may have a limit of sessions."""
        self._sessions.append(session)

    def stop(self) -> None:
        """End the process."""
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()


@contextmanager
def running(contestants: list[Contestant]) -> Iterator[list[Running]]:
    """Start all of them. The ones that are not measured at the moment are idle and cost nothing."""
    with ExitStack() as stack:
        yield [stack.enter_context(Running(contestant)) for contestant in contestants]
