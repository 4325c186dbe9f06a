"""The README's first screen: its order, the tested clients and the figures are those of the repository."""

import json
import re
import statistics
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.peers import MODERN_PEERS, PEERS
from tests.interop.test_older import OLDER

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "README.md").read_text()
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RESULTS: Final[dict[str, Any]] = json.loads((ROOT / "docs" / "speed" / "results.json").read_text())

ORDER: Final = (
    "Limpet is ",
    "pip install .",
    "@server.tool",
    "limpet call hello.py",
    "limpet serve hello.py:server ",
    "limpet serve app.py:mcp ",
    "limpet serve -- ",
    "limpet serve https://",
    "docs/pictures/dashboard-light.png",
    "after a kill",
    "a POST that was cut",
    "a stream is resumed",
    "limpet check ",
    "│ a cut stream",
    "│ a duplicate id",
    "**Tested clients.**",
    "**Not promised:**",
    "**Footprint:**",
    "**Python** ",
    "**System:**",
    "**Licence:**",
    "make serve ",
    "make test ",
    "## Where to go",
)

PYTHON: Final = "(Python)"
TYPESCRIPT: Final = "(TypeScript)"
PACKAGES: Final = {
    "mcp1": (("`mcp`", PYTHON, "MCP1"),),
    "mcp2": (("`mcp`", PYTHON, "MCP2"),),
    "fastmcp": (("`fastmcp`", PYTHON, "FASTMCP"),),
    "ts1": (("`@modelcontextprotocol/sdk`", TYPESCRIPT, "TS_SDK"),),
    "ts2": (("`@modelcontextprotocol/client`", TYPESCRIPT, "TS_CLIENT"),),
    "ts_older": (
        ("`@modelcontextprotocol/sdk`", TYPESCRIPT, "TS_OLDER"),
        ("`@modelcontextprotocol/sdk`", TYPESCRIPT, "TS_OLD"),
    ),
}
"""By name of the client in tests/interop: its packages, and their versions in tools/versions.env."""


def test_the_first_screen_has_its_order() -> None:
    places = [PAGE.find(text) for text in ORDER]
    assert -1 not in places
    assert places == sorted(places)


SCREEN: Final = 45
"""Lines of the first screen."""
WIDTH: Final = 100
"""Columns of a code block on a page."""


def test_install_and_code_are_on_the_first_screen_and_code_fits_a_page() -> None:
    first = PAGE.splitlines()[:SCREEN]
    assert {"```python hello.py", "```console"} <= {*first}
    code = "".join(re.findall(r"^```[^\n]*\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    assert [line for line in code.splitlines() if len(line) > WIDTH] == []


def test_the_rows_of_the_comparison_are_those_of_its_page() -> None:
    page = (ROOT / "docs" / "comparison.md").read_text()
    section = PAGE.partition("What teams meet")[2].partition("`limpet check` probes")[0]
    rows = re.findall(r"^\|.*$", section, re.MULTILINE)
    assert len(rows) > 5
    assert [row for row in rows if row not in page] == []


def test_the_tested_clients_are_those_of_the_tests() -> None:
    versions = dict(re.findall(r"^(\w+)=(\S+)$", (ROOT / "tools" / "versions.env").read_text(), re.MULTILINE))
    tested = {
        (f"{package} {language}", versions[variable], peer.mode == "modern")
        for peer in (*PEERS, *MODERN_PEERS, OLDER)
        for package, language, variable in PACKAGES[peer.name]
    }
    section = PAGE.partition("**Tested clients.**")[2].partition("**Not promised:**")[0]
    rows = [
        [cell.strip() for cell in row.split("|")[1:-1]]
        for row in re.findall(r"^\| `.*$", section, re.MULTILINE)
    ]
    written = {
        (name, version, is_modern)
        for name, version, *eras in rows
        for is_modern, era in enumerate(eras)
        if era == "yes"
    }
    assert written == tested
    assert len(rows) == len({(name, version) for name, version, _ in tested})


@pytest.mark.parametrize(
    ("pattern", "workload", "figure", "unit"),
    [
        (r"([\d.]+) KiB for an idle session", "memory-idle", "bytes", 1024),
        (r"([\d.]+) s from the start of the process", "start", "ms", 1000),
    ],
)
def test_the_footprint_is_the_measured_one(pattern: str, workload: str, figure: str, unit: int) -> None:
    rounds = RESULTS[workload]["points"][0]["figures"]["limpet"]
    measured = statistics.median(one[figure] for one in rounds) / unit
    (written,) = re.findall(pattern, PAGE)
    assert float(written) == pytest.approx(measured, rel=0.25)


def test_dependencies_python_and_licence_are_those_of_the_project() -> None:
    assert f"{len(PROJECT['dependencies'])} direct dependencies" in PAGE
    assert f"**Python** {PROJECT['requires-python'].removeprefix('>=')} or newer" in PAGE
    assert f"**Licence:** {PROJECT['license']}" in PAGE


def test_the_commands_of_the_check_name_files_of_a_clone() -> None:
    [block] = [text for text in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) if "limpet check" in text]
    files = re.findall(r"^\$ .*?(\S+\.py)", block, re.MULTILINE)
    assert len(files) == 2
    assert all((ROOT / file).is_file() for file in files), files
