"""The quick checks of a message accept and refuse the same texts as a slow and obvious reference."""

import json
from typing import Any, Final

from hypothesis import example, given
from hypothesis import strategies as st

from limpet.errors import WireError
from limpet.wire.jsonrpc import Message, Notification, Request, Response, decode
from limpet.wire.shape import LONG

TRICKY: Final = st.text(st.sampled_from('[]{}:,"\\ aé'), max_size=6)
SPACE: Final = st.sampled_from(["", "", " ", "\n", "\t"])


# The reference


class Refused(Exception):
    """The reference refuses a text."""


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise Refused("duplicate")
    return dict(pairs)


def refuse_constant(name: str) -> None:
    raise Refused(name)


def levels_of(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inside is None else 1 + max(map(levels_of, inside), default=0)


def values_of(text: str) -> int:
    """Count the values of a text: each but the first follows a comma or an opening bracket outside of strings."""
    values, in_string, is_escaped = 1, False, False
    for character in text:
        if in_string:
            in_string = is_escaped or character != '"'
            is_escaped = not is_escaped and character == "\\"
        elif character == '"':
            in_string = True
        elif character in ",[{":
            values += 1
    return values


def reference(text: str, max_depth: int, max_values: int) -> Message:
    """Decode one message with the parser of the standard library."""
    if values_of(text) > max_values:
        raise Refused("values")
    value = json.loads(text, object_pairs_hook=unique, parse_constant=refuse_constant)
    json.dumps(value, ensure_ascii=False).encode()  # raises for a lone surrogate
    if levels_of(value) > max_depth:
        raise Refused("deep")
    names = set(value)
    params = value.get("params") or {}
    if value.get("jsonrpc") != "2.0":
        raise Refused("not a message")
    if "method" in names and "result" not in names and isinstance(value["method"], str):
        if value.get("params", {}) not in (None, params):
            raise Refused("params")
        return (
            Request(value["id"], value["method"], params)
            if "id" in names
            else Notification(value["method"], params)
        )
    if {"id", "result"} <= names and "method" not in names:
        return Response(value["id"], value["result"], None)
    raise Refused("neither")


# Texts


def written(text: str, *, escapes: bool) -> str:
    """Return the JSON text of a string, with or without escapes that are not needed."""
    plain = json.dumps(text, ensure_ascii=escapes)
    return plain.replace("a", "\\u0061").replace(":", "\\u003A") if escapes else plain


@st.composite
def strings(draw: st.DrawFn) -> str:
    """Return the JSON text of a string: often short, sometimes long, with structure at its begin and end."""
    text = draw(TRICKY | st.just("a"))
    if draw(st.integers(0, 9)) == 0:
        text += draw(st.sampled_from(["x", ":", "[", "a:", '"'])) * draw(
            st.sampled_from([20, LONG + 1])
        ) + draw(TRICKY)
    return written(text, escapes=draw(st.integers(0, 3)) == 0)


@st.composite
def objects(draw: st.DrawFn, names: st.SearchStrategy[str], items: list[str]) -> str:
    """Return the JSON text of an object whose names may come twice."""
    members = [
        draw(SPACE) + draw(names) + draw(SPACE) + ":" + draw(SPACE) + item + draw(SPACE) for item in items
    ]
    return "{" + (",".join(members) or draw(SPACE)) + "}"


@st.composite
def texts(draw: st.DrawFn, depth: int = 4) -> str:
    """Return the text of a JSON value with spaces anywhere, structure inside strings, and names that may come twice."""
    kind = draw(st.integers(0, 5 if depth else 2))
    if kind <= 2:
        return draw(st.sampled_from(["1", "1e6", "null", '""']) | strings())
    items = draw(st.lists(texts(depth - 1), max_size=3))
    if kind == 3:
        return "[" + draw(SPACE) + ",".join(item + draw(SPACE) for item in items) + "]"
    return draw(objects(strings(), items))


@st.composite
def messages(draw: st.DrawFn) -> str:
    """Return the text of a message: its members in any order, some missing, some twice."""
    arguments = "{" + f'"name":"t","arguments":{draw(texts())}' + "}"
    members = {
        "jsonrpc": '"2.0"',
        "id": draw(st.sampled_from(["1", '"a"', "-7"])),
        "method": draw(st.sampled_from(['"m"', '"a:b"'])),
        "params": draw(st.just(arguments) | objects(strings(), [draw(texts()), draw(texts(3))])),
        "result": draw(texts()),
        "extra": draw(texts()),
    }
    usual = st.sampled_from(
        [
            ("jsonrpc", "id", "method", "params"),
            ("jsonrpc", "method", "params"),
            ("jsonrpc", "id", "result"),
            ("jsonrpc", "id", "method", "extra"),
        ]
    )
    names = list(draw(usual))
    if draw(st.integers(0, 3)) == 0:
        names = draw(st.lists(st.sampled_from(sorted(members)), min_size=1, max_size=6))
    names = draw(st.permutations(names))
    space = draw(SPACE)
    return "{" + ("," + space).join(f'"{name}":{space}{members[name]}' for name in names) + "}"


def decoded(text: str, max_depth: int, max_values: int) -> Message | None:
    try:
        message = decode(text.encode(), max_depth=max_depth, max_values=max_values)
    except WireError:
        return None
    assert not isinstance(message, list)
    return message


def expected(text: str, max_depth: int, max_values: int) -> Message | None:
    try:
        return reference(text, max_depth, max_values)
    except Refused:
        return None


def call(arguments: str) -> str:
    return f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"name":"t","arguments":{arguments}}}}}'


