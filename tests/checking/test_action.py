"""The action of the folder `check`: what its step does with the variables of a runner."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from check.summary import page
from tests.support import BOUND
from tools.ports import free_port

ROOT: Final = Path(__file__).parents[2]
ACTION: Final[dict[str, Any]] = yaml.safe_load((ROOT / "check" / "action.yml").read_text())
PROGRAM: Final = Path(sys.executable).parent / "limpet"


def step(room: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the step of the action as a runner does."""
    variables = ACTION["runs"]["steps"][0]["env"]
    given = {name: spec.get("default", "") for name, spec in ACTION["inputs"].items()} | inputs
    env = {name: given[re.findall(r"inputs\.([\w-]+)", value)[0]] for name, value in variables.items()}
    (room / "runner").mkdir(exist_ok=True)
    places = {"RUNNER_TEMP": "runner", "GITHUB_OUTPUT": "output", "GITHUB_STEP_SUMMARY": "summary"}
    return subprocess.run(
        [ROOT / "check" / "check.sh"],
        cwd=ROOT,
        env={**os.environ, **env, "CHECK_LIMPET": str(PROGRAM), **{name: str(room / place) for name, place in places.items()}},
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND,
    )  # fmt: skip


def test_a_server_is_started_checked_and_stopped(tmp_path: Path) -> None:
    port = free_port()
    start = f"{PROGRAM} serve examples/weather.py --http 127.0.0.1:{port} & wait"
    done = step(tmp_path, url=f"http://127.0.0.1:{port}/mcp", start=start, only="negotiation unknown-method")
    assert done.returncode == 0, done.stderr
    path = (tmp_path / "output").read_text().strip().removeprefix("report=")
    report = json.loads(Path(path).read_text())
    assert [row["probe"] for row in report["rows"]] == ["reachable", "negotiation", "unknown-method"]
    assert "passed the check" in (tmp_path / "summary").read_text()
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}"], check=True, capture_output=True)


def test_a_server_that_does_not_start_fails_the_step_with_its_log(tmp_path: Path) -> None:
    done = step(tmp_path, url=f"http://127.0.0.1:{free_port()}/mcp", start="echo no database; exit 3")
    assert done.returncode == 1
    assert "no database" in done.stderr
    assert "::error::the server did not accept a connection" in done.stderr


def test_a_server_that_cannot_be_reached_fails_the_step(tmp_path: Path) -> None:
    done = step(tmp_path, url=f"http://127.0.0.1:{free_port()}/mcp")
    assert done.returncode == 1


def test_a_command_in_an_input_is_not_run(tmp_path: Path) -> None:
    step(tmp_path, url=f"$(touch {tmp_path}/a)", tool=f"`touch {tmp_path}/b`", token=f"; touch {tmp_path}/c")
    assert not [name for name in "abc" if (tmp_path / name).exists()]
    assert "${{" not in ACTION["runs"]["steps"][0]["run"]


def test_the_text_of_a_server_is_no_markup_on_the_page() -> None:
    row = {
        "title": "t",
        "verdict": "fail",
        "happened": "<img src=x>\n::error::x | [a](b) `c`",
        "specification": "s",
        "remedy": "r",
    }
    text = page({"passed": False, "server": "# big", "rows": [row]})
    assert "<img" not in text
    assert text.splitlines()[0] == r"### \# big did not pass the check"
    assert r"\[a\](b) \`c\`" in text
    assert len(text.splitlines()) == 5


def test_the_page_of_the_action_has_every_input() -> None:
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "check" / "README.md").read_text(), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row)} == ACTION["inputs"].keys()
