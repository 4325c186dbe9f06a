"""What contestants need beside themselves: a Redis, files, a server behind. Each is started when it is first asked for."""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path
from typing import Self

from bench.contestants import LIMPET, LOAD_CORE
from bench.running import Running
from tests.postgres_server import postgres_server
from tools.ports import free_port


class Around:
    """The surroundings of one run."""

    def __init__(self, python: str = sys.executable) -> None:
        self.python = python
        self._stack = ExitStack()
        self._files = 0
        self._postgres: dict[str, str] = {}

    def __enter__(self) -> Self:
        # A server that may not keep its compiled modules compiles them at each start, which no installed server does.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stack.close()

    @cached_property
    def _directory(self) -> Path:
        return Path(self._stack.enter_context(tempfile.TemporaryDirectory()))

    @cached_property
    def _redis(self) -> str:
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError("redis-server is missing: tools/install-system.sh installs it")
        port = free_port()
        command = [
            program,
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(self._directory),
        ]
        process = subprocess.Popen(["taskset", "-c", LOAD_CORE, *command], stdout=subprocess.DEVNULL)
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)
        return f"redis://127.0.0.1:{port}/0"

    @cached_property
    def _upstream(self) -> Running:
        return self._stack.enter_context(Running(LIMPET._replace(core=LOAD_CORE)))

    def redis(self) -> str:
        """Return the URL of a Redis that keeps nothing on disk. It runs on the core of the load generator."""
        return self._redis

    def postgres(self, synchronous: str) -> str:
        """Return the URL of a PostgreSQL with this `synchronous_commit`. It runs on the core of the load generator."""
        if synchronous not in self._postgres:
            server = self._stack.enter_context(postgres_server(f"synchronous_commit={synchronous}"))
            children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
            for pid in (server.pid, *map(int, children)):
                # A process of the start may have ended.
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(pid, {int(LOAD_CORE)})
            self._postgres[synchronous] = server.url
        return self._postgres[synchronous]

    def sqlite(self) -> str:
        """Return the URL of a new SQLite file."""
        self._files += 1
        return f"sqlite:///{self._directory}/{self._files}.db"

    def upstream(self) -> str:
        """Return the URL of the echo server behind the proxies; it runs on the core of the load generator."""
        return self._upstream.url
