"""`python -m tests.bugbank.mutants [MODULE …]`: change one operator or value of the rules at a time; a test must fail.

A mutant is a function of `core` whose code object is replaced in this process. First the tests of the rules run on the memory store, in this process. For a
mutant that survives them, pytest runs the tests of `tests/rules` and `tests/unit/core` in a process of its own. The score and the survivors are written to
`docs/proof.md`.
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
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

from holdfast.core import rules
from tests.bugbank.finding import broken_sentences

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "proof.md"
VARIABLE: Final = "HOLDFAST_MUTANT"
SECONDS: Final = 30
"""A mutant that lets the tests run for longer is found."""
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


def apply_from_environment() -> None:
    """Put the mutant of the variable into this process, and leave it there."""
    name = os.environ.get(VARIABLE)
    if name:
        module, function, number = name.split(":")
        found = dict(functions(importlib.import_module(module)))[function]
        code = code_of(Mutant(module, function, int(number), 0, ""), found)
        assert code is not None
        found.__code__ = code


class _Late(BaseException):
    """The tests of a mutant run for too long."""


def _is_found_here() -> bool:
    def late(*_: object) -> None:
        raise _Late

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        return any(broken_sentences())
    except _Late:
        return True
    finally:
        signal.alarm(0)


def _is_found_by_pytest(mutant: Mutant) -> bool:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.bugbank.mutated",
    ]
    try:
        done = subprocess.run(
            [*command, "tests/rules", "tests/unit/core"],
            cwd=ROOT,
            env={**os.environ, VARIABLE: mutant.name},
            capture_output=True,
            check=False,
            timeout=4 * SECONDS,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> int:
    """Try all mutants, and write the score."""
    parser = argparse.ArgumentParser(prog="python -m tests.bugbank.mutants")
    parser.add_argument("modules", nargs="*", default=MODULES)
    arguments = parser.parse_args()
    lines = ["| module | mutants | found | survivors |", "|---|---|---|---|"]
    survivors: list[Mutant] = []
    total = 0
    for module in arguments.modules:
        left: list[Mutant] = []
        count = 0
        for mutant in mutants(module):
            with applied(mutant) as is_there:
                if not is_there:
                    continue
                count += 1
                is_found = _is_found_here()
            if not is_found and not _is_found_by_pytest(mutant):
                left.append(mutant)
                print(f"survives: {mutant.name} line {mutant.line}: {mutant.change}", flush=True)
        total += count
        survivors += left
        lines.append(
            f"| `{module.removeprefix('holdfast.')}` | {count} | {count - len(left)} | {len(left)} |"
        )
        print(lines[-1], flush=True)
    if arguments.modules == MODULES:
        score = f"{total - len(survivors)} of {total} mutants are found ({100 * (total - len(survivors)) / total:.1f} %).\n\n"
        PAGE.write_text(_PLACE.sub(lambda _: score + "\n".join(lines) + "\n", PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
