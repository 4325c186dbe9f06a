"""Every requirement of the specification has its row, every row its test or its reason, and the tool reads the pages right."""

import ast
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tools.requirements.catalog import BINDS, ROOT, Row, load_rows, load_sentences
from tools.requirements.pages import PAGES, TASKS
from tools.requirements.sentences import Sentence, plain, requirements
from tools.requirements.table import MARK, PAGE, SUBJECTS, generated

ROWS: Final = load_rows()
SENTENCES: Final = load_sentences()
LEAST: Final = {"2025-11-25": 270, "2025-06-18": 130, "2025-03-26": 120, "2026-07-28": 360, TASKS: 50}
"""How many requirements each revision has at least: fewer mean that the tool does not read a page any more."""


@cache
def names_in(path: Path) -> set[str]:
    """Return the names of the tests in a file, without running it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name for node in functions if node.name.startswith("test_")}


def test_every_requirement_has_one_row_and_every_row_a_requirement() -> None:
    answered = [one for row in ROWS for one in row.hashes]
    assert len(answered) == len(set(answered)), "a hash is in two rows"
    known = {one.hash for page in SENTENCES.pages.values() for one in page}
    assert known - set(answered) == set(), "requirements without a row"
    assert set(answered) - known == set(), "rows for requirements that no page has"


def test_every_page_of_every_revision_is_there() -> None:
    named = {f"{revision}/{page}" for revision, pages in PAGES.items() for page in pages}
    assert set(SENTENCES.pages) == {*named, TASKS}
    for revision, least in LEAST.items():
        count = sum(len(page) for name, page in SENTENCES.pages.items() if name.partition("/")[0] == revision)
        assert count >= least, revision


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.subject}: {row.says}"[:90] for row in ROWS])
def test_every_row_has_a_test_that_exists_or_a_reason(row: Row) -> None:
    assert row.hashes
    assert row.binds in BINDS
    assert row.subject in SUBJECTS
    assert bool(row.tests) != bool(row.reason), "tests or a reason, and not both"
    assert row.tests or not row.exception
    assert not row.says.endswith(".")
    for test in row.tests:
        path, _, name = test.partition("::")
        assert name in names_in(ROOT / path), f"{path} has no {name}"


def test_no_row_has_the_words_of_the_specification() -> None:
    known = {one.hash for page in SENTENCES.pages.values() for one in page}
    said = {Sentence("", row.says).hash for row in ROWS} | {Sentence("", row.reason).hash for row in ROWS}
    assert said & known == set()


def test_the_table_of_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8").partition(MARK)[2] == generated(), (
        "run: python -m tools.requirements --table"
    )


# How a page is read

MARKDOWN: Final = """---
title: They MUST NOT count
---

Intro. Peers **MUST** use [a link](https://example.com/MUST), e.g. this one.
They [SHOULD][ref] not
stop (i.e. never). It is nice.

[ref]: https://example.com

## Lists

Clients **MUST**:

- do this. And more.
- do that:
  - deeper

  A paragraph of the item, which SHOULD count alone.

Servers follow these rules:

1. They **MUST** answer
2. SHOULD be quick
3. Nothing

```text
In code it MUST not count.
```

<Note>

Notes SHOULD count.

</Note>

### A table

| a     | b                 |
| ----- | ----------------- |
| null  | Server MUST reply |
| other | nothing           |
"""


def test_a_page_is_read_by_its_sentences_lists_and_tables() -> None:
    assert [(one.section, one.words, one.level) for one in requirements(MARKDOWN)] == [
        ("", "Peers MUST use a link, e.g. this one.", "MUST"),
        ("", "They SHOULD not stop (i.e. never).", "SHOULD"),
        ("Lists", "Clients MUST: do this.", "MUST"),
        ("Lists", "Clients MUST: do that:", "MUST"),
        ("Lists", "A paragraph of the item, which SHOULD count alone.", "SHOULD"),
        ("Lists", "They MUST answer", "MUST"),
        ("Lists", "Servers follow these rules: SHOULD be quick", "SHOULD"),
        ("Lists", "Notes SHOULD count.", "SHOULD"),
        ("A table", "null | Server MUST reply", "MUST"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "The client **MUST** send `a_b` to _the_ server.",
        "The client MUST\n   send a_b to the server",
        "the Client must send [a_b](https://one.example) to the server.",
        "The client **must** send [a_b][x] to <b>the</b> server:",
    ],
)
def test_a_hash_is_made_of_the_words_alone(text: str) -> None:
    assert Sentence("", plain(text)).hash == Sentence("", "The client MUST send a_b to the server").hash
    assert Sentence("", plain(text)).hash != Sentence("", "The client MUST send a_b to a server").hash
