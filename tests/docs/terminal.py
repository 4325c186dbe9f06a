"""The terminal of a page: it runs the commands of `console` blocks and compares their output with the page.

A line with `$` is a command, the lines below it are its output. `…` stands for any text, and alone on a line for any lines.
The words after `console` in the fence say more:

- `console fails`: the commands end with an error.
- `console running`: the command keeps running until the end of the page, as in a second terminal.
- `console no-run: REASON`: the commands are not run.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support import BOUND, wait_until
from tools.ports import free_port

PORT: Final = re.compile(r"\b80\d\d\b")
"""The ports of all pages. A test uses free ones instead."""

LIMIT: Final = BOUND
ROOT: Final = Path(__file__).parents[2]
CLONE: Final = "~/limpet/"
"""Where the pages have the clone of this repository."""


def commands_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a block, each with its output."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        length = 1 + next(at for at, line in enumerate(lines) if not line.endswith("\\\n"))
        yield "".join(lines[:length]), "".join(lines[length:])


def pattern_of(output: str) -> re.Pattern[str]:
    """Return the expression that matches an output of a page."""
    escaped = "".join(
        "(?:.*\n)*?" if line == "…" else r"[^\n]*".join(map(re.escape, line.split("…"))) + "\n"
        for line in output.rstrip().splitlines()
    )
    return re.compile(escaped)


def plain(output: str) -> str:
    """Return an output without spaces at the ends of lines and without empty lines around it."""
    return re.sub(r"[ \t]+$", "", output, flags=re.MULTILINE).strip("\n") + "\n"


class Terminal:
    """Runs the commands of one page in a folder of its own, and ends those that are still running."""

    def __init__(self, folder: Path, programs: Path = Path(sys.executable).parent) -> None:
        """`programs`: the folder of the commands `limpet` and `python`."""
        self.folder = folder
        self.ports: dict[str, str] = {}
        self.running: list[subprocess.Popen[bytes]] = []
        path = f"{programs}:{os.environ['PATH']}"
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "LIMPET"))}
        self.environment = {**own, "PATH": path, "HOME": str(folder), "COLUMNS": "80", "TERM": "dumb"}
        self.environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        # Debian puts nginx and haproxy there, and the PATH of an ordinary user may lack it.
        self.environment["PATH"] += ":/usr/sbin"

    def show(self, info: str, text: str) -> None:
        """Run the commands of a block. Raises `AssertionError` if an output or an exit status differs from the page."""
        if CLONE in text and not (self.folder / "limpet").exists():
            (self.folder / "limpet").symlink_to(ROOT)
        for command, output in commands_of(text):
            if info == "console running":
                self._start(command, output)
            else:
                self._run(command, output, fails=info == "console fails")

    def _run(self, command: str, output: str, *, fails: bool) -> None:
        done = subprocess.run(
            ["bash", "-c", self._with_free_ports(command)],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        shown = plain(self._with_ports_of_the_page(done.stdout))
        assert (done.returncode != 0) == fails, f"$ {command}{shown}exit status {done.returncode}"
        assert not output.strip() or pattern_of(output).fullmatch(shown), f"$ {command}{shown}"

    def _start(self, command: str, output: str) -> None:
        log = self.folder / f".output-{len(self.running)}"
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", self._with_free_ports(command)],
                cwd=self.folder,
                env={**self.environment, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.running.append(process)
        wanted = pattern_of(output)

        def shown() -> str:
            return plain(self._with_ports_of_the_page(log.read_text()))

        def is_shown() -> bool:
            matches = wanted.match(shown()) is not None
            assert matches or process.poll() is None, f"$ {command}{shown()}exit status {process.returncode}"
            return matches

        wait_until(is_shown, LIMIT, explain=lambda: f"$ {command}{shown()}")

    def _with_free_ports(self, text: str) -> str:
        return PORT.sub(lambda port: self.ports.setdefault(port[0], str(free_port())), text)

    def _with_ports_of_the_page(self, text: str) -> str:
        for port, free in self.ports.items():
            text = text.replace(free, port)
        return text

    def close(self) -> None:
        """End the commands that are still running."""
        left = [process for process in self.running if process.poll() is None]
        for process in left:
            os.killpg(process.pid, signal.SIGTERM)
        for process in left:
            try:
                process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
