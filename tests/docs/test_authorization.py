"""docs/authorization.md agrees with the code."""

import re
from pathlib import Path
from typing import Final

import pytest

from limpet.engine.audit import ACTS, REASONS

PAGE: Final = (Path(__file__).parents[2] / "docs" / "authorization.md").read_text()


@pytest.mark.parametrize(("column", "table"), [("reason", REASONS), ("act", ACTS)])
def test_the_page_has_every_reason_and_act_of_the_audit(column: str, table: dict[str, str]) -> None:
    section = PAGE.partition(f"\n| `{column}` |")[2].partition("\n\n")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE)) == table
