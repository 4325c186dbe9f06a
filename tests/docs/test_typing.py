"""A type checker reads documented calls: `make types` checks the pages, here are the mistakes that it finds."""

import inspect
import json
import os
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any, Final

import pytest

from limpet.config import HttpOptions, HttpSettings, Names
from limpet.server.functions.content import Media, MediaOptions

ROOT: Final = Path(__file__).parents[2]
PYRIGHT: Final = ROOT / ".node" / "pyright" / "node_modules" / "pyright" / "index.js"
CALLS: Final = """
from pathlib import Path

from limpet import Client, File, Server

server = Server("demo")
server.asgi("/mcp", response="json", allowed_hosts=["a.example"], host_signals=False)
server.run("http", port=0, allowed_origins=("https://a.example",), allow_anonymous=True)
Client(server)
File(path=Path("a.txt"), mime_type="text/plain", name="a")

server.asgi(respons="json")
server.asgi(response="xml")
server.asgi(allowed_hosts="a.example")
server.run("http", workers=2)
Client(7)
File(mime="text/plain")
"""


def test_pyright_accepts_right_calls_and_names_wrong_ones(tmp_path: Path) -> None:
    if not PYRIGHT.exists():
        pytest.skip("pyright is not installed; make node installs it")
    (tmp_path / "calls.py").write_text(CALLS)
    done = subprocess.run(
        [str(ROOT / ".node" / "bin" / "node"), str(PYRIGHT), "--outputjson", str(tmp_path / "calls.py")],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    lines = CALLS.splitlines()
    first = lines.index('server.asgi(respons="json")')
    assert {item["range"]["start"]["line"] for item in found} == set(range(first, len(lines))), found


def test_the_typed_options_are_the_settings() -> None:
    # A checker takes one text for a sequence of texts, so the options name the types of sequences.
    settings = typing.get_type_hints(HttpSettings) | dict.fromkeys(
        ("allowed_hosts", "allowed_origins", "scopes_supported", "trusted_proxies"), Names
    )
    assert typing.get_type_hints(HttpOptions) == {
        name: settings[name] for name in HttpSettings.__struct_fields__ if name != "path"
    }
    media: Any = inspect.signature(Media.__init__, eval_str=True).parameters
    named = {name: item.annotation for name, item in media.items() if item.kind is item.KEYWORD_ONLY}
    assert typing.get_type_hints(MediaOptions) == named
