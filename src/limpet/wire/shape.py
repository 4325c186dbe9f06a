"""The shape of a JSON text: its levels, values and members, counted in C.

Three rules need a count. A message has a limit of levels and of values, and no member twice. The decoder keeps the last
of two members with one name, so the members of the text are counted and compared with those of the decoded value.

Counting characters of the whole text gives upper bounds, since strings may contain the same characters:

    containers of the value  <=  containers of the text  <=  `{` and `[` in the text
    members of the value     <=  members of the text     <=  `:` in the text

If the members of the value are as many as the colons, both relations are equalities: the decoder has dropped no member.
Then the value has every level of the text. So the value is read level by level, and only until all members are found;
if the text has more brackets than levels are allowed, until all brackets are found. The items of the innermost level,
which are most values of a table, are not read. Nearly every text needs no more.

If strings contain colons, the colons are counted exactly, without those inside strings (`outside`). A long string is
cut out of the text before anything is counted (`_shortened`): counting its characters would take as long as decoding
it.

A loop in Python for each character or value would take longer than decoding. There is a step for each level only.
"""

import re
import sys
from itertools import accumulate, chain
from typing import Any, Final

from limpet.errors import INVALID_REQUEST, WireError

VALUE_BYTES: Final = 96
"""The most memory that one comma or bracket can cost after decoding. An object with one member takes 192 bytes and has
a bracket and a comma; a number in a list takes 8 to 32."""
_WIDEST: Final = 4
"""Bytes of a character in a string that has a character beyond the first 65,536."""
_WIDE: Final = re.compile(rb"[\xf0-\xf4]|\\u[dD][89abAB]")
"""Such a character in UTF-8, or the first half of it as an escape."""
SHORT: Final = 512
MOST_BYTES: Final = 32
"""The most memory for a byte of text, in small empty arrays: `[],`. Short texts are not counted, but charged so
much."""
_MANY: Final = 4_096
_EXACT_BYTES: Final = 1024 * 1024
"""Longer texts are not counted exactly: that would take longer than decoding them."""
STACK: Final = 1_000
"""So many levels have room on the stack of a thread, which may have 512 KiB. The decoder calls itself for each
level, which takes up to 420 bytes."""
_HAS_ONE_LIMIT: Final = sys.version_info < (3, 12)
"""The limit of recursion counts for functions in C too. Later Pythons stop these at 10,000 levels or more."""
LONG: Final = 2_048
"""From this size on, all other characters are removed before some are counted, and long strings are cut out."""
_FEW: Final = 16
"""Long strings are looked for in objects and arrays with at most so many items."""

_NO_STRUCTURE: Final = bytes(byte for byte in range(256) if byte not in b'"{[]},:')
_NO_BOUND: Final = bytes(byte for byte in range(256) if byte not in b"{[:")
_NO_VALUE: Final = bytes(byte for byte in range(256) if byte not in b"{[,")
_AS_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_STEPS: Final = bytes.maketrans(b"[]", b"\x01\xff")
"""Brackets as signed bytes: one level down, one level up."""
_ROUNDS: Final = 8
"""Most texts have no more levels."""
# CPython finds a number in bytes five times as fast as bytes in bytes.
_BRACKET: Final = ord("[")
_BACKSLASH: Final = ord("\\")
_QUOTE: Final = ord('"')
_UNCLEAR: Final = frozenset(' \t\n\r,:]}"\\')
"""Characters that may follow the closing quote of a string, and those that are escaped inside one."""


def check_text(data: bytes, max_depth: int, max_values: int) -> None:
    """Check a text before it is decoded.

    Raises:
        WireError: it has more values than `max_values`; or more levels than `max_depth` and than the stack has room
            for.
    """
    # Every value takes a byte or more.
    if len(data) > max_values and _values(data) > max_values:
        unescaped = _unescaped(data)
        # Each member has at most two strings. A text with more of them is not cut at each of their quotes.
        if unescaped.count(b'"') > 4 * max_values or _values(_outside(unescaped)) > max_values:
            raise WireError(INVALID_REQUEST, f"Invalid request: a message has at most {max_values} values")
    if _HAS_ONE_LIMIT and sys.getrecursionlimit() <= STACK:
        # The interpreter stops the decoder in time.
        return
    if len(data) > STACK and data.count(b"{") + data.count(b"[") > STACK:
        check_depth(data, max_depth)


