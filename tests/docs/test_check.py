"""docs/check.md has a row for every probe, with the texts of the source."""

import re
from pathlib import Path
from typing import Final

from typer.main import get_command

from limpet.checking.table import PROBES, Probe
from limpet.cli.whole import app

PAGE: Final = (Path(__file__).parents[2] / "docs" / "check.md").read_text()
HEAD: Final = (
    "| probe | what is tried | the specification | what to do after a failure |\n|---|---|---|---|\n"
)


def row(probe: Probe) -> str:
    tried = " ".join(str(probe.run.__doc__).split())
    return f"| `{probe.name}` | {tried} | {probe.specification} | {probe.remedy} |\n"


def test_the_table_of_the_page_is_the_table_of_the_source() -> None:
    assert HEAD + "".join(map(row, PROBES)) in PAGE


def test_each_probe_has_a_name_of_its_own_a_title_and_a_rule_with_its_revision() -> None:
    assert len({probe.name for probe in PROBES}) == len(PROBES)
    for probe in PROBES:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", probe.name)
        assert re.search(r"2025-11-25|2026-07-28|JSON-RPC 2\.0", probe.specification), probe.name
        assert probe.title
        assert probe.remedy.endswith(".")


def test_every_option_of_the_command_is_on_the_page() -> None:
    command = get_command(app).get_command(None, "check")  # type: ignore[attr-defined]
    options = {name for option in command.params for name in option.opts if name.startswith("--")} - {
        "--help"
    }
    assert options == set(
        re.findall(r"`(--[a-z-]+)", PAGE.partition("**Tools.**")[0].partition("| option")[2])
    )
