"""`python -m tests.bugbank.mutants [MODULE …]`: change one operator, value or cell of the pure code at a time; a test must fail.

A mutant is a function whose code object is replaced, or a table of states with another cell. pytest collects the tests once, and notes which functions each test
calls. For each mutant the process forks, the child puts the mutant in and runs the tests that call its function until one fails: most mutants take less than a second. The rows of the modules are written to `docs/proof.md`, the survivors to `docs/proof/mutants.txt`, where
each gets a reason by hand; one without a reason makes this command fail. Name modules to try them again: the rows of the others stay. `--survivors` tries
only what survived the last time.
"""

import argparse
import ast
import copy
import importlib
import inspect
import os
import pickle
import pkgutil
import re
import signal
import sys
import textwrap
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import starmap, zip_longest
from pathlib import Path
from tempfile import TemporaryFile
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import IO, Any, Final, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from limpet import core
from limpet.core import rules
from limpet.stores import memory, shared

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "proof.md"
TESTS: Final = (
    *(
        "tests/rules",
        "tests/unit/core",
        "tests/unit/stores",
        "tests/unit/engine",
        "tests/contracts/test_store.py",
    ),
    *(
        f"tests/properties/test_{name}.py"
        for name in ("accounting", "drafts", "exchange_table", "fate_table")
    ),
    *(f"tests/properties/test_{name}.py" for name in ("gate", "log", "shared_model")),
)
SECONDS: Final = 15
"""Of the processor. A mutant that lets a test run for longer is found."""
NO_MUTANT: Final = 77
"""The exit status of a child whose mutant cannot be made."""
MODULES: Final = tuple(
    f"{package.__name__}.{one.name}"
    for package in (rules, core, shared, memory)
    for one in pkgutil.iter_modules(package.__path__)
    if not one.ispkg
)
TABLES: Final = ("TABLE", "TRANSITIONS")
"""The names of the tables of states."""
AT_IMPORT: Final = ("_held", "_row", "_built")
"""Functions that make a table of states, once: the cells of the table are changed instead."""
SWAPS: Final[dict[type[ast.AST], Any]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
SURVIVORS: Final = PAGE.parent / "proof" / "mutants.txt"
REASON: Final = "  #"
"""In the list of survivors, between a mutant and why no test can or need find it."""
_ROW: Final = re.compile(r"^\| `((?:core|stores)\.\S+)` \| (\d+) \| (\d+) \|", re.MULTILINE)
_PLACE: Final = re.compile(r"(?<=<!-- mutants -->\n).*?(?=<!-- /mutants -->)", re.DOTALL)


class Mutant(NamedTuple):
    """One change."""

    module: str
    function: str
    number: int
    line: int
    words: str
    """The line as it is in the source."""
    change: str
    place: int
    """Which one of the equal changes of equal lines of the function, from 1."""

    def text(self) -> str:
        """Say where it is: by the words of the line, because its number changes with each commit."""
        again = f" ({self.place})" if self.place > 1 else ""
        return f"{_short(self.module)}: {self.function}: `{self.words}` {self.change}{again}"


def functions(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """Yield the functions and methods that a module defines."""
    for name, found in vars(module).items():
        if inspect.isfunction(found) and found.__module__ == module.__name__:
            yield name, found
        elif inspect.isclass(found) and found.__module__ == module.__name__:
            for inner, method in vars(found).items():
                function = method.fget if isinstance(method, property) else method
                if inspect.isfunction(function) and function.__module__ == module.__name__:
                    yield f"{name}.{inner}", function


class _Changer(ast.NodeTransformer):
    """Makes the change with a number; without one, counts the changes."""

    def __init__(self, wanted: int = -1) -> None:
        self._wanted = wanted
        self.changes: list[tuple[int, str]] = []

    def _is_it(self, node: ast.AST, change: str) -> bool:
        self.changes.append((getattr(node, "lineno", 0), change))
        return len(self.changes) - 1 == self._wanted

    def visit(self, node: ast.AST) -> Any:
        self.generic_visit(node)
        match node:
            case ast.Compare(ops=[op]) if type(op) in SWAPS and self._is_it(
                node, f"{type(op).__name__} swapped"
            ):
                node.ops = [SWAPS[type(op)]()]
            case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op) if type(
                op
            ) in SWAPS and self._is_it(node, f"{type(op).__name__} swapped"):
                node.op = SWAPS[type(op)]()
            case ast.UnaryOp(op=ast.Not()) if self._is_it(node, "not removed"):
                return node.operand
            case ast.Constant(value=int() as value) if self._is_it(node, f"{value} changed"):
                return ast.copy_location(
                    ast.Constant(not value if isinstance(value, bool) else value + 1), node
                )
            case ast.Expr(value=ast.Call()) if self._is_it(node, "call removed"):
                return ast.copy_location(ast.Pass(), node)
            case _:
                pass
        return node


def _tables(module: str) -> Iterator[tuple[str, str, str, Any]]:
    """Yield the changed tables of states of a module: its name, the cell, the change, and the whole table."""
    for name, table in vars(importlib.import_module(module)).items():
        if name not in TABLES:
            continue
        if isinstance(table, dict):
            yield from ((name, cell, "has no effect", broken) for cell, broken in _without_one(table))
        else:
            yield from ((name, *change) for change in _with_another_cell(table))


def _without_one(table: dict[Any, Any]) -> Iterator[tuple[str, dict[Any, Any]]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from ((f"{key}, {cell}", {**table, key: row}) for cell, row in _without_one(value))
        else:
            yield str(key), {other: table[other] for other in table if other != key}


def _with_another_cell(table: Sequence[Sequence[Any]]) -> Iterator[tuple[str, str, Sequence[Sequence[Any]]]]:
    states: Any = type(next(cell[0] for row in table for cell in row if cell))
    for state, row in zip(states, table, strict=True):
        for happened, cell in enumerate(row):
            if cell is None or cell == (state, ()):
                continue
            others = [("has no effect", (state, ())), ("loses its last action", (cell[0], cell[1][:-1]))]
            for change, other in others[: 1 + bool(cell[1])]:
                changed = (*row[:happened], other, *row[happened + 1 :])
                yield (
                    f"{state.name}, input {happened}",
                    change,
                    (*table[:state], changed, *table[state + 1 :]),
                )


def _tree(function: FunctionType) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def mutants(module: str) -> Iterator[Mutant]:
    """Yield all changes of a module."""
    for name, function in functions(importlib.import_module(module)):
        if function.__closure__ or function.__name__ == "<lambda>" or name in AT_IMPORT:
            continue
        changer = _Changer()
        changer.visit(_body(_tree(function)))
        first, source = function.__code__.co_firstlineno, inspect.getsource(function).splitlines()
        places = Counter[tuple[str, str]]()
        for number, (line, change) in enumerate(changer.changes):
            words = source[line - 1].strip()
            places[words, change] += 1
            yield Mutant(module, name, number, first + line - 1, words, change, places[words, change])
    for number, (table, cell, change, _) in enumerate(_tables(module)):
        yield Mutant(module, table, number, 0, cell, change, 1)


def _body(tree: ast.Module) -> ast.Module:
    """Leave only what runs: no decorators, no annotations, no defaults."""
    [made] = tree.body
    assert isinstance(made, ast.FunctionDef | ast.AsyncFunctionDef)
    made.decorator_list = []
    made.returns = None
    for one in (*made.args.args, *made.args.kwonlyargs, *made.args.posonlyargs):
        one.annotation = None
    defaults, keyword = made.args.defaults, made.args.kw_defaults
    made.args.defaults, made.args.kw_defaults = [], [None] * len(keyword)
    del defaults
    return tree


def code_of(mutant: Mutant, function: FunctionType) -> CodeType | None:
    """Return the changed code; None if it cannot replace the function's."""
    tree = _body(_tree(function))
    changed = _Changer(mutant.number).visit(copy.deepcopy(tree))
    made: dict[str, Any] = {}
    compiled = compile(ast.fix_missing_locations(changed), function.__code__.co_filename, "exec")
    exec(compiled, function.__globals__, made)  # noqa: S102 - a mutant
    code = made[function.__name__].__code__
    return code if code.co_freevars == function.__code__.co_freevars else None


@contextmanager
def applied(mutant: Mutant) -> Iterator[bool]:
    """Put a mutant into this process. False: it cannot be."""
    module = importlib.import_module(mutant.module)
    if mutant.function in TABLES:
        broken = [*_tables(mutant.module)][mutant.number][-1]
        with _put(mutant.function, vars(module)[mutant.function], broken):
            yield True
        return
    function = dict(functions(module))[mutant.function]
    code = code_of(mutant, function)
    right = function.__code__
    if code is not None:
        function.__code__ = code
    try:
        yield code is not None
    finally:
        function.__code__ = right


@contextmanager
def _put(name: str, right: Any, broken: Any) -> Iterator[None]:
    """Put a broken table into every module that knows the right one."""
    users = [module for module in sys.modules.values() if vars(module).get(name) is right]
    for module in users:
        vars(module)[name] = broken
    yield
    for module in users:
        vars(module)[name] = right


def _fails(item: pytest.Item, following: pytest.Item | None) -> bool:
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def _end_of_child(items: Sequence[pytest.Item], mutant: Mutant) -> int:
    """Run the tests until one fails, with a mutant; return 0 if none fails."""
    own = mutant.module.rpartition(".")[2]
    inorder = sorted(items, key=lambda item: own not in item.path.name)  # those of the module first
    with applied(mutant) as is_there:
        return int(any(starmap(_fails, _with_next(inorder)))) if is_there else NO_MUTANT


def _with_next(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip_longest(items, items[1:])


def _in_a_child(act: Callable[[], int]) -> int:
    """Call a function in a process of its own, and return its exit status; a signal that ends it is a negative number."""
    child = os.fork()
    if not child:
        end = 1
        try:
            end = act()
        finally:
            os._exit(end)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def calls(items: Sequence[pytest.Item]) -> dict[CodeType, list[pytest.Item]]:
    """Return the tests that call each function, by its code. All of them must pass."""
    with TemporaryFile() as found:
        assert not _in_a_child(partial(_note_calls, items, found)), "the tests fail without a mutant"
        found.seek(0)
        numbers = pickle.load(found)  # noqa: S301 - our own child wrote it
    codes = [
        function.__code__ for module in MODULES for _, function in functions(importlib.import_module(module))
    ]
    return {code: [items[number] for number in numbers.get(_where(code), ())] for code in codes}


def code_before(mutant: Mutant) -> CodeType:
    """Return the code of the function that a mutant changes."""
    return dict(functions(importlib.import_module(mutant.module)))[mutant.function].__code__


def _where(code: CodeType) -> tuple[str, int]:
    return code.co_filename, code.co_firstlineno


def _note_calls(items: Sequence[pytest.Item], found: IO[bytes]) -> int:
    numbers = defaultdict[tuple[str, int], list[int]](list)
    for number, (item, following) in enumerate(_with_next(items)):
        seen = set[CodeType]()
        note = _note_in(seen)
        threading.setprofile(note)
        sys.setprofile(note)
        failed = _fails(item, following)
        sys.setprofile(None)
        if failed:
            print(f"fails without a mutant: {item.nodeid}")
            return 1
        for place in {_where(code) for code in seen}:
            numbers[place].append(number)
    pickle.dump(dict(numbers), found)
    found.flush()
    return 0


def _note_in(seen: set[CodeType]) -> Callable[[FrameType, str, object], None]:
    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    return note


def survives(items: Sequence[pytest.Item], mutant: Mutant) -> bool | None:
    """Return True if no test finds a mutant; None if the change cannot be made."""
    end = _in_a_child(partial(_end_of_child, items, mutant))
    return None if end == NO_MUTANT else end == 0


class Hunt:
    """Instead of running the tests once, pytest runs them for each mutant."""

    def __init__(self, modules: Sequence[str], only: Container[str] | None = None) -> None:
        self._modules = modules
        self._only = only
        self.survivors: dict[str, list[str]] = {}
        self.counts: dict[str, int] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        callers = calls(session.items)
        for module in self._modules:
            name, left = _short(module), list[str]()
            outcomes = list[bool]()
            for mutant in mutants(module):
                is_found = self._only is not None and mutant.text() not in self._only
                items = session.items if mutant.function in TABLES else callers[code_before(mutant)]
                outcome = False if is_found else survives(items, mutant)
                outcomes += [] if outcome is None else [outcome]
                if outcome:
                    left.append(mutant.text())
                    print(f"survives: {left[-1]} (line {mutant.line})", flush=True)
            self.survivors[name], self.counts[name] = left, len(outcomes)
            print(f"{name}: {len(outcomes)} mutants, {len(left)} survive", flush=True)
        return True


def _short(module: str) -> str:
    return module.removeprefix("limpet.")


def noted(hunt: Hunt) -> int:
    """Write the rows and the survivors of the modules that were tried; return how many survivors have no reason."""
    reasons = known_survivors()
    kept = [line for line in reasons if line.partition(":")[0] not in hunt.survivors]
    order = {_short(module): number for number, module in enumerate(MODULES)}
    found = sorted(
        [*kept, *(one for left in hunt.survivors.values() for one in left)],
        key=lambda line: order[line.partition(":")[0]],
    )
    SURVIVORS.write_text("".join(f"{one}{REASON} {reasons.get(one, '')}\n" for one in found))
    PAGE.write_text(_PLACE.sub(lambda place: _table(place[0], hunt, order), PAGE.read_text()))
    return sum(not reasons.get(one) for one in found)


def known_survivors() -> dict[str, str]:
    """Return the survivors of the last runs, with their reasons."""
    lines = (line.partition(REASON) for line in SURVIVORS.read_text().splitlines())
    return {mutant: reason.strip() for mutant, _, reason in lines}


def rows(page: str) -> dict[str, tuple[int, int]]:
    """Return how many mutants each module has, and how many of them are found."""
    return {name: (int(count), int(found)) for name, count, found in _ROW.findall(page)}


def _table(before: str, hunt: Hunt, order: dict[str, int]) -> str:
    made = rows(before)
    made |= {name: (count, count - len(hunt.survivors[name])) for name, count in hunt.counts.items()}
    total, found = (sum(column) for column in zip(*made.values(), strict=True))
    lines = [
        f"| `{name}` | {made[name][0]} | {made[name][1]} | {made[name][0] - made[name][1]} |"
        for name in sorted(made, key=lambda name: order[name])
    ]
    return "\n".join([
        f"{found:,} of {total:,} mutants are found ({100 * found / total:.1f} %), last written on {time.strftime('%Y-%m-%d', time.gmtime())}.",
        "",
        "| module | mutants | found | survivors |",
        "|---|---|---|---|",
        *lines,
        "",
    ])  # fmt: skip


def main() -> int:
    """Try all mutants, and write the score."""
    parser = argparse.ArgumentParser(prog="python -m tests.bugbank.mutants")
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--survivors", action="store_true", help="only what survived the last time")
    arguments = parser.parse_args()
    hunt = Hunt(arguments.modules, known_survivors() if arguments.survivors else None)
    ended = pytest.main(["-q", "-s", "--no-header", "-p", "no:cacheprovider", *TESTS], plugins=[hunt])
    return int(ended) or int(noted(hunt) > 0)


if __name__ == "__main__":
    sys.exit(main())