def check_depth(data: bytes, max_depth: int) -> None:
    """Check the levels of a text.

    Raises:
        WireError: it has more than `max_depth`.
    """
    if data.count(b"{") + data.count(b"[") > max_depth and _depth(outside(data)) > max_depth:
        raise _too_deep(max_depth)


def is_whole(data: bytes, value: object, max_depth: int, *, outer: int = 0) -> bool:
    """Compare a text with its decoded value. False: the text has a member twice, and the value has lost one.

    `outer` is the number of members of the message, if `value` is the one value inside it that may have members.

    Raises:
        WireError: the text has more levels than `max_depth`.
    """
    size = len(data)
    strings: list[str] = []
    kept = data
    if size > LONG:
        data, strings = _shortened(data, value)
        kept = data.translate(None, _NO_BOUND)
    # Every level takes two brackets.
    brackets = kept.count(b"{") + kept.count(b"[") if size > 2 * max_depth else 0
    if brackets <= max_depth and size <= LONG:
        return _is_short_whole(data, value, outer)
    colons = kept.count(b":")
    levels, members = _measured(value, outer, colons, brackets, is_shallow=brackets <= max_depth)
    if levels > max_depth:
        raise _too_deep(max_depth)
    # Colons inside strings are counted in the strings, if no colon is escaped.
    if members == colons or (
        strings and b"\\u003" not in data and members + sum(one.count(":") for one in strings) == colons
    ):
        return True
    return outside(data).count(b":") == members


def _is_short_whole(data: bytes, value: object, members: int) -> bool:
    """Compare the members of a short text with those of its value, and the colons in its strings."""
    # Members and colons of the text that are not found yet.
    left = data.count(b":") - members
    # A colon may be escaped.
    counts_strings, in_strings = _BACKSLASH not in data, 0
    items: list[Any] = [value]
    # The list grows while it is read: all items of one level, then those of the next.
    for one in items:
        kind = type(one)
        if kind is dict:
            left -= len(one)
            items += one.values()
        elif kind is list:
            items += one
        elif kind is str and counts_strings and ":" in one:
            in_strings += one.count(":")
        if left == in_strings:
            return True
    # Without `in_strings`, which may be too few: a name may contain colons.
    return outside(data).count(b":") == data.count(b":") - left


def outside(data: bytes) -> bytes:
    """Return the brackets, commas and colons of a text that are not inside its strings."""
    return _outside(_unescaped(data))


def _measured(value: object, outer: int, colons: int, brackets: int, *, is_shallow: bool) -> tuple[int, int]:
    """Return how many levels of a decoded value were read, and how many members they have.

    The value is read level by level, until as many objects and arrays are found as the text has brackets. If it is
    shallow, all members are enough.
    """
    members = outer
    levels = found = 1 if outer else 0
    inside: list[Any] = [value]
    while len(inside) == 1 and type(one := inside[0]) is dict:
        # A message, its params and their arguments: one object inside another.
        levels, found, members = levels + 1, found + 1, members + len(one)
        if found >= brackets or (is_shallow and members == colons):
            return levels, members
        inside = [item for item in one.values() if type(item) is dict or type(item) is list]
    some: list[dict[str, Any]] = [one for one in inside if type(one) is dict]
    lists: list[list[Any]] = [one for one in inside if type(one) is list]
    while some or lists:
        levels += 1
        found += len(some) + len(lists)
        if some:
            members += sum(map(len, some))
        if found >= brackets or (is_shallow and members == colons):
            break
        items = _items(some, lists)
        kinds = set(map(type, items))
        is_alike = len(kinds) == 1
        some = [] if dict not in kinds else items if is_alike else [one for one in items if type(one) is dict]
        lists = (
            [] if list not in kinds else items if is_alike else [one for one in items if type(one) is list]
        )
    return levels, members


