"""Systems on which not everything works: what cannot work is refused with a text that says what to do instead."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from limpet import ConfigError, Server, Servers
from limpet.config import MIB
from limpet.transports import memory
from tests.command_line import run

WINDOWS = SimpleNamespace(platform="win32")
NO_HTTP = (
    "HTTP is not served on Windows: it is not tested there. Serve on stdio, use WSL, or mount `server.asgi()`"
)


def test_windows_does_not_serve_http(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("limpet.transports.loops.sys", WINDOWS)
    with pytest.raises(ConfigError, match=NO_HTTP.partition("(")[0]):
        Server("s").run("http", port=0)
    with pytest.raises(ConfigError, match=NO_HTTP.partition("(")[0]):
        Servers({"/a": Server("s")}).run(port=0)
    (tmp_path / "a.py").write_text("from limpet import Server\nserver = Server('s')\n")
    done = run("serve", str(tmp_path / "a.py"), "--http", "127.0.0.1:0")
    assert done.status == 2
    assert NO_HTTP in " ".join(done.err.split())


def test_windows_has_no_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("limpet.cli.private_store.sys", WINDOWS)
    (tmp_path / "a.py").write_text("from limpet import Server\nserver = Server('s')\n")
    done = run("serve", str(tmp_path / "a.py"), "--http", "127.0.0.1:0", "--workers", "2")
    assert done.status == 2
    assert "--workers and --reload need a system whose processes can share a socket" in " ".join(
        done.err.split()
    )


def test_a_system_that_does_not_say_how_much_memory_it_has_gets_the_figure_of_a_small_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sysconf")
    monkeypatch.setattr(memory, "_CONTAINER", ())
    assert memory.usual_figure() == 1024 * MIB
