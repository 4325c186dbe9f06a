"""The laws: each names a module and a test that exist, and the laws that the source cites exist; the words are fixed."""

import ast
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
LAWS: Final = re.split(r"^## (?=\d+\. )", (ROOT / "docs" / "laws.md").read_text(), flags=re.MULTILINE)[1:]
NUMBERS: Final = range(1, len(LAWS) + 1)
CITED: Final = re.compile(r"\blaws? (\d+(?:(?:, | and | to )\d+)*)", re.IGNORECASE)


def cited(text: str) -> set[int]:
    """Return the numbers of the laws that a text names."""
    return {int(number) for found in CITED.findall(text) for number in re.findall(r"\d+", found)}


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("law", LAWS, ids=[law.partition("\n")[0] for law in LAWS])
def test_a_law_names_the_module_that_keeps_it_and_a_test_that_breaks(law: str) -> None:
    (module,) = re.findall(r"^Kept by `([^`]+)`", law, re.MULTILINE)
    (file, test) = re.findall(r"Breaks `([^:`]+)::([^`]+)`\.", law)[0]
    assert (ROOT / module).is_file()
    assert test in functions(ROOT / file)


def test_the_laws_are_numbered_without_a_gap() -> None:
    assert [int(law.partition(".")[0]) for law in LAWS] == list(NUMBERS)


def test_every_law_that_is_cited_exists_and_every_keeper_cites_its_law() -> None:
    for folder in ("src", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            assert cited(path.read_text()) <= set(NUMBERS), path
    for number, law in zip(NUMBERS, LAWS, strict=True):
        (module,) = re.findall(r"^Kept by `([^`]+)`", law, re.MULTILINE)
        assert number in cited((ROOT / module).read_text()), f"{module} does not name law {number}"


def test_the_fixed_words_are_those_of_the_glossary() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    explained = {
        word for row in re.findall(r"^\| ([a-z, ]+) \| ", page, re.MULTILINE) for word in row.split(", ")
    } - {"word"}
    for path in ("CONTRIBUTING.md", "docs/index.md"):
        text = (ROOT / path).read_text()
        (listed,) = re.findall(r"The words are fixed: ([^.]*)\.", text)
        assert set(re.split(r",\s+", listed)) <= explained, path
        assert "glossary.md" in text, path
