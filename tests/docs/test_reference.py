"""docs/reference is the output of `make docs`, and describes every public name."""

from pathlib import Path
from typing import Final

import pytest

from tools.reference import PUBLIC, exported, find, page_of, pages

FOLDER: Final = Path(__file__).parents[2] / "docs" / "reference"


def test_the_committed_reference_is_what_the_source_says() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    made = pages()
    differing = sorted(
        name for name in committed.keys() | made.keys() if committed.get(name) != made.get(name)
    )
    assert differing == [], "run `make docs` and commit docs/reference"


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_on_the_page_of_its_module(module: str) -> None:
    page = pages()[page_of(module)]
    missing = [
        name for name in exported(module) if f"### `{name}`" not in page and f"[`{name}`](" not in page
    ]
    assert missing == []


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_has_a_docstring(module: str) -> None:
    found = {name: find(module, name) for name in exported(module)}
    assert [name for name, definition in found.items() if definition is None or not definition.text] == []
