"""Rules that the tests themselves keep: what they open is closed, and a test is its own coroutine."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tools.seconds import measured, with_seconds

TESTS: Final = Path(__file__).parent
ENDS: Final = {"aclose", "close", "stop"}
"""Names of methods whose purpose it is to close something."""

Rule = Callable[[ast.Module], Iterator[str]]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def closed_in_any_case(tree: ast.Module) -> Iterator[str]:
    """A last line that closes does not run if an assertion before it fails."""
    for function in ast.walk(tree):
        if isinstance(function, Function) and function.name not in ENDS:
            body = function.body
            while isinstance(body[-1], ast.With | ast.AsyncWith | ast.For | ast.AsyncFor):
                body = body[-1].body
            if (
                len(body) > 1
                and isinstance(body[-1], ast.Expr)
                and ast.unparse(body[-1]).endswith(".aclose()")
            ):
                yield f"{body[-1].lineno}: `{function.name}` ends with `{ast.unparse(body[-1])}`: use `async with aclosing(…)`"


def own_coroutine(tree: ast.Module) -> Iterator[str]:
    """A test that defines a coroutine and runs it says everything twice: decorate the test itself."""
    for test in ast.walk(tree):
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
            for statement in test.body:
                inner = isinstance(statement, ast.AsyncFunctionDef) and statement.name
                if inner and ast.unparse(test.body[-1]) in {f"{inner}()", f"asyncio.run({inner}())"}:
                    yield f"{test.lineno}: `{test.name}` only runs its `{inner}`: use `@async_test`"


REAL: Final = {"async_test", "async_test_within", "http_test"}
"""What runs a test in real time."""


def reasons_for_real_sleeps(source: str) -> Iterator[str]:
    """A sleep in real time is a hope, if time is not the subject: the line, or the one above, says why."""
    lines = source.splitlines()
    for test in ast.walk(ast.parse(source)):
        if isinstance(test, Function) and REAL & {
            ast.unparse(decorator).partition("(")[0] for decorator in test.decorator_list
        }:
            for call in ast.walk(test):
                if isinstance(call, ast.Call) and ast.unparse(call.func) in {"asyncio.sleep", "time.sleep"}:
                    above = lines[call.lineno - 2].strip()
                    if (
                        ast.unparse(call.args[0]) != "0"
                        and "#" not in lines[call.lineno - 1]
                        and above[:1] != "#"
                    ):
                        yield f"{call.lineno}: `{ast.unparse(call)}` has no comment that says why time must pass"


RULES: Final[tuple[Rule, ...]] = (closed_in_any_case, own_coroutine)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_test_keeps_the_rule(rule: Rule) -> None:
    complaints = [
        f"{path.relative_to(TESTS.parent)}:{complaint}"
        for path in sorted(TESTS.rglob("*.py"))
        for complaint in rule(ast.parse(path.read_text()))
        if (path.name, rule) not in ALLOWED
    ]
    assert not complaints, "\n" + "\n".join(complaints)


def test_every_sleep_in_real_time_has_a_reason() -> None:
    complaints = [
        f"{path.relative_to(TESTS.parent)}:{complaint}"
        for path in sorted(TESTS.rglob("*.py"))
        if "sleep(" in (source := path.read_text())
        for complaint in reasons_for_real_sleeps(source)
    ]
    assert not complaints, "\n" + "\n".join(complaints)


@pytest.mark.parametrize(
    ("line", "complaints"),
    [
        ("await asyncio.sleep(1)", 1),
        ("await asyncio.sleep(0)", 0),
        ("await asyncio.sleep(1)  # why", 0),
        ("# why\n    time.sleep(1)", 0),
    ],
)
def test_a_sleep_without_a_reason_is_found(line: str, complaints: int) -> None:
    assert (
        len(list(reasons_for_real_sleeps(f"@async_test\nasync def test_x():\n    a()\n    {line}\n")))
        == complaints
    )
    assert list(reasons_for_real_sleeps(f"@virtual_test\nasync def test_x():\n    a()\n    {line}\n")) == []


ALLOWED: Final = {("test_author_errors.py", own_coroutine): "`run()` inside a running loop is the subject"}

LAST = "async def test_x():\n    store = Store()\n    assert store\n    await store.aclose()"
INSIDE = "async def test_x():\n    with y:\n        z()\n        for store in both:\n            store.x()\n            await store.aclose()"
WITH = "async def test_x():\n    async with aclosing(store):\n        assert store"
FINALLY = "async def made():\n    try:\n        yield store\n    finally:\n        await store.aclose()"
SUBJECT = "async def test_x():\n    a()\n    await store.aclose()\n    assert store.is_closed"
METHOD = "async def stop(self):\n    a()\n    await self.store.aclose()"
NESTED = "def test_x(a):\n    b = a\n    @async_test\n    async def run():\n        await b\n    run()"
PLAIN = "def test_x():\n    async def run():\n        await b\n    asyncio.run(run())"
TWICE = "def test_x():\n    @async_test\n    async def body():\n        await b\n    body()\n    assert seen"


@pytest.mark.parametrize(
    ("rule", "sample", "breaches"),
    [
        (closed_in_any_case, LAST, 1),
        (closed_in_any_case, INSIDE, 1),
        (closed_in_any_case, WITH, 0),
        (closed_in_any_case, FINALLY, 0),
        (closed_in_any_case, SUBJECT, 0),
        (closed_in_any_case, METHOD, 0),
        (own_coroutine, NESTED, 1),
        (own_coroutine, PLAIN, 1),
        (own_coroutine, TWICE, 0),
        (own_coroutine, WITH, 0),
    ],
)
def test_a_breach_is_found(rule: Rule, sample: str, breaches: int) -> None:
    assert len(list(rule(ast.parse(sample)))) == breaches


def test_the_table_of_folders_has_every_folder_with_tests() -> None:
    page = (TESTS.parent / "CONTRIBUTING.md").read_text()
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/test_*.py")}
    assert [name for name in sorted(folders) if f"| `tests/{name}` | " not in page] == []


def test_the_seconds_of_a_folder_are_written_into_its_row() -> None:
    page = "| folder |\n| `tests/unit` | mirrors `src` | – | – |\n| `tests/http` | sockets | 3 | 7 |\n"
    assert with_seconds(page, {"tests/unit": [0.25, 1.5], "tests/gone": [1.0]}) == (
        "| folder |\n| `tests/unit` | mirrors `src` | 2 | 2 |\n| `tests/http` | sockets | 3 | 7 |\n"
    )


def test_the_seconds_of_several_reports_are_those_of_their_folders(tmp_path: Path) -> None:
    cases = (
        'classname="tests.unit.cli.test_words" time="0.5"',
        'classname="tests.simulation.test_runs.TestAll" time="2"',
    )
    for name in ("others", "simulation"):
        inside = "".join(f'<testcase {case} name="x" />' for case in cases)
        (tmp_path / f"{name}.xml").write_text(f"<testsuites><testsuite>{inside}</testsuite></testsuites>")
    assert measured(sorted(tmp_path.iterdir())) == {"tests/unit": [0.5, 0.5], "tests/simulation": [2.0, 2.0]}
