"""The page of threats: every row of a threat that is prevented names a test that exists."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.attacks.test_identity import ROWS as ATTACKS
from tests.docs.test_laws import functions

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "threats.md").read_text(encoding="utf-8")
TABLES: Final = re.findall(
    r"^\| threat \| prevention \| test \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE
)
ROWS: Final = [row for table in TABLES for row in table.splitlines()]
TEST: Final = re.compile(r"\| `(tests/[\w/]+\.py)::(test_\w+)` \|$")


@pytest.mark.parametrize("row", ROWS, ids=[row.split(" | ")[0].strip("| ")[:60] for row in ROWS])
def test_every_threat_that_is_prevented_has_a_test(row: str) -> None:
    found = TEST.search(row)
    assert found is not None, row
    assert found[2] in functions(ROOT / found[1]), f"{found[1]} has no {found[2]}"


def test_the_page_has_every_attack_on_identity() -> None:
    named = {f"{file}::{test}" for file, test in ATTACKS.values()}
    assert {test for test in named if f"`{test}`" not in PAGE} == set()


def test_every_table_is_read() -> None:
    assert len(TABLES) == PAGE.count("| threat | prevention |")
    assert len(ROWS) > 40


def test_the_security_page_says_what_it_must_and_names_only_what_exists() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for part in (
        "## Reporting",
        "## Releases",
        "## What is stored, and in which form",
        "working days",
        "PEP 740",
    ):
        assert part in page
    options = set(re.findall(r"--[a-z][a-z-]+", page))
    configuration = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert {"--memory", "--trusted-proxies", "--tls-cert"} <= options
    assert [option for option in options if not re.search(rf"`{option}[ `]", configuration)] == []
    for link, anchor in re.findall(r"\]\((docs/[\w/-]+\.md)(?:#([\w-]+))?\)", page):
        headings = re.findall(r"^#+ (.+)$", (ROOT / link).read_text(encoding="utf-8"), re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in slugs, f"{link}#{anchor}"
