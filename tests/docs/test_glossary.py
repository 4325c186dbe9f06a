"""The glossary: the parts it names exist, and the words that it replaces are gone from source and documents."""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "glossary.md").read_text()
PARTS: Final = re.findall(r"^\| ([a-z -]+) \| .* \| `(src/[^`]+)` \|$", PAGE, re.MULTILINE)
REPLACED: Final = re.findall(
    r"^\| ([a-z ]+) \| ([a-z -]+) \|$",
    PAGE.partition("| not | but |\n")[2].partition("\n\n")[0],
    re.MULTILINE,
)
ELSEWHERE: Final = [
    (word, folder)
    for word, folders in re.findall(r"^\| ([a-z]+) \| (`src/.*`) \|$", PAGE, re.MULTILINE)
    for folder in re.findall(r"`([^`]+)`", folders)
]
TEXTS: Final = {
    path: path.read_text()
    for path in (*(ROOT / "src").rglob("*"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"))
    if path.suffix in {".py", ".lua", ".sql", ".md"} and path.name != "glossary.md"
}


def uses(word: str, text: str) -> list[str]:
    """Return the names and words of a text that a word is a part of: `Outlet`, `_outlets`, but not `tailscale`."""
    if word not in text.lower():
        return []
    return re.findall(rf"\w*(?:\b|_|(?<=[a-z])(?=[A-Z]))(?i:{word}s?)(?![a-z])\w*", text)


def test_a_word_is_found_as_a_part_of_a_name() -> None:
    assert uses("outlet", "the outlet; StreamOutlet, _outlets, OUTLET, outlet_of") == [
        "outlet", "StreamOutlet", "_outlets", "OUTLET", "outlet_of"
    ]  # fmt: skip
    assert uses("door", "outdoor doorbell") == []


@pytest.mark.parametrize(("name", "module"), PARTS)
def test_a_part_is_where_the_glossary_says(name: str, module: str) -> None:
    text = (ROOT / module).read_text() + module
    assert name.replace(" ", "").replace("-", "").lower() in re.sub(r"[\s_-]", "", text).lower()


@pytest.mark.parametrize(("word", "instead"), REPLACED)
def test_a_replaced_word_is_not_used(word: str, instead: str) -> None:
    found = {str(path.relative_to(ROOT)): hits for path, text in TEXTS.items() if (hits := uses(word, text))}
    assert not found, f"say {instead}"


@pytest.mark.parametrize(("word", "folder"), ELSEWHERE)
def test_a_word_of_other_folders_has_no_second_meaning_here(word: str, folder: str) -> None:
    assert (ROOT / folder).is_dir()
    inside = {path: text for path, text in TEXTS.items() if path.is_relative_to(ROOT / folder)}
    assert not {str(path): hits for path, text in inside.items() if (hits := uses(word, text))}


def test_the_glossary_has_its_tables() -> None:
    assert len(PARTS) >= 12
    assert len(REPLACED) >= 6
    assert {word for word, _ in ELSEWHERE} >= {"scope", "pipe"}
