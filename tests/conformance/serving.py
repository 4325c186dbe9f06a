"""`limpet serve` as a process of its own, as users run it: the everything server, or something in front of it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.support import BOUND

ROOT: Final = Path(__file__).parents[2]
EVERYTHING: Final = "examples/everything.py:server"
_URL: Final = re.compile(r"serving +http://127\.0\.0\.1:(\d+)/mcp")


class Served(NamedTuple):
    """A server that runs, and where it writes its log."""

    url: str
    log: Path

    def complaints(self) -> list[str]:
        """Return the warnings and errors of its log, except about two things that the suites do on purpose.

        They send requests that are refused, and leave calls that ask for input without an answer: a stop waits for these.
        """
        lines = self.log.read_text(encoding="utf-8").splitlines()
        banner = next(number for number, line in enumerate(lines) if line.startswith("  clients"))
        return [
            line
            for line in lines[banner + 1 :]
            if '"logger":"limpet.audit"' not in line and not line.startswith("Stopping: ")
        ]


def everything(log: Path, *options: str) -> AbstractContextManager[Served]:
    """Serve the everything server."""
    return served(log, EVERYTHING, *options)


@contextmanager
def served(log: Path, target: str, *options: str) -> Iterator[Served]:
    """Serve a target on a free port; ended, it must end by itself and well."""
    command = [
        sys.executable,
        "-m",
        "limpet",
        "serve",
        target,
        "--log-level",
        "warning",
        "--log-format",
        "json",
        "--drain",
        "1",
    ]
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*command, "--http", "127.0.0.1:0", *options], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=stderr
        )
    try:
        yield Served(_url(process, log), log)
        process.terminate()
        assert process.wait(BOUND) == 0, log.read_text(encoding="utf-8")
    finally:
        process.kill()
        process.wait()


def _url(process: "subprocess.Popen[bytes]", log: Path) -> str:
    """Wait for the banner, whose last line says that connections are accepted, and return the URL in it."""
    while True:
        said = log.read_text(encoding="utf-8")
        found = _URL.search(said)
        if found is not None and "  clients" in said and said.endswith("\n"):
            # By name, not by address: the suite tries DNS rebinding only against `localhost`.
            return f"http://localhost:{found[1]}/mcp"
        try:
            code = process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(f"the server ended with {code} before it was ready:\n{said}")
