"""The shape of a JSON text: its levels, values and members, counted in C.

Three rules need a count. A message has a limit of levels and of values, and no member twice. The decoder keeps the last of two
members with one name, so the members of the text are counted and compared with those of the decoded value.

Counting characters of the whole text gives upper bounds, since strings may contain the same characters:

    containers of the value  <=  containers of the text  <=  `{` and `[` in the text
    members of the value     <=  members of the text     <=  `:` in the text

If the members of the value are as many as the colons, both relations are equalities: the decoder has dropped no member. Then the value
has every level of the text. So the value is measured level by level, and only to the level at which all brackets of the text have been
found: the items of the innermost level, which are most values of a table, are not read. Nearly every text needs no more.

If strings contain colons, a text that equals the encoding of its value has no member twice either. Otherwise the colons are counted
exactly, without those inside strings (`outside`).

A loop in Python for each character or value would take longer than decoding. `measure` has a step for each level only.
"""

from itertools import accumulate, chain
from typing import Any, Final, NamedTuple

from holdfast.errors import INVALID_REQUEST, WireError

VALUE_BYTES: Final = 96
"""The most memory that one comma or bracket can cost after decoding. An object with one member takes 192 bytes and has
a bracket and a comma; a number in a list takes 8 to 32."""
_MANY: Final = 4_096
_EXACT_BYTES: Final = 1024 * 1024
"""Longer texts are not counted exactly: that would take longer than decoding them."""
DEEP: Final = 1_000
"""A text with more brackets has its levels counted before it is decoded. The decoder calls itself for each level, which takes up to
500 bytes of a thread's stack."""

_NO_STRUCTURE: Final = bytes(byte for byte in range(256) if byte not in b'"{[]},:')
_NO_BOUND: Final = bytes(byte for byte in range(256) if byte not in b"{[:")
_AS_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_STEPS: Final = bytes.maketrans(b"[]", b"\x01\xff")
"""Brackets as signed bytes: one level down, one level up."""
_ROUNDS: Final = 8
"""Most texts have no more levels."""


class Shape(NamedTuple):
    """Counts of a text."""

    objects: int
    """Opening brackets of objects."""
    arrays: int
    """Opening brackets of arrays; 0 if the levels need not be counted any more."""
    members: int
    """Colons."""
    is_exact: bool
    """The characters inside strings are not counted. If they are, these numbers are upper bounds."""


def shape_of(data: bytes, max_depth: int, max_values: int) -> Shape:
    """Count the brackets and colons of a text.

    Raises:
        WireError: it has more values than `max_values`, or more levels than `max_depth`. The levels of a text with few
            brackets are not counted here, but in its value (`measure`).
    """
    kept = data.translate(None, _NO_BOUND)
    objects, members = kept.count(b"{"), kept.count(b":")
    arrays = len(kept) - objects - members
    brackets = objects + arrays
    # Every value takes a byte or more.
    is_small = len(data) <= max_values or brackets + data.count(b",") < max_values
    if is_small and brackets <= max(DEEP, max_depth):
        return Shape(objects, arrays if brackets > max_depth else 0, members, is_exact=False)
    unescaped = _unescaped(data)
    # Each member has at most two strings. A text with more of them is not cut at each of their quotes.
    if not is_small and unescaped.count(b'"') > 4 * max_values:
        raise _too_many(max_values)
    outside = _outside(unescaped)
    if not is_small and len(outside) > max_values and _values(outside) > max_values:
        raise _too_many(max_values)
    if brackets > max_depth and _depth(outside) > max_depth:
        raise too_deep(max_depth)
    return Shape(outside.count(b"{"), 0, outside.count(b":"), is_exact=True)


def check_depth(data: bytes, max_depth: int) -> None:
    """Check the levels of a text.

    Raises:
        WireError: it has more than `max_depth`.
    """
    if data.count(b"{") + data.count(b"[") > max_depth and _depth(outside(data)) > max_depth:
        raise too_deep(max_depth)


