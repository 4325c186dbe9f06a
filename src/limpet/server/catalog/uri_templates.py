"""URI templates (RFC 6570, levels 1 to 3) that find a resource's parameters in a URI.

A variable never takes more than its operator allows: `{name}` holds no slash, not even an encoded
one. The value of a path variable stays below the directory that it is joined to, on every system: it
has no segment `.` or `..`, and is not absolute (a slash or backslash first, so no UNC name either, or
a drive letter), encoded or not; a template that is `absolute` takes absolute paths. No variable
holds NUL. For a given template, the time of a match is linear in the length of every URI.

    {name}   one segment            {+path}  anything, slashes too      {path*}  one or more segments
    {/seg}   /value, or empty       {/seg*}  /a/b/c, or empty           {.ext}   .value, or empty
    {;key}   ;key=value, or empty   {?q,r}   any of them, in any order  {&q,r}   the same after a literal `?`
    {#frag}  #value, or empty

A variable takes as little as the rest of the template allows. A variable that the URI leaves out is not in the result.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final
from urllib.parse import quote, unquote

from msgspec import Struct
from msgspec.structs import replace
from typing_extensions import override

MAX_URI: Final = 8192
"""Longer URIs match no template: HTTP servers and proxies have a similar limit."""

RESERVED: Final = ":/?#[]@!$&'()*+,;="
EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
VARIABLE: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\*?)")
ABSOLUTE: Final = re.compile(r"[/\\]|[A-Za-z]:")
"""The start of a path that leaves the directory it is joined to: `/x`, `\\x`, `//host/x`, `\\\\host\\x`, `C:/x`,
`C:x`."""
BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Operator(Struct, frozen=True):
    """The format of the variables of an expression in a URI."""

    prefix: str
    separator: str
    stops: str
    """Characters a value never contains in its encoded form."""
    is_optional: bool = False
    is_path: bool = False
    safe: str = ""


OPERATORS: Final = {
    "": Operator("", ",", "/?#", is_path=True),
    "+": Operator("", ",", "", is_path=True, safe=RESERVED),
    "#": Operator("#", ",", "", is_optional=True, safe=RESERVED),
    ".": Operator(".", ".", "./?#", is_optional=True, is_path=True),
    "/": Operator("/", "/", "/?#", is_optional=True, is_path=True),
    ";": Operator(";", ";", ";/?#", is_optional=True),
    "?": Operator("?", "&", "&#", is_optional=True),
    "&": Operator("&", "&", "&#", is_optional=True),
}


class Variable(Struct, frozen=True):
    """One variable with the text before it; `stops` are the characters that end it."""

    name: str
    before: str
    stops: str
    operator: Operator
    is_exploded: bool = False
    is_absolute: bool = False
    """A path may be absolute."""

    def read(self, raw: str) -> str | None:
        """Return the decoded value, or None if it is not allowed."""
        parts = raw.split("/") if self.is_exploded else [raw]
        decoded = [_decode(part) for part in parts]
        if any(part is None for part in decoded):
            return None
        values = [part for part in decoded if part is not None]
        if not self.operator.safe and self.operator.is_path and any("/" in value for value in values):
            return None
        if self.is_exploded and not all(values):
            return None
        value = "/".join(values)
        return None if self.operator.is_path and self._leaves(value) else value

    def _leaves(self, value: str) -> bool:
        """Return True if a path leads out of the directory that an author joins it to."""
        if ABSOLUTE.match(value) and not self.is_absolute:
            return True
        return any(segment in (".", "..") for segment in value.replace("\\", "/").split("/"))

    def write(self, value: object) -> str:
        if self.is_exploded:
            parts = value.split("/") if isinstance(value, str) else [str(part) for part in _items(value)]
            return self.before + "/".join(quote(part, safe="") for part in parts)
        return self.before + quote(str(value), safe=self.operator.safe)


Part = str | Variable


class Template:
    """A URI template: `match` reads variables out of a URI, `expand` puts them in.

    `absolute` lets path variables be absolute paths.

    Raises:
        ValueError: the text is not a template, or its variables are ambiguous.
    """

    __slots__ = ("_head", "_query", "_query_mark", "_tail", "names", "text")

    def __init__(self, text: str, *, absolute: bool = False) -> None:
        self.text: str = text
        parts = [
            part if isinstance(part, str) else replace(part, is_absolute=absolute) for part in _parse(text)
        ]
        variables = [part for part in parts if isinstance(part, Variable)]
        self.names: tuple[str, ...] = tuple(variable.name for variable in variables)
        _check(text, parts, self.names)
        self._tail = [item for item in variables if item.operator.prefix == "#"]
        self._query = {item.name: item for item in variables if item.operator.prefix in ("?", "&")}
        self._query_mark = next(iter(self._query.values())).operator.prefix if self._query else ""
        self._head = _head(parts, ends=self._query_mark + ("#" if self._tail else ""))

    @override
    def __repr__(self) -> str:
        return f"Template({self.text!r})"

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the decoded values of the variables, or None if the URI does not match."""
        if len(uri) > MAX_URI:
            return None
        rest, values = uri, {}
        if self._tail:
            rest, mark, fragment = uri.partition("#")
            value = self._tail[0].read(fragment) if mark else ""
            if value is None:
                return None
            values = {self._tail[0].name: value} if mark else {}
        found = self._match_head(rest)
        if found is None:
            return None
        taken, end = found
        query = self._match_query(rest[end:])
        return None if query is None else {**taken, **query, **values}

    def expand(self, **values: object) -> str:
        """Return the URI with these values. Values of optional expressions may be missing or None.

        Raises:
            ValueError: a required value is missing, or a name is unknown.
        """
        if unknown := sorted(values.keys() - set(self.names)):
            raise ValueError(
                f"{self.text!r} has no variable {unknown[0]!r}; it has {', '.join(self.names) or 'none'}"
            )
        head = "".join(self._expand(part, values) for part in self._head)
        query = "".join(self._expand(part, values) for part in self._query.values())
        fragment = "".join(self._expand(part, values) for part in self._tail)
        return head + (self._query_mark + query[1:] if query else "") + fragment

    def _expand(self, part: Part, values: dict[str, object]) -> str:
        if isinstance(part, str):
            return part
        value = values.get(part.name)
        if value is not None:
            return part.write(value)
        if part.operator.is_optional:
            return ""
        raise ValueError(f"{self.text!r} needs a value for {part.name!r}")

    def _match_head(self, uri: str) -> tuple[dict[str, str], int] | None:
        """Match everything before query and fragment; return the values and where the rest begins."""
        if self._head and isinstance(self._head[0], str) and not uri.startswith(self._head[0]):
            return None
        ways = _ways(self._head, uri, self._query_mark)
        if not ways[0][0]:
            return None
        values: dict[str, str] = {}
        at = 0
        for part, onward in zip(self._head, ways[1:], strict=True):
            if isinstance(part, str):
                at += len(part)
            elif (end := _end(part, uri, at, onward)) is not None:
                value = part.read(uri[at + len(part.before) : end])
                if value is None:
                    return None
                values[part.name] = value
                at = end
        return values, at

    def _match_query(self, query: str) -> dict[str, str] | None:
        values: dict[str, str] = {}
        for pair in query[1:].split("&") if query else ():
            name, _, raw = pair.partition("=")
            variable = self._query.get(name)
            value = variable.read(raw.replace("+", "%20")) if variable else None
            # A name given twice has two readings; another component may have checked the other one.
            if value is None or name in values:
                return None
            values[name] = value
        return values


