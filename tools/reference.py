"""Write the API reference, `docs/reference/*.md`, from the signatures and docstrings of the public modules.

    python tools/reference.py [FOLDER]

It reads the source and imports nothing, so that the pages are the same on every version of Python. A name that
several public modules offer is described in the first of them in `PUBLIC`, and linked from the others.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src"
PUBLIC: Final = (
    "limpet.context",
    "limpet.content",
    "limpet.options",
    "limpet.asks",
    "limpet.middleware",
    "limpet.resources",
    "limpet.routes",
    "limpet.config",
    "limpet.auth",
    "limpet.auth.oauth",
    "limpet.auth.verifiers",
    "limpet.client",
    "limpet.errors",
    "limpet.testing",
    "limpet.types",
    "limpet",
)
"""The public modules. `limpet` is last: its names are described where their theme is."""
_SERVED: Final = {"back", "engine", "front", "is_built", "operate", "summary"}
"""Members of everything that can be served that only the package itself uses."""
INTERNAL: Final = {
    "Process": _SERVED,
    "Remote": _SERVED,
    "ServerControls": {"engine", "is_built", "lifespan_value"},
    "Server": {
        *_SERVED,
        *("declared", "lifespan_value", "tools", "resources", "templates", "prompts"),
    }
}  # fmt: skip
"""Members that only the package itself uses."""
MADE_BY_LIMPET: Final = {
    "BlockingContext",
    "BlockingSession",
    "BlockingState",
    "Context",
    "SessionView",
    "State",
}
"""Classes that users are given and never make: their constructors are not described."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
Block = ast.Module | ast.ClassDef | ast.If


class Found(NamedTuple):
    """A name's definition: the module that has it, its node, and its documentation."""

    module: str
    node: ast.stmt
    text: str