FILL: Final = "x" * (LONG + 1)
LINES: Final = "a text of several lines" + "\\n" * (LONG + 1)


@given(messages(), st.integers(2, 7), st.sampled_from([10, 30, 100_000]))
# A string that is cut out has as many colons as members are missing.
@example(call(f'{{"s":"{FILL}:","a":1,"a":2}}'), 64, 100_000)
@example(call(f'{{"s":"{FILL}\\n::","a":1,"a":2,"a":3}}'), 64, 100_000)
# Two strings begin alike; the second one has the colons.
@example(call(f'{{"r":"{FILL}","s":"{FILL}:","a":1,"a":2}}'), 64, 100_000)
@example(call(f'{{"s":"{FILL}:","s":"{FILL}"}}'), 64, 100_000)
# An escaped colon is not a colon of the text.
@example(call('{"s":"\\u003a","a":1,"a":2}'), 64, 100_000)
@example(call(f'{{"s":"{FILL}\\"\\u003a","a":1,"a":2}}'), 64, 100_000)
# The text of a string is found in the structure, not in a string.
@example(call(f'{{"x":"","s":",\\"a\\":[[{FILL}","y":"","a":[[{"[" * 90}{"]" * 90}]]}}'), 64, 100_000)
@example(call(f'{{"a":["b"{",1" * LONG},{"[" * 70}{"]" * 70}],"s":"{",1" * LONG}"}}'), 64, 100_000)
# The string is not found, because its first letter is escaped.
@example(call(f'{{"s":"\\u0061{FILL}","a":{"[" * 62}{"]" * 62}}}'), 64, 100_000)
# The quote after a string that is cut out is escaped.
@example(call(f'{{"s":"{LINES}\\\\\\":[[","a":{{"b":1}}}}'), 64, 100_000)
# There is an escaped backslash before the quote that ends it.
@example(call(f'{{"s":"{LINES}\\\\","a":{{"b":":"}}}}'), 64, 100_000)
@example(call(f'{{"s":"{LINES}\\\\","a":{{"b":1,"b":2}}}}'), 64, 100_000)
# Levels without members, behind all members.
@example(call(f'{{"a":{"[" * 70}{"]" * 70}}}'), 64, 100_000)
@example(call(f'{{"a":{"[" * 60}{"{}"}{"]" * 60}}}'), 64, 100_000)
@example(call(f'{{"a":{"[" * 60}{"{}"}{"]" * 60},"s":"{FILL}"}}'), 63, 100_000)
@example(call('{"a":{"b":{}}}'), 4, 100_000)
@example(call('{"a":{"b":{}}}'), 5, 100_000)
# Unknown members.
@example('{"jsonrpc":"2.0","id":1,"params":{},"result":{}}', 64, 100_000)
@example(f'{{"jsonrpc":"2.0","id":1,"method":"m","extra":[{"[" * 61}[],[]{"]" * 61}]}}', 64, 100_000)
@example(f'{{"jsonrpc":"2.0","id":1,"method":"m","extra":[{"[" * 62}[],[]{"]" * 62}]}}', 64, 100_000)
def test_a_text_is_accepted_if_and_only_if_the_reference_accepts_it(
    text: str, max_depth: int, max_values: int
) -> None:
    assert decoded(text, max_depth, max_values) == expected(text, max_depth, max_values)