def _parse(text: str) -> Iterator[Part]:
    at = 0
    for found in EXPRESSION.finditer(text):
        if found.start() > at:
            yield _literal(text, text[at : found.start()])
        yield from _expression(text, found[1])
        at = found.end()
    if at < len(text):
        yield _literal(text, text[at:])


def _literal(text: str, literal: str) -> str:
    if "{" in literal or "}" in literal:
        raise ValueError(f"URI template {text!r} has a brace without its partner")
    return literal


def _expression(text: str, body: str) -> Iterator[Part]:
    sign = body[:1] if body[:1] in OPERATORS else ""
    operator = OPERATORS[sign]
    names = body[len(sign) :].split(",")
    for index, name in enumerate(names):
        found = VARIABLE.fullmatch(name)
        if found is None:
            raise ValueError(
                f"URI template {text!r}: {{{body}}} is not an expression this server can match; "
                "write {name}, or one of + # . / ; ? & before names that are Python identifiers"
            )
        if found[2] and sign not in ("", "/"):
            raise ValueError(f"URI template {text!r}: `*` is for path segments only: {{name*}} or {{/name*}}")
        before = operator.separator if index else operator.prefix
        stops = operator.stops if len(names) == 1 or operator.is_optional else operator.stops + ","
        yield Variable(
            name=found[1],
            before=f"&{found[1]}=" if sign and sign in "?&" else f";{found[1]}=" if sign == ";" else before,
            stops=stops.replace("/", "") if found[2] else stops,
            operator=operator,
            is_exploded=bool(found[2]),
        )


