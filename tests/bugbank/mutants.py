"""`python -m tests.bugbank.mutants [MODULE …]`: change one operator or value of the rules at a time; a test must fail.

A mutant is a function whose code object is replaced. pytest collects the tests once. For each mutant the process forks, the child puts the mutant in and runs
the tests until one fails: most mutants take a fraction of a second. The score is written to `docs/proof.md`, the survivors to `docs/proof/mutants.txt`.
"""

import argparse
import ast
import copy
import importlib
import inspect
import os
import pkgutil
import re
import signal
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from holdfast.core import rules

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "proof.md"
TESTS: Final = ("tests/rules", "tests/unit/core", "tests/unit/stores")
SECONDS: Final = 60
"""Of the processor. A mutant that lets the tests run for longer is found."""
NO_MUTANT: Final = 77
"""The exit status of a child whose mutant cannot be made."""
MODULES: Final = (
    *(f"holdfast.core.rules.{one.name}" for one in pkgutil.iter_modules(rules.__path__)),
    *(f"holdfast.core.{name}" for name in ("admission", "exchange", "fate", "lifecycle", "stream")),
)
SWAPS: Final[dict[type[ast.AST], Any]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
_PLACE: Final = re.compile(r"(?<=<!-- mutants -->\n).*?(?=<!-- /mutants -->)", re.DOTALL)


class Mutant(NamedTuple):
    """One change."""

    module: str
    function: str
    number: int
    line: int
    change: str

    @property
    def name(self) -> str:
        """Where it is, for people and for the variable."""
        return f"{self.module}:{self.function}:{self.number}"


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


def _tree(function: FunctionType) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def mutants(module: str) -> Iterator[Mutant]:
    """Yield all changes of a module."""
    for name, function in functions(importlib.import_module(module)):
        if function.__closure__ or function.__name__ == "<lambda>":
            continue
        changer = _Changer()
        changer.visit(_body(_tree(function)))
        first = function.__code__.co_firstlineno
        for number, (line, change) in enumerate(changer.changes):
            yield Mutant(module, name, number, first + line - 1, change)


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
    function = dict(functions(importlib.import_module(mutant.module)))[mutant.function]
    code = code_of(mutant, function)
    right = function.__code__
    if code is not None:
        function.__code__ = code
    try:
        yield code is not None
    finally:
        function.__code__ = right


def _end_of_child(session: pytest.Session, mutant: Mutant | None) -> int:
    """Run the tests until one fails, with a mutant; return 0 if none fails."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    with applied(mutant) if mutant else nullcontext(True) as is_there:
        if not is_there:
            return NO_MUTANT
        for item, following in pairwise([*session.items, None]):
            assert item is not None
            if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
                return 1
    return 0


def survives(session: pytest.Session, mutant: Mutant | None) -> bool | None:
    """Return True if no test finds a mutant; None if the change cannot be made. Without a mutant, True if all tests pass."""
    child = os.fork()
    if not child:
        end = 1
        try:
            end = _end_of_child(session, mutant)
        finally:
            os._exit(end)
    _, status = os.waitpid(child, 0)
    return None if os.waitstatus_to_exitcode(status) == NO_MUTANT else status == 0


class Hunt:
    """Instead of running the tests once, pytest runs them for each mutant."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = modules
        self.lines: list[str] = []
        self.survivors: list[Mutant] = []
        self.total = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        assert survives(session, None), "the tests fail without a mutant"
        for module in self._modules:
            outcomes = [(mutant, survives(session, mutant)) for mutant in mutants(module)]
            left = [mutant for mutant, outcome in outcomes if outcome]
            count = sum(outcome is not None for _, outcome in outcomes)
            for mutant in left:
                print(f"survives: {mutant.name} line {mutant.line}: {mutant.change}", flush=True)
            self.survivors += left
            self.total += count
            self.lines.append(
                f"| `{module.removeprefix('holdfast.')}` | {count} | {count - len(left)} | {len(left)} |"
            )
            print(self.lines[-1], flush=True)
        return True


def main() -> int:
    """Try all mutants, and write the score."""
    parser = argparse.ArgumentParser(prog="python -m tests.bugbank.mutants")
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--tests", nargs="+", default=TESTS, help="the tests that look for mutants")
    arguments = parser.parse_args()
    hunt = Hunt(arguments.modules)
    ended = pytest.main(
        ["-q", "-s", "--no-header", "-p", "no:cacheprovider", *arguments.tests], plugins=[hunt]
    )
    if ended == 0 and (arguments.modules, arguments.tests) == (MODULES, TESTS):
        found = hunt.total - len(hunt.survivors)
        score = f"{found} of {hunt.total} mutants are found ({100 * found / hunt.total:.1f} %).\n\n"
        head = ["| module | mutants | found | survivors |", "|---|---|---|---|"]
        PAGE.write_text(
            _PLACE.sub(lambda _: score + "\n".join([*head, *hunt.lines]) + "\n", PAGE.read_text())
        )
    return int(ended)


if __name__ == "__main__":
    sys.exit(main())
