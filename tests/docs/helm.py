"""The part of Helm's template language that the chart of deploy/helm uses: no `helm` can be installed from a registry of packages.

Text, `{{- … -}}`, comments, `if`, `with`, `range`, `define`, `include`, variables, pipelines, and the functions of `FUNCTIONS`. Anything
else is an error, so that the chart cannot use more than is rendered here.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

_ACTION: Final = re.compile(r"\{\{(?P<left>-)?\s*(?P<text>/\*.*?\*/|.*?)\s*(?P<right>-)?\}\}", re.DOTALL)
_WORD: Final = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[()|]|:=|,|[^\s()|,]+)')
_FIELD: Final = re.compile(r"(?P<start>\$\w*)?(?P<path>(?:\.\w+)*\.?)")
Scope = dict[str, Any]


class Failed(Exception):
    """A template called `fail`."""


def _fail(text: str) -> str:
    raise Failed(text)


def _indent(count: int, text: str) -> str:
    return "\n".join(" " * count + line for line in text.split("\n"))


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=False, width=10_000).rstrip("\n")


def _dict(*words: Any) -> dict[str, Any]:
    return dict(zip(words[::2], words[1::2], strict=True))


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "add": lambda *numbers: sum(numbers),
    "and": lambda *values: next((value for value in values if not value), values[-1]),
    "dict": _dict,
    "fail": _fail,
    "nindent": lambda count, text: "\n" + _indent(count, text),
    "not": lambda value: not value,
    "or": lambda *values: next((value for value in values if value), values[-1]),
    "printf": lambda form, *values: form % values,
    "quote": lambda value: json.dumps(_text(value)),
    "toYaml": _yaml,
    "trimSuffix": lambda end, text: text.removesuffix(end),
    "trunc": lambda count, text: text[:count],
    "urlParse": lambda url: {"host": urlsplit(url).netloc, "path": urlsplit(url).path},
}


def _text(value: Any) -> str:
    """Return a value as Go prints it."""
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


class Chart:
    """A chart, and its templates by file."""

    def __init__(self, home: Path) -> None:
        self.values: dict[str, Any] = yaml.safe_load((home / "values.yaml").read_text())
        self.schema: dict[str, Any] = json.loads((home / "values.schema.json").read_text())
        about = yaml.safe_load((home / "Chart.yaml").read_text())
        self._chart = {"Name": about["name"], "Version": about["version"]}
        self._defined: dict[str, list[Any]] = {}
        files = sorted((home / "templates").iterdir())
        self._files = {path.name: self._parsed(path.read_text()) for path in files}

    def objects(self, values: Mapping[str, Any], name: str = "mcp") -> list[dict[str, Any]]:
        """Return the objects that an installation with these values makes."""
        dot = {"Values": merged(self.values, values), "Release": {"Name": name}, "Chart": self._chart}
        texts = [
            self._rendered(nodes, dot, {"$": dot})
            for file, nodes in self._files.items()
            if file.endswith(".yaml")
        ]
        return [item for text in texts for item in yaml.safe_load_all(text) if item is not None]

    def notes(self, values: Mapping[str, Any], name: str = "mcp") -> str:
        """Return the text that an installation prints."""
        dot = {"Values": merged(self.values, values), "Release": {"Name": name}, "Chart": self._chart}
        return self._rendered(self._files["NOTES.txt"], dot, {"$": dot})

    # Parsing

    def _parsed(self, source: str) -> list[Any]:
        pieces: list[tuple[str, str]] = []
        position, trim = 0, False
        for action in _ACTION.finditer(source):
            text = source[position : action.start()]
            text = text.lstrip() if trim else text
            pieces.append(("text", text.rstrip() if action["left"] else text))
            pieces.append(("action", action["text"]))
            position, trim = action.end(), bool(action["right"])
        pieces.append(("text", source[position:].lstrip() if trim else source[position:]))
        rest = iter(pieces)
        nodes, ended = self._block(rest)
        assert ended == "", f"{{{{ {ended} }}}} has no beginning"
        return nodes

    def _block(self, pieces: Iterator[tuple[str, str]]) -> tuple[list[Any], str]:
        """Parse until `end` or `else`; return the nodes and the action that ended them."""
        nodes: list[Any] = []
        for kind, text in pieces:
            word, _, rest = text.partition(" ")
            if kind == "text":
                nodes.append(("text", text))
            elif word in ("end", "else"):
                return nodes, text
            elif word == "define":
                self._defined[json.loads(rest)], _ = self._block(pieces)
            elif word in ("if", "with", "range"):
                nodes.append((word, rest, *self._branches(pieces)))
            elif not text.startswith("/*"):
                nodes.append(("value", text))
        return nodes, ""

    def _branches(self, pieces: Iterator[tuple[str, str]]) -> tuple[list[Any], list[Any]]:
        """Parse the two branches of a block; `else if` is a block in the second."""
        first, ended = self._block(pieces)
        if ended.startswith("else if "):
            return first, [("if", ended.removeprefix("else if "), *self._branches(pieces))]
        second: list[Any] = []
        if ended == "else":
            second, ended = self._block(pieces)
        assert ended == "end", "a block has no end"
        return first, second

    # Rendering

    def _rendered(self, nodes: list[Any], dot: Any, scope: Scope) -> str:
        return "".join(self._node(node, dot, scope) for node in nodes)

    def _node(self, node: Any, dot: Any, scope: Scope) -> str:
        kind, text, *branches = node
        if kind == "text":
            return str(text)
        if kind == "value":
            name, assigned, rest = text.partition(" := ")
            if not assigned:
                return _text(self._value(text, dot, scope))
            scope[name] = self._value(rest, dot, scope)
            return ""
        if kind == "range":
            return self._range(text, branches, dot, scope)
        value = self._value(text, dot, scope)
        within = value if kind == "with" and value else dot
        return self._rendered(branches[0] if value else branches[1], within, {**scope})

    def _range(self, text: str, branches: list[list[Any]], dot: Any, scope: Scope) -> str:
        first, second = branches
        names, assigned, rest = text.partition(" := ")
        found = self._value(rest if assigned else text, dot, scope)
        # Go walks through a map by its keys in order.
        pairs = sorted(found.items()) if isinstance(found, dict) else list(enumerate(found or ()))
        variables = names.split(", ") if assigned else []
        rendered = [
            self._rendered(first, value, {**scope, **dict(zip(variables, (key, value), strict=False))})
            for key, value in pairs
        ]
        return "".join(rendered) if pairs else self._rendered(second, dot, scope)

    def _value(self, text: str, dot: Any, scope: Scope) -> Any:
        words = _WORD.findall(text)
        value = self._pipeline(words, dot, scope)
        assert not words, f"{text!r} has too many parentheses"
        return value

    def _pipeline(self, words: list[str], dot: Any, scope: Scope) -> Any:
        """Take words until the end or a closing parenthesis."""
        piped: list[Any] = []
        while True:
            call: list[Any] = []
            while words and words[0] not in ("|", ")"):
                call.append(self._operand(words, dot, scope))
            first, *rest = [*call, *piped]
            piped = [first(*rest)] if callable(first) else [first]
            assert callable(first) or not rest, f"{first!r} is no function"
            if not words or words[0] == ")":
                return piped[0]
            words.pop(0)

    def _operand(self, words: list[str], dot: Any, scope: Scope) -> Any:
        word = words.pop(0)
        if word == "(":
            value = self._pipeline(words, dot, scope)
            assert words.pop(0) == ")", "a parenthesis has no end"
            return value
        if word.startswith('"'):
            return json.loads(word)
        if re.fullmatch(r"-?\d+", word):
            return int(word)
        if word == "include":
            return lambda name, context: self._rendered(self._defined[name], context, {"$": context})
        if (field := _FIELD.fullmatch(word)) and word:
            return _member(scope[field["start"]] if field["start"] else dot, field["path"])
        return FUNCTIONS[word]


def _member(value: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        # A member that is not in values.yaml is a mistake of the chart.
        value = value[name]
    return value


def merged(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with others above them, as Helm does it: maps are merged, everything else is replaced."""
    found = dict(values)
    for name, value in given.items():
        before = found.get(name)
        found[name] = merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return found