def _check(text: str, parts: list[Part], names: tuple[str, ...]) -> None:
    if len(set(names)) < len(names):
        raise ValueError(f"URI template {text!r} has a variable twice")
    order = [_rank(part) for part in parts]
    if order != sorted(order) or order.count(2) > 1:
        raise ValueError(f"URI template {text!r}: {{?…}} and {{&…}} go last, before at most one {{#…}}")
    marks = {part.operator.prefix for part in parts if isinstance(part, Variable) and _rank(part) == 1}
    if len(marks) > 1 or (marks == {"?"} and any("?" in part for part in parts if isinstance(part, str))):
        raise ValueError(f"URI template {text!r} starts its query twice; use {{&…}} after the first `?`")
    if marks == {"&"} and not any("?" in part for part in parts if isinstance(part, str)):
        raise ValueError(f"URI template {text!r} has {{&…}} without a `?` before it; use {{?…}}")
    for left, right in pairwise(parts):
        if isinstance(left, Variable) and isinstance(right, Variable) and not right.before:
            raise ValueError(
                f"URI template {text!r}: it is ambiguous where {left.name!r} ends and {right.name!r} begins; put a character between them"
            )


def _rank(part: Part) -> int:
    if isinstance(part, str):
        return 0
    return {"?": 1, "&": 1, "#": 2}.get(part.operator.prefix, 0)


def _head(parts: list[Part], *, ends: str) -> list[Part]:
    """Return the parts before query and fragment, with variables that stop where those begin."""
    head: list[Part] = []
    in_query = ""
    for part in parts:
        if isinstance(part, str):
            in_query = in_query or ("&" if "?" in part else "")
            head.append(part)
        elif _rank(part) == 0:
            stops = "".join(sorted({*part.stops, *ends, *in_query}))
            head.append(replace(part, stops=stops))
    return head


def _ways(parts: list[Part], uri: str, mark: str) -> list[bytearray]:
    """Return, for each part and place, True if the parts from there on fit the URI from there on.

    The last row says where the head may end: at the URI's end, or where the query begins. Built
    from the back, each cell in constant time, so no URI makes this slow.
    """
    row = bytearray(char == mark for char in uri) + b"\x01"
    rows = [row]
    for part in reversed(parts):
        row = _literal_row(part, uri, row) if isinstance(part, str) else _variable_row(part, uri, row)
        rows.append(row)
    rows.reverse()
    return rows


def _literal_row(literal: str, uri: str, onward: bytearray) -> bytearray:
    row = bytearray(len(onward))
    at = uri.find(literal)
    while at >= 0:
        row[at] = onward[at + len(literal)]
        at = uri.find(literal, at + 1)
    return row


def _variable_row(variable: Variable, uri: str, onward: bytearray) -> bytearray:
    values = bytearray(len(onward))  # a value of at least one character begins here, and all after it fits
    for at in range(len(uri) - 1, -1, -1):
        if uri[at] not in variable.stops:
            values[at] = onward[at + 1] | values[at + 1]
    if not variable.before:
        return values
    row = bytearray(onward if variable.operator.is_optional else len(onward))
    at = uri.find(variable.before)
    while at >= 0:
        row[at] |= values[at + len(variable.before)]
        at = uri.find(variable.before, at + 1)
    return row


def _end(variable: Variable, uri: str, at: int, onward: bytearray) -> int | None:
    """Return where the shortest fitting value ends, or None where the variable is absent."""
    if not uri.startswith(variable.before, at):
        return None
    for end in range(at + len(variable.before) + 1, len(uri) + 1):
        if uri[end - 1] in variable.stops:
            return None
        if onward[end]:
            return end
    return None


def _decode(raw: str) -> str | None:
    if "%" not in raw:
        return None if "\0" in raw else raw
    if BAD_ESCAPE.search(raw):
        return None
    try:
        value = unquote(raw, errors="strict")
    except UnicodeDecodeError:
        return None
    return None if "\0" in value else value


def _items(value: object) -> Iterator[object]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"a path of segments is a str, list or tuple, not {type(value).__name__}")  # noqa: TRY004
    return iter(value)
