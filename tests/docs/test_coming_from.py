"""The tables of docs/coming-from.md: every option of ours exists, and every option of the installed mcp-proxy has a row."""

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import typer.main

from limpet.cli.whole import app
from tests.support import BOUND

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "coming-from.md").read_text()
PROXY: Final = ROOT / ".peers" / "mcp-proxy" / "bin" / "mcp-proxy"
OPTION: Final = re.compile(r"(?<![\w-])--[a-zA-Z][\w-]*")


def section(name: str) -> list[list[str]]:
    """Return the cells of the rows of a section's table."""
    _, _, text = PAGE.partition(f"\n## {name}\n")
    rows = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in rows[1:]]


def test_every_option_of_ours_exists() -> None:
    group: Any = typer.main.get_command(app)
    known = {
        flag for command in group.commands.values() for parameter in command.params for flag in parameter.opts
    }
    for name in ("mcp-proxy", "supergateway", "mcp-remote", "What they do not have"):
        rows = section(name)
        assert len(rows) > 5
        ours = {option for row in rows for cell in row[1:] for option in OPTION.findall(cell)}
        assert ours - {"--version", "--help"} <= known
    lines = re.findall(r"`(limpet (?:serve|install) [^`]*)`", PAGE)
    assert len(lines) > 6
    assert {option for line in lines for option in OPTION.findall(line.partition(" -- ")[0])} <= known


def test_every_option_of_mcp_proxy_has_a_row() -> None:
    said = subprocess.run([PROXY, "--help"], capture_output=True, text=True, timeout=BOUND, check=True).stdout
    version = subprocess.run(
        [PROXY, "--version"], capture_output=True, text=True, timeout=BOUND, check=True
    ).stdout
    theirs = set(re.findall(r"^  (?:-\w[^,\n]*, )?(--[\w-]+)", said, re.MULTILINE)) | {
        "--sse-port",
        "--sse-host",
    }
    rows = {option for row in section("mcp-proxy") for option in OPTION.findall(row[0])}
    assert theirs - rows == set()
    assert version.split()[-1] in PAGE
