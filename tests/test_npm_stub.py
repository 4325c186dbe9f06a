"""The package for npm: it starts uvx with the version of this package, passes everything on, and says what is missing."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Final

import pytest

import limpet
from tests.support import BOUND

ROOT: Final = Path(__file__).parents[1]
STUB: Final = ROOT / "packages" / "npm"
NODE: Final = ROOT / ".node" / "bin" / "node"
PINNED: Final = f"limpet=={limpet.__version__}"
UVX: Final = """#!/bin/sh
trap 'echo stopped; exit 7' TERM
echo "$@"
read line && echo "read $line"
[ "$line" != wait ] || { while :; do sleep 0.05; done; }
exit 5
"""


def started(room: Path, *words: str, uvx: str = UVX) -> subprocess.Popen[str]:
    """Start the stub with this uvx, or with none."""
    if not NODE.exists():
        pytest.skip("node is not installed: make node")
    if uvx:
        (room / "uvx").write_text(uvx)
        (room / "uvx").chmod(0o755)
    return subprocess.Popen(
        [NODE, STUB / "limpet.mjs", *words],
        env={**os.environ, "PATH": f"{room}:/usr/bin:/bin" if uvx else str(room)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_arguments_input_and_status_are_passed_on(tmp_path: Path) -> None:
    with started(tmp_path, "serve", "--", "npx", "-y", "a b") as stub:
        out, _ = stub.communicate("hello\n", timeout=BOUND)
    assert out.splitlines() == [f"--from {PINNED} limpet serve -- npx -y a b", "read hello"]
    assert stub.returncode == 5


def test_a_signal_reaches_the_program_which_ends_in_its_own_way(tmp_path: Path) -> None:
    with started(tmp_path) as stub:
        assert stub.stdin is not None
        assert stub.stdout is not None
        stub.stdin.write("wait\n")
        stub.stdin.flush()
        assert [stub.stdout.readline() for _ in range(2)][1] == "read wait\n"
        stub.send_signal(signal.SIGTERM)
        assert stub.wait(timeout=BOUND) == 7
        assert stub.stdout.read() == "stopped\n"


def test_a_program_that_a_signal_killed_has_the_status_of_a_shell(tmp_path: Path) -> None:
    with started(tmp_path, uvx="#!/bin/sh\nkill -KILL $$\n") as stub:
        assert stub.wait(timeout=BOUND) == 128 + signal.SIGKILL


def test_without_uvx_it_says_what_to_install(tmp_path: Path) -> None:
    with started(tmp_path, "serve", uvx="") as stub:
        _, err = stub.communicate(timeout=BOUND)
    assert stub.returncode == 127
    assert "uvx is not installed" in err
    assert f"pipx run --spec {PINNED} limpet" in err


def test_the_package_has_the_version_of_ours_and_its_files() -> None:
    package = json.loads((STUB / "package.json").read_text())
    assert (package["name"], package["version"]) == ("limpet", limpet.__version__)
    assert all((STUB / name).exists() for name in [*package["files"], *package["bin"].values()])
    assert "dependencies" not in package
    assert "scripts" not in package
