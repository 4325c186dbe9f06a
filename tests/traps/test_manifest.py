"""Every trap of the field notes (section 2b, 1 to 46) has a test that names it, or a reason here why it has none.

A test names its traps by its name (`test_trap_14_…`) or in its docstring (`Trap 14: …`, `Traps 14, 21: …`).

| trap | why no test of a server of this era |
|---|---|
| 41 | a lock around the migration of a session between replicas; the memory store has one process and no migration |
| 46 | a client's duty when it initialises again; it comes with the client |
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]


def named(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[int]:
    """Yield the numbers of the traps a test names."""
    if match := re.match(r"test_trap_(\d+)_", function.name):
        yield int(match[1])
    for numbers in re.findall(r"\bTraps? (\d+(?:, \d+)*)", ast.get_docstring(function) or ""):
        yield from map(int, numbers.split(", "))


def test_every_trap_is_tested_or_explained() -> None:
    tested = {
        number
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        for number in named(node)
    }
    explained = {int(number) for number in re.findall(r"^\| (\d+) \|", __doc__ or "", re.MULTILINE)}
    assert tested | explained == set(range(1, 47))
    assert not tested & explained, "a trap that is tested needs no excuse"