@cache
def tree(module: str) -> ast.Module:
    path = SOURCE.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(block: Block) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each statement with the string that follows it, which documents an assignment."""
    following = [*block.body[1:], None]
    for node, after in zip(block.body, following, strict=True):
        if isinstance(node, ast.If):
            yield from statements(node)
            continue
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        yield node, inspect.cleandoc(str(after.value.value)) if is_text else ""  # type: ignore[union-attr]


def target(node: ast.stmt) -> str:
    match node:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
        case _:
            return ""


def find(module: str, name: str) -> Found | None:
    """Return where a name that a module has is defined, if that is in this package."""
    stars: list[str] = []
    for node, after in statements(tree(module)):
        if target(node) == name:
            own = ast.get_docstring(node) if isinstance(node, ast.ClassDef | Function) else after
            return Found(module, node, own or "")
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("limpet"):
            if any((alias.asname or alias.name) == name for alias in node.names):
                return find(node.module or "", name)
            stars += [node.module or "" for alias in node.names if alias.name == "*"]
    return next((found for star in stars if (found := find(star, name)) is not None), None)


def exported(module: str) -> list[str]:
    """Return the names of `__all__`, else the public names that the module defines."""
    for node, _ in statements(tree(module)):
        match node:
            case ast.ImportFrom(module=other, names=[ast.alias(name="__all__")]):
                return exported(other or "")
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return [name for name in ast.literal_eval(value) if not name.startswith("_")]
            case _:
                continue
    names = [
        target(node) for node, _ in statements(tree(module)) if isinstance(node, ast.ClassDef | Function)
    ]
    return [name for name in names if not name.startswith("_")]


# Text


def prose(text: str) -> str:
    """Return a docstring as Markdown: its `Raises:` and `Args:` sections become lists, its drawings stay."""
    lines: list[str] = []
    in_section = False
    for line in text.splitlines():
        if re.fullmatch(r"(Raises|Args|Returns):", line):
            in_section = True
            lines += [f"{line[:-1]}:", ""]
        elif in_section and (entry := re.fullmatch(r"    ([\w, ]+): (.*)", line)):
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        elif in_section and line.startswith("        "):
            lines[-1] += f" {line.strip()}"
        else:
            in_section = in_section and not line
            lines.append(line)
    if any("├" in line for line in lines):
        first = next(place for place, line in enumerate(lines) if "├" in line) - 1
        lines[first:] = ["```text", *lines[first:], "```"]
    return "\n".join(lines)


def signature(node: Function, *, drop_self: bool) -> str:
    arguments = ast.parse(ast.unparse(node)).body[0].args  # type: ignore[attr-defined]
    is_static = any(ast.unparse(item) == "staticmethod" for item in node.decorator_list)
    if drop_self and not is_static:
        first = arguments.posonlyargs or arguments.args
        first[:1] = []
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"({ast.unparse(arguments)}){returns}".replace("(/, ", "(").replace("'", '"')


# Classes


def class_of(found: Found) -> ast.ClassDef:
    if not isinstance(found.node, ast.ClassDef):
        raise TypeError(f"{target(found.node)} of {found.module} is not a class")
    return found.node


def lineage(found: Found) -> Iterator[Found]:
    """Yield a class and the classes of this package that it derives from, the nearest first."""
    yield found
    for base in class_of(found).bases:
        named = base.value if isinstance(base, ast.Subscript) else base
        parent = find(found.module, named.id) if isinstance(named, ast.Name) else None
        if parent is not None and isinstance(parent.node, ast.ClassDef) and parent.module != "limpet.errors":
            yield from lineage(parent)


def members(found: Found) -> Iterator[tuple[str, list[tuple[ast.stmt, str]]]]:
    """Yield each public member once, as its nearest class has it; overloads together. Tests of a contract are left out."""
    gathered: dict[str, list[tuple[ast.stmt, str]]] = {}
    for owner in lineage(found):
        own: dict[str, list[tuple[ast.stmt, str]]] = {}
        for node, after in statements(class_of(owner)):
            name = target(node)
            if name and not name.startswith(("_", "test_")):
                own.setdefault(name, []).append((node, after))
        for name, nodes in own.items():
            gathered.setdefault(name, nodes)
    hidden = INTERNAL.get(target(found.node), set())
    yield from ((name, nodes) for name, nodes in gathered.items() if name not in hidden)


def member(name: str, nodes: list[tuple[ast.stmt, str]]) -> Iterator[str]:
    node, after = nodes[-1]
    if not isinstance(node, Function):
        yield f"#### `{ast.unparse(node)}`".replace("'", '"')
        yield prose(after)
        return
    decorators = {ast.unparse(item) for item in node.decorator_list}
    text = prose(ast.get_docstring(node) or "")
    if decorators & {"property", "cached_property"}:
        yield f"#### `{name}: {ast.unparse(node.returns) if node.returns else 'Any'}`".replace("'", '"')
        yield text
        return
    yield f"#### `{name}`"
    shown = [item for item, _ in nodes if isinstance(item, Function)]
    shown = shown[:-1] if len(shown) > 1 else shown
    yield "\n".join(["```python", *(definition(item, name, drop_self=True) for item in shown), "```"])
    yield text


def definition(node: Function, name: str, *, drop_self: bool) -> str:
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    return f"{word} {name}{signature(node, drop_self=drop_self)}"


def constructor(found: Found) -> Iterator[str]:
    for owner in lineage(found):
        for node, _ in statements(class_of(owner)):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                shown = signature(node, drop_self=True).removesuffix(" -> None")
                yield f"```python\n{target(found.node)}{shown}\n```"
                yield prose(ast.get_docstring(node) or "")
                return


def described(name: str, found: Found) -> Iterator[str]:
    yield f"### `{name}`"
    if isinstance(found.node, Function):
        yield f"```python\n{definition(found.node, name, drop_self=False)}\n```"
        yield prose(found.text)
        return
    if not isinstance(found.node, ast.ClassDef):
        yield f"```python\n{ast.unparse(found.node)}\n```".replace("'", '"')
        yield prose(found.text)
        return
    bases = ", ".join(ast.unparse(base) for base in found.node.bases)
    yield f"Class, derived from `{bases}`." if bases else "Class."
    yield prose(found.text)
    if name not in MADE_BY_LIMPET:
        yield from constructor(found)
    for each, nodes in members(found):
        yield from member(each, nodes)


# Pages


def page_of(module: str) -> str:
    return f"{module.removeprefix('limpet.').replace('.', '_')}.md"


def pages() -> dict[str, str]:
    """Return each page by its file name."""
    homes: dict[tuple[str, str], str] = {}
    made: dict[str, str] = {}
    for module in PUBLIC:
        parts = [f"# `{module}`", prose(ast.get_docstring(tree(module)) or "")]
        elsewhere: list[str] = []
        for name in exported(module):
            found = find(module, name)
            if found is None:
                raise LookupError(f"{module}.{name} is not defined in this package")
            home = homes.setdefault((found.module, name), module)
            if home == module:
                parts += described(name, found)
            else:
                elsewhere.append(f"[`{name}`]({page_of(home)}#{name.lower()})")
        if elsewhere:
            parts[2:2] = [f"Described with their theme: {', '.join(elsewhere)}."]
        if module == "limpet":
            modules = [f"[`{other}`]({page_of(other)})" for other in PUBLIC if other != module]
            parts[2:2] = [f"The pages of these modules: {', '.join(modules)}."]
        note = "<!-- Made by `make docs` (tools/reference.py) from the source. Do not edit. -->"
        made[page_of(module)] = "\n\n".join(filter(None, [note, *parts])) + "\n"
    return made


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "reference"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.md"):
        old.unlink()
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
