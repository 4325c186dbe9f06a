"""The architecture page: its layers and functions are those of the code, and its five walks are the ways of messages.

`tools/walks.py` sends the messages through a real server and records the calls.
"""

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.support import BOUND
from tests.test_architecture import LAYERS, PACKAGE

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "architecture.md").read_text()
SECTIONS: Final = dict(re.findall(r"^## Walk: ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
STEP: Final = re.compile(r"`([\w/]+\.py)` · `([\w.]+)`")

FRAMES: Final = {
    "plain call": 61,
    "streamed call": 302,
    "elicitation": 270,
    "resume": 400,
    "proxied call": 118,
}
"""The most calls of functions that a message may take. Those of the HTTP server count: a head that its connection has not sent
before takes about twenty, two for each request and one for each header. A resume at a replica that does not know the session
reads and decodes its document, two frames for each field."""

Walks = dict[str, list[tuple[str, str]]]


@cache
def walks() -> Walks:
    """Return the calls that really run, as pairs of file and function."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.walks", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND,
    )
    assert done.returncode == 0, done.stderr
    return {
        name: [(file, function) for file, function, _ in steps]
        for name, steps in json.loads(done.stdout).items()
    }


def misplaced(named: list[tuple[str, str]], walked: list[tuple[str, str]]) -> str:
    """Return the first step that is not on the way after the steps before it; empty: all are."""
    at = 0
    for file, function in named:
        if (file, function) not in walked:
            return f"{file} · {function} is not on the way"
        if (file, function) not in walked[at:]:
            return f"{file} · {function} runs earlier than the page says"
        at = walked.index((file, function), at) + 1
    return ""


def test_a_step_that_does_not_run_or_runs_earlier_is_found() -> None:
    walked = [("a.py", "one"), ("b.py", "two"), ("a.py", "one")]
    assert misplaced([("a.py", "one"), ("b.py", "two"), ("a.py", "one")], walked) == ""
    assert (
        misplaced([("b.py", "two"), ("b.py", "two")], walked) == "b.py · two runs earlier than the page says"
    )
    assert misplaced([("b.py", "one")], walked) == "b.py · one is not on the way"


@pytest.mark.parametrize("name", FRAMES)
def test_a_message_takes_the_way_that_the_page_describes(name: str) -> None:
    named = STEP.findall(SECTIONS[name])
    assert len(named) >= 8, "a walk has its important steps"
    assert misplaced(named, walks()[name]) == ""


def test_the_page_describes_the_walks_that_are_recorded() -> None:
    assert list(SECTIONS) == list(FRAMES) == list(walks())


@pytest.mark.parametrize("name", FRAMES)
def test_a_message_takes_no_longer_way_than_before(name: str) -> None:
    assert len(walks()[name]) <= FRAMES[name]


def test_every_layer_of_a_walk_is_named_in_it() -> None:
    for name, text in SECTIONS.items():
        named = {file.partition("/")[0] for file, _ in STEP.findall(text)}
        walked = {file.partition("/")[0] for file, _ in walks()[name] if "/" in file}
        assert walked - {"protocol", "core"} <= named, f"{name}: {walked - named}"


def test_the_table_of_layers_is_the_one_that_the_architecture_test_enforces() -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    page = [tuple(re.findall(r"`(\w+)`", row)) for row in rows]
    layers = [tuple(name for name in row if exists(name)) for row in LAYERS]
    assert page == [row for row in layers if row]


# Where is …?

PLACE: Final = re.compile(r"`([\w/]+\.(?:py|lua))` · `([\w.]+)`")
LUA_NAME: Final = re.compile(r"^(?:local function|--##) (\w+)", re.MULTILINE)


def names(tree: ast.Module | ast.ClassDef, prefix: str = "") -> set[str]:
    """Return the functions, classes, methods and fields of a module, with the names of their classes."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found |= {prefix + node.name} | names(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(prefix + node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(prefix + node.target.id)
    return found


def is_there(file: str, name: str) -> bool:
    """Tell whether a file of the package has a function, a class or a field of this name."""
    path = PACKAGE / file
    if not path.is_file():
        return False
    text = path.read_text()
    return name in (LUA_NAME.findall(text) if path.suffix == ".lua" else names(ast.parse(text)))


def test_a_place_that_does_not_exist_is_found() -> None:
    assert is_there("engine/exchanges.py", "Exchanges.settle")
    assert is_there("config.py", "Times.write_stall")
    assert is_there("stores/redis/lua/index.lua", "due")
    assert not is_there("engine/exchanges.py", "settle")
    assert not is_there("engine/nowhere.py", "settle")
    assert not is_there("stores/redis/lua/index.lua", "overdue")


def test_every_place_that_answers_a_question_exists() -> None:
    text = PAGE[PAGE.index("## Where is …?") : PAGE.index("## Walk: ")]
    places = PLACE.findall(text)
    assert len(places) >= 40
    assert [place for place in places if not is_there(*place)] == []
    questions = re.findall(r"^\| [^|]+\? \| ([^|]+) \|$", text, re.MULTILINE)
    assert len(questions) >= 20
    assert [answer for answer in questions if not PLACE.search(answer) and "](#" not in answer] == []


def exists(layer: str) -> bool:
    """Tell whether a layer of the plan has code."""
    return (PACKAGE / layer / "__init__.py").exists() or (
        layer != "__main__" and (PACKAGE / f"{layer}.py").exists()
    )