def _shortened(data: bytes, value: object) -> tuple[bytes, list[str]]:
    """Return the text without its long strings; or, if none can be cut out, the text and its long strings.

    Only strings on the first levels are looked for, and only among a few items: there are the long texts of a message.
    """
    shorter, strings = data, []
    inside: list[Any] = [value]
    while 0 < len(inside) <= _FEW:
        items: list[Any] = []
        for one in inside:
            kind = type(one)
            if kind is str and len(one) > LONG:
                shorter = _without(shorter, one)
                strings.append(one)
            elif kind is dict and len(one) <= _FEW:
                items += one.values()
            elif kind is list and len(one) <= _FEW:
                items += one
        inside = items
    return (shorter, []) if len(shorter) < len(data) else (data, strings)


def _without(data: bytes, string: str) -> bytes:
    """Return a valid text without the characters of a string, or unchanged if they are not easy to find.

    Where a quote and the first characters of the string are found, the quote does not end a string: none of `_UNCLEAR`
    follows it. So all characters up to the next quote are inside a string, this one or another. Backslashes before that
    quote may escape it.
    """
    if string[0] in _UNCLEAR:
        return data
    begin = data.find(b'"' + string[:_FEW].encode()) + 1
    end = data.find(b'"', begin)
    if not begin or end - begin < len(string):
        return data
    while data[end - 1] == _BACKSLASH:
        end -= 1
    return data[:begin] + data[end:]


def _items(objects: list[dict[str, Any]], arrays: list[list[Any]]) -> list[Any]:
    """Return the values inside some objects and arrays."""
    if not objects:
        return arrays[0] if len(arrays) == 1 else [*chain.from_iterable(arrays)]
    inside = objects[0].values() if len(objects) == 1 else chain.from_iterable(map(dict.values, objects))
    return [*inside, *chain.from_iterable(arrays)] if arrays else [*inside]


# These scans run in C and take a few milliseconds for the largest message; a loop in Python would take a second.


def _unescaped(data: bytes) -> bytes:
    """Return the text without escaped quotes, so that every quote begins or ends a string."""
    return data.replace(b"\\\\", b"").replace(b'\\"', b"") if _BACKSLASH in data else data


def _outside(unescaped: bytes) -> bytes:
    """Return the brackets, commas and colons of a text without escaped quotes that are not inside its strings.

    Of a string, only these characters and its quotes are kept at first. So most strings are an empty pair of quotes,
    which one replacement removes. Only if a quote is left, the text is cut at every quote.
    """
    kept = unescaped.translate(None, _NO_STRUCTURE)
    outside = kept.replace(b'""', b"")
    return outside if _QUOTE not in outside else b"".join(outside.split(b'"')[::2])


def _depth(outside: bytes) -> int:
    """Return how deep a text is nested, or more if its brackets do not match.

    Each round removes the innermost level.
    """
    left = outside.translate(_AS_BRACKETS, b",:")
    for depth in range(_ROUNDS):
        if not left:
            return depth
        left = left.replace(b"[]", b"")
    return _ROUNDS + max(accumulate(memoryview(left.translate(_STEPS)).cast("b")), default=0)


def _values(data: bytes) -> int:
    """Return an upper bound for the number of values: each but the first follows a comma or a bracket."""
    return 1 + len(data.translate(None, _NO_VALUE))


def _too_deep(max_depth: int) -> WireError:
    return WireError(INVALID_REQUEST, f"Invalid request: nested deeper than {max_depth} levels")


def cost(data: bytes, max_values: int) -> int:
    """Estimate the memory of a message, text and decoded values together, before it is decoded.

    A text with one character outside of Latin-1 takes two bytes for each of its characters, or four.
    """
    size = len(data)
    return size * MOST_BYTES if size <= SHORT else counted_cost(data, max_values)


def counted_cost(data: bytes, max_values: int) -> int:
    """As `cost`; of a short text too, the values are counted."""
    size = len(data)
    values = _values(data)
    if values > _MANY and len(data) <= _EXACT_BYTES:
        # Commas inside strings are not values, and a table in a string has many.
        values = _values(outside(data))
    if not data.isascii() or b"\\u" in data:
        size *= _WIDEST if _WIDE.search(data) else 2
    return len(data) + size + min(values, max_values) * VALUE_BYTES
