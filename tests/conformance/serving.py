"""`holdfast serve examples/everything.py:server` as a process of its own, as users run it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
_URL: Final = re.compile(r"http://127\.0\.0\.1:(\d+)/mcp")


class Served(NamedTuple):
    """A server that runs, and where it writes its log."""

    url: str
    log: Path

    def complaints(self) -> str:
        """Return its output after the banner: empty if all went well."""
        lines = self.log.read_text(encoding="utf-8").splitlines(keepends=True)
        banner = next(number for number, line in enumerate(lines) if line.startswith("  clients"))
        return "".join(lines[banner + 1 :])


@contextmanager
def everything(log: Path, *options: str) -> Iterator[Served]:
    """Serve the everything server on a free port; ended, it must end by itself and well."""
    command = [sys.executable, "-m", "holdfast", "serve", "examples/everything.py:server"]
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*command, "--http", "127.0.0.1:0", *options], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=stderr
        )
    try:
        yield Served(_url(process, log), log)
        process.terminate()
        assert process.wait(20) == 0, log.read_text(encoding="utf-8")
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
