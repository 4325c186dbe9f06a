"""The rules that a machine can check: layers, cycles, purity, portability, size, visible imports, names.

Each rule is a function from one module's source to complaints; each is shown to bite on a small sample.
"""

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = ROOT / "src" / "limpet"

# A module imports only from its own row or from rows above it. `testing` is for users' tests: it sees all.
LAYERS: Final = (
    ("errors", "config", "ports", "single_flight", "supervision"),
    ("wire",),
    ("protocol",),
    ("core",),
    ("tracing",),
    ("stores",),
    ("transports",),
    ("auth",),
    ("upstream",),
    ("engine",),
    ("fronts", "backs"),
    ("ops",),
    ("checking",),
    ("server", "client"),
    ("asks", "content", "context", "middleware", "options", "resources", "routes", "types"),
    ("cli", "__main__"),
    ("testing",),
)
RANK: Final = {name: rank for rank, names in enumerate(LAYERS) for name in names}

PURE: Final = {"wire", "protocol", "core"}
IMPURE_MODULES: Final = {"asyncio", "logging", "os", "random", "socket", "threading", "time"}
CHANCE_MODULES: Final = {"random", "secrets", "time"}
MAY_TAKE_CHANCE: Final = {"ports", "transports", "cli", "testing"}
POSIX_MODULES: Final = {"fcntl", "grp", "pwd", "resource", "termios", "uvloop"}
LAZY_MODULES: Final = POSIX_MODULES | {
    "asyncio",
    "jwt",
    "opentelemetry",
    "pydantic",
    "asyncpg",
    "redis",
    "rich",
    "typer",
    "httptools",
    "cryptography",
}
LAZY_LAYERS: Final = {"server"}
LAZY_HOMES: Final = {
    "limpet.fronts.http.http1.start_and_stop",
    "limpet.tracing.observer",
    "limpet.tracing.spans",
    "limpet.stores.redis.store",
    "limpet.stores.postgres.store",
    "limpet.stores.sqlite_address",
    "limpet.stores.sqlite.store",
}
"""Modules of ours that exist to import a lazy one at their top."""

LAZY_USERS: Final = {"cli"}
"""Layers that may import any of our modules inside a function: a command imports only the modules that it uses."""

HIDES: Final = {"engine", "exchange", "exchanges", "front", "reader", "readers", "server", "session", "sessions",
                "sessionless", "store", "tasks", "writer"}  # fmt: skip
"""Names of things whose private members only their own class uses."""
VERSION: Final = "limpet.__version__"
"""The one name of the package itself that its modules may import: it is there before anything else."""

MODULE_LINES: Final = 400
LONG_MODULE_LINES: Final = 600
LONG_MODULES: Final = {
    "limpet.engine.sessionless": "a call of 2026-07-28 from its start over its rounds to its end",
    "limpet.engine.sessions": "a session from `initialize` to its end",
}
"""Modules that are one idea and longer than `MODULE_LINES`, each with its idea."""
FUNCTION_LINES: Final = 45
PREDICATES: Final = ("is_", "has_", "may_", "can_")
PARTICIPLES: Final = {"begun", "built", "done", "forgotten", "found", "given", "gone", "held", "hidden", "kept", "known", "left",
                      "lost", "made", "seen", "sent", "shown", "swept", "taken", "told", "woken", "written"}  # fmt: skip
