"""The options in docs/configuration.md are those of the table of options, and its file can be read."""

import re
from pathlib import Path

import pytest

from limpet.cli.config.file_values import decoded
from limpet.cli.config.mcp_json import McpJsonServer
from limpet.cli.config.sources import planned
from limpet.cli.options import Options
from limpet.cli.process_options import ProcessOptions
from tools.options import PAGE, written


def test_the_table_of_options_is_the_codes() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "run `make docs` and commit docs/configuration.md"


def test_the_file_of_the_page_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_KEY", "abc")
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path / "limpet.toml"
    file.write_text(block)
    plan = planned(str(file), (), Options(), ProcessOptions())
    assert [endpoint.options.path for endpoint in plan.endpoints] == [
        "/weather/mcp",
        "/search/mcp",
        "/legacy",
    ]


def test_the_keys_of_mcp_json_are_on_the_page() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## `mcp.json`")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)(?:: \w+)?`", section))
    assert set(McpJsonServer.__struct_fields__) <= named
    assert decoded(McpJsonServer, {}, "here:") == McpJsonServer()
