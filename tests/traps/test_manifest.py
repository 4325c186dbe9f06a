"""Every trap of docs/traps.md is tried by the tests that the page names, or the page says why there is no test.

A test names its traps by its name (`test_trap_14_…`) or in its docstring (`Trap 14: …`, `Traps 14, 21: …`).
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (\d+) \| .* \| ([^|]*) \|$", re.MULTILINE)


def named(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[int]:
    """Yield the numbers of the traps a test names."""
    if match := re.match(r"test_trap_(\d+)_", function.name):
        yield int(match[1])
    for numbers in re.findall(r"\bTraps? (\d+(?:, \d+)*)", ast.get_docstring(function) or ""):
        yield from map(int, numbers.split(", "))


def tried() -> dict[int, set[str]]:
    """Return the files whose tests name each trap."""
    found: dict[int, set[str]] = defaultdict(set)
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for number in named(node):
                    found[number].add(path.relative_to(ROOT).as_posix())
    return found


def test_the_page_names_a_test_or_a_reason_for_every_trap() -> None:
    rows = ROW.findall((ROOT / "docs" / "traps.md").read_text())
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    listed = {int(number): set(re.findall(r"`(tests/[^`]+)`", where)) for number, where in rows}
    excused = {int(number) for number, where in rows if where.startswith("no test: ")}
    assert {number: files for number, files in listed.items() if number not in excused} == tried()
    assert not any(listed[number] for number in excused), "a trap that is tried needs no excuse"