def outside(data: bytes) -> bytes:
    """Return the brackets, commas and colons of a text that are not inside its strings."""
    return _outside(_unescaped(data))


def measure(value: object, shape: Shape) -> tuple[int, int]:
    """Return how many levels of a decoded value were read, and how many members they have.

    The value is read level by level, until as many objects and arrays have been found as the text has.
    """
    levels = found = members = 0
    wanted, counts_arrays = shape.objects + shape.arrays, shape.arrays > 0
    inside: list[Any] = [value]
    while len(inside) == 1 and type(one := inside[0]) is dict:
        # A message, its params and their arguments: one object inside another.
        levels, found, members = levels + 1, found + 1, members + len(one)
        if found >= wanted:
            return levels, members
        inside = [item for item in one.values() if type(item) is dict or type(item) is list]
    objects: list[dict[str, Any]] = [one for one in inside if type(one) is dict]
    arrays: list[list[Any]] = [one for one in inside if type(one) is list]
    while objects or arrays:
        levels += 1
        found += len(objects) + (len(arrays) if counts_arrays else 0)
        if objects:
            members += sum(map(len, objects))
        if found >= wanted:
            break
        items = _items(objects, arrays)
        kinds = set(map(type, items))
        is_alike = len(kinds) == 1
        objects = (
            [] if dict not in kinds else items if is_alike else [one for one in items if type(one) is dict]
        )
        arrays = (
            [] if list not in kinds else items if is_alike else [one for one in items if type(one) is list]
        )
    return levels, members


def _items(objects: list[dict[str, Any]], arrays: list[list[Any]]) -> list[Any]:
    """Return the values inside some objects and arrays."""
    if not objects:
        return arrays[0] if len(arrays) == 1 else [*chain.from_iterable(arrays)]
    inside = objects[0].values() if len(objects) == 1 else chain.from_iterable(map(dict.values, objects))
    return [*inside, *chain.from_iterable(arrays)] if arrays else [*inside]


# These scans run in C and take a few milliseconds for the largest message; a loop in Python would take a second.


def _unescaped(data: bytes) -> bytes:
    """Return the text without escaped quotes, so that every quote begins or ends a string."""
    return data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data


def _outside(unescaped: bytes) -> bytes:
    """Return the brackets, commas and colons of a text without escaped quotes that are not inside its strings.

    Of a string, only these characters and its quotes are kept at first. So most strings are an empty pair of quotes,
    which one replacement removes. Only if a quote is left, the text is cut at every quote.
    """
    kept = unescaped.translate(None, _NO_STRUCTURE)
    outside = kept.replace(b'""', b"")
    return outside if b'"' not in outside else b"".join(kept.split(b'"')[::2])


def _depth(outside: bytes) -> int:
    """Return how deep a text is nested, or more if its brackets do not match. Each round removes the innermost level."""
    left = outside.translate(_AS_BRACKETS, b",:")
    for depth in range(_ROUNDS):
        if not left:
            return depth
        left = left.replace(b"[]", b"")
    return _ROUNDS + max(accumulate(memoryview(left.translate(_STEPS)).cast("b")), default=0)


def _values(data: bytes) -> int:
    """Return an upper bound for the number of values: each but the first follows a comma or a bracket."""
    return 1 + data.count(b",") + data.count(b"{") + data.count(b"[")


def _too_many(max_values: int) -> WireError:
    return WireError(INVALID_REQUEST, f"Invalid request: a message has at most {max_values} values")


def too_deep(max_depth: int) -> WireError:
    """Return the error for a text with too many levels."""
    return WireError(INVALID_REQUEST, f"Invalid request: nested deeper than {max_depth} levels")


def cost(data: bytes, max_values: int) -> int:
    """Estimate the memory of a message, text and decoded values together, before it is decoded."""
    values = _values(data)
    if values > _MANY and len(data) <= _EXACT_BYTES:
        # Commas inside strings are not values, and a table in a string has many.
        values = _values(outside(data))
    return len(data) + min(values, max_values) * VALUE_BYTES
