"""JSON with comments and commas at the end, as VS Code writes it: put a member in, and keep all other characters.

The text is scanned, not written again: comments, indents, the order of members and the form of numbers stay. The
scanner knows texts, comments and brackets, which is enough to find the members of an object. Whether the text is valid
is decided by `decoded`.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_SPACE: Final = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_TOKEN: Final = re.compile(
    r"""(?P<space>(?:\s|//[^\n]*|/\*.*?\*/)+)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<mark>[\[\]{},:])|(?P<other>[^\s\[\]{},:"/]+|.)""",
    re.DOTALL,
)
_INDENT: Final = re.compile(r"^([ \t]+)[^\s]", re.MULTILINE)


class JsonMember(NamedTuple):
    """A member of an object: where its name and its value are in the text."""

    name: str
    start: int
    value: int
    end: int


def decoded(text: str) -> Any:
    """Return the value of the text.

    Raises:
        ValueError: it is not JSON, or a name occurs twice in one object.
    """
    parts: list[str] = []
    for token in _TOKEN.finditer(text):
        if token["space"]:
            continue
        if token[0] in ("}", "]") and parts and parts[-1] == ",":
            parts.pop()
        parts.append(token[0])
    try:
        return json.loads(" ".join(parts), object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name is there twice")
    return made


def with_member(text: str, path: tuple[str, ...], value: Any) -> str:
    """Return the text with the value at this path. The objects on the way are made, if they are missing.

    Raises:
        ValueError: something on the way is not an object.
    """
    unit = found[1] if (found := _INDENT.search(text)) else "  "
    newline = "\r\n" if "\r\n" in text else "\n"
    start = _skip(text, 0)
    for at, name in enumerate(path):
        if text[start : start + 1] != "{":
            raise ValueError(f"{'.'.join(path[:at]) or 'the file'} is not an object")
        members = {one.name: one for one in _members(text, start)}
        if name not in members:
            for missing in reversed(path[at + 1 :]):
                value = {missing: value}
            return _inserted(text, start, list(members.values()), name, _Form(unit, newline, value))
        if at == len(path) - 1:
            member = members[name]
            shown = _Form(unit, newline, value).shown(_indent_of(text, member.start))
            return text[: member.value] + shown + text[member.end :]
        start = members[name].value
    raise ValueError("the path is empty")


class _Form(NamedTuple):
    """A value, and the form of the file that it is written in."""

    unit: str
    newline: str
    value: Any

    def shown(self, indent: str) -> str:
        """Return the value as JSON, its lines after the first one indented."""
        lines = json.dumps(self.value, indent=self.unit, ensure_ascii=False).split("\n")
        return f"{self.newline}{indent}".join(lines)


def _inserted(text: str, start: int, members: list[JsonMember], name: str, form: _Form) -> str:
    """Return the text with a new member at the end of the object that begins at `start`."""
    end = _closing(text, start)
    outer = _indent_of(text, start)
    begins_line = members and not text[: members[-1].start].rpartition("\n")[2].strip()
    indent = _indent_of(text, members[-1].start) if begins_line else outer + form.unit
    inside = text[start + 1 : end]
    kept = inside.rstrip()
    if members:
        after = members[-1].end - start - 1
        if not re.match(rf"{_SPACE.pattern},", inside[after:], re.DOTALL):
            kept = f"{inside[:after]},{inside[after:].rstrip()}"
    rest = inside[len(inside.rstrip()) :]
    rest = rest if "\n" in rest else f"{form.newline}{outer}"
    added = f"{form.newline}{indent}{json.dumps(name, ensure_ascii=False)}: {form.shown(indent)}"
    return f"{text[: start + 1]}{kept}{added}{rest}{text[end:]}"


def _members(text: str, start: int) -> Iterator[JsonMember]:
    """Yield the members of the object that begins at `start`."""
    at = _skip(text, start + 1)
    while text[at : at + 1] == '"':
        name = _TOKEN.match(text, at)
        value = _skip(text, _skip(text, name.end() if name else at) + 1)
        end = _end_of_value(text, value)
        yield JsonMember(json.loads(text[at : name.end()]) if name else "", at, value, end)
        at = _skip(text, end)
        if text[at : at + 1] != ",":
            return
        at = _skip(text, at + 1)


def _end_of_value(text: str, start: int) -> int:
    if text[start : start + 1] in ("{", "["):
        return _closing(text, start) + 1
    token = _TOKEN.match(text, start)
    return token.end() if token else start


def _closing(text: str, start: int) -> int:
    """Return where the bracket is that closes the one at `start`."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        depth += (token[0] in ("{", "[")) - (token[0] in ("}", "]"))
        if not depth:
            return token.start()
    raise ValueError("a bracket is not closed")


def _skip(text: str, at: int) -> int:
    """Return the first place from `at` that is not white space or a comment."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _indent_of(text: str, at: int) -> str:
    """Return the white space at the beginning of a line."""
    line = text[text.rfind("\n", 0, at) + 1 :]
    return line[: len(line) - len(line.lstrip(" \t"))]