"""Those that do not end with -ed."""
STORES: Final = {"store", "at_once"}
"""The names of a store's variables and members."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Import:
    """One imported module, by its full name: `from . import x` names x, `from .x import y` names x.y."""

    line: int
    name: str
    is_local: bool
    """Inside a function: imported when the function runs."""
    is_typing: bool = False
    """Under `if TYPE_CHECKING:`, so for type checkers only."""

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]

    @property
    def layer(self) -> str:
        """The imported part of our own package; empty for the package itself."""
        return [*self.name.split("."), ""][1]


@dataclass(frozen=True)
class Source:
    module: str
    text: str
    is_package: bool = False

    @property
    def layer(self) -> str:
        return [*self.module.split("."), ""][1]

    @property
    def package(self) -> str:
        """The folder that the module is in."""
        return self.module if self.is_package else self.module.rpartition(".")[0]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def imports(self) -> list[Import]:
        return list(_imports(self, self.tree, is_local=False))

    @cached_property
    def functions(self) -> list[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    @cached_property
    def code_lines(self) -> set[int]:
        """Lines that hold code: neither blank, nor comment, nor docstring, also of an attribute."""
        silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
        silent |= {tokenize.ENDMARKER}
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in silent:
                lines.update(range(token.start[0], token.end[0] + 1))
        return lines - self._docstring_lines

    @cached_property
    def _docstring_lines(self) -> set[int]:
        lines: set[int] = set()
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return lines


def _imports(source: Source, node: ast.AST, *, is_local: bool, is_typing: bool = False) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                yield from (Import(child.lineno, alias.name, is_local, is_typing) for alias in names)
            case ast.ImportFrom(names=names):
                base = _base(source, child)
                for alias in names:
                    yield Import(child.lineno, f"{base}.{alias.name}", is_local, is_typing)
            case _:
                local = is_local or isinstance(child, Function)
                yield from _imports(
                    source, child, is_local=local, is_typing=is_typing or _is_for_typing(child)
                )


def _is_for_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _base(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = source.module.split(".")
    up = node.level - 1 if source.is_package else node.level
    return ".".join([*parts[: len(parts) - up], *([node.module] if node.module else [])])


# The rules


def layers(source: Source) -> Iterator[str]:
    if not source.layer:
        return
    if source.layer not in RANK:
        yield f"1: `{source.layer}` is in no layer: give it a place in LAYERS"
        return
    for item in source.imports:
        if item.top != "limpet" or item.name == VERSION:
            continue
        if item.layer not in RANK:
            yield f"{item.line}: imports `{item.name}` from the package's front door: name the module it lives in"
        elif RANK[item.layer] > RANK[source.layer]:
            yield f"{item.line}: `{source.layer}` may not import `{item.layer}`, which is to its right"


def purity(source: Source) -> Iterator[str]:
    if source.layer in PURE:
        for item in source.imports:
            if item.top in IMPURE_MODULES:
                yield f"{item.line}: `{source.layer}` is pure and may not import `{item.top}`"


def chance(source: Source) -> Iterator[str]:
    if source.layer not in MAY_TAKE_CHANCE:
        for item in source.imports:
            if item.top in CHANCE_MODULES:
                yield f"{item.line}: imports `{item.top}`: time and randomness are passed in through ports"


def portability(source: Source) -> Iterator[str]:
    for item in source.imports:
        if item.top in POSIX_MODULES and not item.is_local:
            yield f"{item.line}: `{item.top}` is missing on some systems: import it inside the function that uses it"


def visible_imports(source: Source) -> Iterator[str]:
    for item in source.imports:
        is_lazy = item.top in LAZY_MODULES or (item.top == "limpet" and item.layer in LAZY_LAYERS)
        is_lazy = is_lazy or item.name.rpartition(".")[0] in LAZY_HOMES
        is_lazy = is_lazy or (item.top == "limpet" and source.layer in LAZY_USERS)
        if item.is_local and not is_lazy:
            yield f"{item.line}: imports `{item.name}` inside a function: move it to the top of the module"


def pydantic_at_home(source: Source) -> Iterator[str]:
    for item in source.imports:
        if item.top == "pydantic" and source.layer not in {"server", "testing"}:
            yield f"{item.line}: imports pydantic, which only `server` may"


def module_size(source: Source) -> Iterator[str]:
    limit = LONG_MODULE_LINES if source.module in LONG_MODULES else MODULE_LINES
    if (size := len(source.code_lines)) > limit:
        yield f"1: {size} lines of code, the limit is {limit}: this is two ideas"


def function_size(source: Source) -> Iterator[str]:
    for function in source.functions:
        span = range(function.lineno, (function.end_lineno or function.lineno) + 1)
        if (size := len(source.code_lines.intersection(span))) > FUNCTION_LINES:
            yield f"{function.lineno}: `{function.name}` has {size} lines of code, the limit is {FUNCTION_LINES}"


def pure_predicates(source: Source) -> Iterator[str]:
    """A function whose name is a question only answers it: it awaits nothing, changes nothing that others see, and calls no store."""
    for function in source.functions:
        if function.name.lstrip("_").startswith(PREDICATES):
            for node in ast.walk(function):
                if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
                    yield f"{node.lineno}: `{function.name}` awaits: name it with a verb"
                elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
                    yield f"{node.lineno}: `{function.name}` changes `{ast.unparse(node)}`: name it with a verb"
                elif (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and _last_name(node.func.value).strip("_") in STORES
                ):
                    yield f"{node.lineno}: `{function.name}` calls `{ast.unparse(node.func)}`: name it with a verb"


def acting_names(source: Source) -> Iterator[str]:
    """A private function that returns nothing acts, so its name is a verb. A callback is named for its event."""
    names = [node for node in ast.walk(source.tree) if isinstance(node, ast.Name | ast.Attribute)]
    calls = {id(node.func) for node in ast.walk(source.tree) if isinstance(node, ast.Call)}
    called = {_last_name(node) for node in names if id(node) in calls}
    passed = {_last_name(node) for node in names if id(node) not in calls}
    for function in source.functions:
        first = function.name.lstrip("_").partition("_")[0]
        is_participle = first in PARTICIPLES or (first.endswith("ed") and not first.endswith("eed"))
        is_silent = isinstance(function.returns, ast.Constant) and function.returns.value is None
        if is_participle and is_silent and function.name.startswith("_") and function.name in called - passed:
            yield f"{function.lineno}: `{function.name}` acts: name it with a verb"


def facade(source: Source) -> Iterator[str]:
    """The layers above the engine use its members: not its runtime, and no private member of its parts."""
    if RANK.get(source.layer, 0) <= RANK["engine"] or source.layer == "testing":
        return
    for item in source.imports:
        if item.name.startswith("limpet.engine.runtime"):
            yield f"{item.line}: imports the engine's runtime: use a member of `Engine`"
    members = [node for node in ast.walk(source.tree) if isinstance(node, ast.Attribute)]
    own = {
        node.attr for node in members if isinstance(node.ctx, ast.Store) and _last_name(node.value) == "self"
    } | {function.name for function in source.functions}
    for node in members:
        is_private = node.attr.startswith("_") and not node.attr.startswith("__") and node.attr not in own
        if node.attr == "runtime":
            yield f"{node.lineno}: reaches through `.runtime`: give `Engine` the member that is needed"
        elif is_private and _last_name(node.value).strip("_") in HIDES:
            yield f"{node.lineno}: `{ast.unparse(node)}` is private to another module"


def _last_name(node: ast.expr) -> str:
    """Return `c` for the expression `a.b.c`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


