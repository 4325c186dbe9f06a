"""The processes of an authorization: the authorization server, the protected server, the clients, and the user's browser."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

import pytest

from tests.interop.peers import CLIENTS, PATIENCE, ROOT, SERVE, serving

HERE: Final = Path(__file__).parent
SERVER: Final = f"{HERE / 'server.py'}:server"
BROWSER: Final = [sys.executable, "-S", "-E", str(HERE / "browser.py")]
SYSTEM_BROWSER: Final = " ".join([*BROWSER, "%s", "--visit", "&"])
"""As a value of the variable BROWSER. It runs in the background: an application may begin to listen after it has opened a page."""
PROGRAMS: Final = {
    "mcp2": (".peers/mcp2/bin/python", "oauth_mcp2.py", "peers"),
    "fastmcp": (".peers/fastmcp/bin/python", "oauth_fastmcp.py", "peers"),
    "ts2": (".node/bin/node", "oauth_ts2.mjs", "node"),
    "limpet": (sys.executable, "oauth_limpet.py", "venv"),
}
"""By client: its program, its script, and the make target that installs it."""


class LineProcess:
    """A process that prints lines of JSON, and reads lines."""

    def __init__(self, command: Sequence[str], errors: Path, environment: dict[str, str]) -> None:
        self._errors = errors
        self._lines: SimpleQueue[str] = SimpleQueue()
        with errors.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env={**os.environ, **environment},
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def line(self) -> dict[str, Any]:
        """Return the next line; a process that ends instead fails the test."""
        try:
            line = self._lines.get(timeout=PATIENCE)
        except Empty:
            line = ""
        assert line, f"it says nothing:\n{self._errors.read_text()}"
        said: dict[str, Any] = json.loads(line)
        return said

    def rest(self) -> list[dict[str, Any]]:
        """Return the lines that were printed and not read yet."""
        return [json.loads(self._lines.get()) for _ in range(self._lines.qsize())]

    def say(self, line: str) -> None:
        """Write a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Close its input; it must end by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(PATIENCE) == 0, self._errors.read_text()

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class Authority(LineProcess):
    """The authorization server."""

    def __init__(self, directory: Path, config: dict[str, Any]) -> None:
        node = ROOT / ".node/bin/node"
        if not (ROOT / ".node/authority").exists():
            pytest.fail(".node/authority is not installed: run `make node`")
        super().__init__(
            [str(node), str(HERE / "authority.mjs"), json.dumps(config)], directory / "authority.log", {}
        )
        self.events: list[dict[str, Any]] = []
        ready = self.line()
        self.issuer: str = ready["issuer"]
        self.keys: list[str] = [ready["key"]]

    def rotate(self) -> None:
        """Make it sign with a new key."""
        self.say("rotate")
        while (said := self.line())["event"] != "rotated":
            self.events.append(said)
        self.keys.append(said["key"])

    def seen(self) -> list[dict[str, Any]]:
        """Return everything that happened at it so far."""
        self.events += self.rest()
        return self.events


@contextlib.contextmanager
def authority(directory: Path, resource: str, **others: Any) -> Iterator[Authority]:
    """Run an authorization server. Where `clients` are registered by hand, none can register itself."""
    config = {
        "resource": resource,
        "scopes": "mail.read mail.send",
        "registration": "clients" not in others,
        "clients": [],
        **others,
    }
    running = Authority(directory, config)
    try:
        yield running
    finally:
        running.kill()


@contextlib.contextmanager
def protected(directory: Path, port: int, issuer: str, store: Path) -> Iterator[str]:
    """Serve the protected server on a port; yields its URL."""
    url = f"http://127.0.0.1:{port}/mcp"
    environment = {"ISSUER": issuer, "RESOURCE": url}
    with serving(
        directory, environment, SERVER, command=[*SERVE, "--store", f"sqlite:///{store}"], port=port
    ):
        yield url


def client(name: str, url: str, directory: Path) -> LineProcess:
    """Start a client of a project; it signs in by itself."""
    program, script, make = PROGRAMS[name]
    # Not resolved: the interpreter of an environment is a link.
    path = ROOT / program
    if not path.exists():
        pytest.fail(f"{program} is not installed: run `make {make}`")
    asked = json.dumps({"url": url, "browser": BROWSER})
    environment = {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", "BROWSER": SYSTEM_BROWSER}
    return LineProcess([str(path), str(CLIENTS / script), asked], directory / f"{name}.log", environment)
