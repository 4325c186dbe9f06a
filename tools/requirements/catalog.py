"""The requirements that the repository knows: their hashes by page, and the rows that answer them.

`tests/requirements/sentences.json` has, for each page, the hash, the level and the section of each requirement. The files
`tests/requirements/*.toml` have the rows. A row answers one or more requirements: it says in our own words what they ask
for and whom they bind, and names the tests that fail if it is broken, or the reason why there is none.
"""

import json
import tomllib
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "tests" / "requirements"
SENTENCES: Final = FOLDER / "sentences.json"
BINDS: Final = frozenset({"server", "client", "both", "authorization server", "other"})


class Row(NamedTuple):
    """One answer: to `hashes`, by `tests` or by a `reason`."""

    subject: str
    hashes: tuple[str, ...]
    binds: str
    says: str
    tests: tuple[str, ...] = ()
    reason: str = ""
    exception: str = ""
    """The case in which a requirement that has tests is not met, and why."""


class Known(NamedTuple):
    """One requirement of a page, without its words."""

    hash: str
    level: str
    section: str


class Sentences(NamedTuple):
    """The requirements of every page, and the commits at which they were read."""

    commits: dict[str, str]
    pages: dict[str, list[Known]]


def load_rows() -> list[Row]:
    """Return the rows of every subject."""
    return [
        _row(path.stem, one)
        for path in sorted(FOLDER.glob("*.toml"))
        for one in tomllib.loads(path.read_text(encoding="utf-8"))["requirement"]
    ]


def _row(subject: str, members: dict[str, Any]) -> Row:
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in members.items()
    }
    return Row(subject=subject, **given)


def load_sentences() -> Sentences:
    """Return the committed hashes."""
    found = json.loads(SENTENCES.read_text(encoding="utf-8"))
    pages = {page: [Known(*one) for one in known] for page, known in found["pages"].items()}
    return Sentences(found["commits"], pages)


def save_sentences(sentences: Sentences) -> None:
    """Write the hashes, one requirement a line."""
    blocks = []
    for page, known in sentences.pages.items():
        lines = ",\n".join(f"      {json.dumps(one)}" for one in known)
        blocks.append(f"    {json.dumps(page)}: [\n{lines}\n    ]")
    pages = ",\n".join(blocks)
    text = f'{{\n  "commits": {json.dumps(sentences.commits)},\n  "pages": {{\n{pages}\n  }}\n}}\n'
    SENTENCES.write_text(text, encoding="utf-8")