Rule = Callable[[Source], Iterator[str]]
RULES: Final[tuple[Rule, ...]] = (
    layers,
    purity,
    chance,
    portability,
    visible_imports,
    pydantic_at_home,
    facade,
    module_size,
    function_size,
    pure_predicates,
    acting_names,
)


# Rules about all modules together

Graph = dict[str, set[str]]
"""The modules of the package that each of its modules imports."""


def graph(sources: list[Source], chosen: Callable[[Import], bool]) -> Graph:
    modules = {source.module for source in sources}
    return {
        source.module: {
            _module(item.name, modules) for item in source.imports if item.name != VERSION and chosen(item)
        }
        & modules - {source.module}
        for source in sources
    }


def _module(name: str, modules: set[str]) -> str:
    """Return the module that an imported name is, or is a member of."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def run_time_cycles(sources: list[Source]) -> Iterator[str]:
    """Modules that import each other when they are loaded: then the order of imports decides whether they work."""
    found = graph(sources, lambda item: not (item.is_local or item.is_typing))
    try:
        TopologicalSorter(found).prepare()
    except CycleError as error:
        yield f"modules import each other at run time: {' → '.join(error.args[1][::-1])}"


def cycles_across_packages(sources: list[Source]) -> Iterator[str]:
    """Modules of two folders that need each other, if only for types or inside functions: they are one package."""
    found = graph(sources, lambda _: True)
    packages = {source.module: source.package for source in sources}
    for module, imported in found.items():
        for other in sorted(imported):
            if packages[module] != packages[other] and module in _reached(other, found):
                yield f"`{module}` imports `{other}`, which needs it too: pass the value, or a protocol of it"


def _reached(module: str, found: Graph) -> set[str]:
    reached: set[str] = set()
    waiting = [module]
    while waiting:
        for other in found[waiting.pop()] - reached:
            reached.add(other)
            waiting.append(other)
    return reached


SAME_NAMES: Final = {
    "Change": "public: one change that a client receives, and the same change inside of a server",
    "File": "public: a resource in `limpet.resources`, and a content in `limpet.content`",
    "InputRequired": "public: the value that an author returns, and its form on the wire between two servers",
    "Lifespan": "one idea: of an author's server, and of an object of another framework",
    "Message": "public: of a prompt; between processes every message is one",
    "TaskState": "one idea: a task as its client knows it, and as the store keeps it",
}
"""Names that several classes have, each with the reason."""


def one_meaning(sources: list[Source]) -> Iterator[str]:
    """Classes of one name: a reader who knows the first one misreads the second."""
    found: dict[str, list[str]] = {}
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(source.module)
    for name, modules in found.items():
        if len(modules) > 1 and name not in SAME_NAMES:
            yield f"`{name}` is a class of {' and '.join(modules)}: give one of them another name"


HouseRule = Callable[[list[Source]], Iterator[str]]
HOUSE_RULES: Final[tuple[HouseRule, ...]] = (run_time_cycles, cycles_across_packages, one_meaning)


# The source tree


@cache
def house() -> list[tuple[Path, Source]]:
    """Return every module, read and parsed once for all rules."""
    return [(path, _read(path)) for path in sorted(PACKAGE.rglob("*.py"))]


def _read(path: Path) -> Source:
    inside = path.relative_to(PACKAGE.parent).with_suffix("")
    is_package = inside.name == "__init__"
    parts = inside.parts[:-1] if is_package else inside.parts
    return Source(".".join(parts), path.read_text(encoding="utf-8"), is_package)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_module_keeps_the_rule(rule: Rule) -> None:
    complaints = [
        f"{path.relative_to(ROOT)}:{complaint}" for path, source in house() for complaint in rule(source)
    ]
    assert not complaints, "\n" + "\n".join(complaints)


@pytest.mark.parametrize("rule", HOUSE_RULES, ids=lambda rule: rule.__name__)
def test_the_modules_together_keep_the_rule(rule: HouseRule) -> None:
    complaints = list(rule([source for _, source in house()]))
    assert not complaints, "\n" + "\n".join(complaints)


# Each rule finds its violation, and nothing else


def source(module: str, text: str) -> Source:
    return Source(f"limpet.{module}" if module else "limpet", text)


def body(lines: int) -> str:
    return "def long() -> None:\n" + "    x = 1\n" * (lines - 1)


BITES: Final = [
    (
        layers,
        source("wire.sse", "from limpet.engine.sessions import Session"),
        "1: `wire` may not import `engine`",
    ),
    (layers, source("core.stream", "from limpet import stores"), "`core` may not import `stores`"),
    (layers, source("core.stream", "from ..engine import x"), "`core` may not import `engine`"),
    (
        layers,
        source("engine.x", "def f():\n    from limpet.server.app import Server"),
        "2: `engine` may not",
    ),
    (layers, source("engine.x", "from limpet import Server"), "front door"),
    (layers, source("attic.x", ""), "`attic` is in no layer"),
    (layers, source("server.app", "from limpet.testing import pair"), "`server` may not import `testing`"),
    (purity, source("core.calls", "import asyncio"), "1: `core` is pure and may not import `asyncio`"),
    (purity, source("wire.lines", "from os.path import join"), "may not import `os`"),
    (purity, source("protocol.types", "def f():\n    import time"), "2: `protocol` is pure"),
    (chance, source("engine.x", "import secrets"), "imports `secrets`"),
    (chance, source("stores.memory", "from time import monotonic"), "imports `time`"),
    (portability, source("cli.main", "import uvloop"), "`uvloop` is missing on some systems"),
    (
        portability,
        source("transports.child", "try:\n    import fcntl\nexcept ImportError: ..."),
        "2: `fcntl`",
    ),
    (visible_imports, source("engine.x", "def f():\n    import json"), "2: imports `json` inside a function"),
    (visible_imports, source("server.app", "async def f():\n    from limpet.fronts import http"), "inside"),
    (pydantic_at_home, source("engine.x", "from pydantic import BaseModel"), "only `server` may"),
    (
        facade,
        source("server.x", "def f(self):\n    self._server.engine.runtime.spawn(x)"),
        "2: reaches through",
    ),
    (
        facade,
        source("fronts.x", "from limpet.engine.runtime import Runtime"),
        "1: imports the engine's runtime",
    ),
    (facade, source("fronts.x", "self._engine._sweep()"), "1: `self._engine._sweep` is private"),
    (facade, source("cli.x", "front._settings"), "`front._settings` is private"),
    (module_size, source("wire.sse", "x = 1\n" * (MODULE_LINES + 1)), "401 lines of code, the limit is 400"),
    (function_size, source("wire.sse", body(FUNCTION_LINES + 1)), "1: `long` has 46 lines of code"),
    (pure_predicates, source("engine.x", "async def is_there(x):\n    await x"), "2: `is_there` awaits"),
    (
        pure_predicates,
        source("engine.x", "def _has_place(self):\n    self.n += 1"),
        "2: `_has_place` changes `self.n`",
    ),
    (pure_predicates, source("core.x", "def may_go(x):\n    del x[1]"), "2: `may_go` changes `x[1]`"),
    (
        pure_predicates,
        source("engine.x", "def is_stored(self):\n    return self._runtime.store.put(1)"),
        "2: `is_stored` calls `self._runtime.store.put`",
    ),
    (
        acting_names,
        source("engine.x", "def f(self):\n    self._taken()\ndef _taken(self) -> None: ..."),
        "3: `_taken` acts",
    ),
    (
        acting_names,
        source("engine.x", "async def _stopped_now() -> None: ...\nasync def f():\n    await _stopped_now()"),
        "1: `_stopped_now` acts",
    ),
]


@pytest.mark.parametrize(("rule", "sample", "complaint"), BITES)
def test_a_breach_is_named_with_its_line(rule: Rule, sample: Source, complaint: str) -> None:
    complaints = list(rule(sample))
    assert len(complaints) == 1
    assert complaint in complaints[0]


ALLOWED: Final = [
    (
        layers,
        source("engine.x", "from limpet.core import stream\nfrom .sessions import Session\nimport json"),
    ),
    (layers, source("fronts.http.app", "from limpet.backs.native import Native")),
    (layers, source("testing.kit", "from limpet.cli.main import main")),
    (layers, source("ports", "from .errors import LimpetError")),
    (layers, source("cli.main", "from limpet import __version__")),
    (layers, source("", "from limpet.server.app import Server")),
    (purity, source("engine.x", "import asyncio")),
    (purity, source("core.x", "import ossaudit")),
    (chance, source("ports", "import time, random, secrets")),
    (chance, source("transports.http", "import time")),
    (portability, source("cli.main", "def f():\n    import uvloop")),
    (visible_imports, source("server.app", "def f():\n    import pydantic\n    from httptools import run")),
    (visible_imports, source("cli.main", "def f():\n    from limpet.server.app import Server")),
    (visible_imports, source("engine.x", "class A:\n    import json")),
    (
        visible_imports,
        source("fronts.x", "def f():\n    from limpet.fronts.http.http1.start_and_stop import Service"),
    ),
    (pydantic_at_home, source("server.functions", "import pydantic")),
    (facade, source("engine.x", "self.runtime.store\nengine._sweep()\nself._runtime")),
    (
        facade,
        source("server.x", "self._server.engine.spawn(x)\nself._engine.store\nengine.__class__"),
    ),
    (facade, source("server.x", "self._hooks = 1\nfor server in family:\n    server._hooks")),
    (facade, source("server.x", "def _hooks(self): ...\nfor server in family:\n    server._hooks")),
    (module_size, source("wire.sse", '"""Doc.\n\nMore.\n"""\n' + "# why\n\nx = 1\n" * MODULE_LINES)),
    (pure_predicates, source("engine.x", "def is_there(self):\n    n = self.n\n    return n[0] == 1")),
    (pure_predicates, source("engine.x", "def is_shared(self):\n    return self._store.is_shared")),
    (pure_predicates, source("engine.x", "async def island(self):\n    self.n = await x")),
    (
        acting_names,
        source("engine.x", "def _taken() -> int: ...\ndef _feed() -> None: ...\n_taken()\n_feed()"),
    ),
    (
        acting_names,
        source("engine.x", "def _ended(task) -> None: ...\ntask.add_done_callback(_ended)\n_ended(1)"),
    ),
    (function_size, source("wire.sse", "def f():\n    '''A\n    B'''\n    # c\n\n" + "    x = 1\n" * 44)),
]


@pytest.mark.parametrize(("rule", "sample"), ALLOWED)
def test_allowed_code_passes(rule: Rule, sample: Source) -> None:
    assert list(rule(sample)) == []


TYPES: Final = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "
CYCLES: Final = [
    (
        run_time_cycles,
        (
            source("engine.a", "from limpet.engine.b import B"),
            source("engine.b", "from limpet.engine import a"),
        ),
        "limpet.engine.a → limpet.engine.b → limpet.engine.a",
    ),
    (
        cycles_across_packages,
        (
            source("server.app", "from limpet.server.context.context import Context"),
            source("server.context.context", f"{TYPES}from limpet.server.app import Server"),
        ),
        "`limpet.server.app` imports `limpet.server.context.context`, which needs it too",
    ),
    (
        cycles_across_packages,
        (
            source("server.app", "from limpet.server.context.context import Context"),
            source("server.context.context", "def f():\n    from limpet.server.app import Server"),
        ),
        "`limpet.server.context.context` imports `limpet.server.app`, which needs it too",
    ),
]


@pytest.mark.parametrize(("rule", "sample", "complaint"), CYCLES)
def test_a_cycle_is_named(rule: HouseRule, sample: tuple[Source, ...], complaint: str) -> None:
    assert any(complaint in found for found in rule(list(sample)))


def test_two_classes_of_one_name_are_found_unless_a_reason_is_written_down() -> None:
    def twice(name: str) -> list[Source]:
        return [source(module, f"class {name}: ...") for module in ("engine.a", "ops.b")]

    [complaint] = one_meaning(twice("Waiter"))
    assert complaint.startswith("`Waiter` is a class of limpet.engine.a and limpet.ops.b")
    assert list(one_meaning(twice("Message"))) == []
    assert list(one_meaning(twice("Waiter")[:1])) == []


def test_every_name_of_several_classes_that_is_allowed_exists() -> None:
    names = Counter(
        node.name for _, source in house() for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)
    )
    assert [name for name in SAME_NAMES if names[name] < 2] == []


NO_CYCLES: Final = [
    (
        run_time_cycles,
        (
            source("engine.a", "from limpet.engine.b import B"),
            source("engine.b", f"{TYPES}from limpet.engine.a import A"),
            source("engine.c", "def f():\n    from limpet.engine.c import d"),
        ),
    ),
    (
        cycles_across_packages,
        (
            source("engine.a", "from limpet.engine.b import B"),
            source("engine.b", f"{TYPES}from limpet.engine.a import A"),
            source("core.x", "import json"),
        ),
    ),
]


@pytest.mark.parametrize(("rule", "sample"), NO_CYCLES)
def test_imports_without_a_forbidden_cycle_pass(rule: HouseRule, sample: tuple[Source, ...]) -> None:
    assert list(rule(list(sample))) == []


def test_a_package_resolves_its_relative_imports_from_itself() -> None:
    package = Source("limpet.core", "from . import stream\nfrom ..engine import x", is_package=True)
    assert [item.name for item in package.imports] == ["limpet.core.stream", "limpet.engine.x"]


def test_the_rules_find_the_package() -> None:
    assert "limpet" in {source.module for _, source in house()}
