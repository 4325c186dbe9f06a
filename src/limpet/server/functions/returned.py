"""Values that a function returns by mistake: JSON has no NaN, and an open file is not its content.

Both are errors of the author that would otherwise arrive at the client as `null`, or as a list of lines.
"""

import math
from collections.abc import Iterator
from enum import Enum
from types import NoneType
from typing import Any, Final, cast

from limpet.errors import WrongResult


def check_finite(plain: Any, place: str = "") -> None:
    """Raise WrongResult if plain JSON data contain NaN or an infinity; the text names the field."""
    kind = type(plain)
    if kind is float and not math.isfinite(plain):
        field = f"{place.removeprefix('.')}: " if place else ""
        raise WrongResult(
            f"{field}{plain} is a float that JSON cannot express; return None, or raise a ToolError"
        )
    if kind is dict:
        for name, item in plain.items():
            if type(item) in NESTED:
                check_finite(item, f"{place}.{name}")
    elif kind is list:
        for index, item in enumerate(plain):
            if type(item) in NESTED:
                check_finite(item, f"{place}[{index}]")


NESTED = frozenset({float, dict, list})


def refuse_files(value: object) -> None:
    """Raise WrongResult if a value is an open file, or contains one at any depth."""
    if not _is_plain(value):
        for place, item in _unusual(value, ""):
            refuse_file(item, place)


def check_open(value: object) -> None:
    """Raise WrongResult if a value, where its type allows any, is or contains an open file, a NaN or an infinity."""
    if not _is_plain(value):
        for place, item in _unusual(value, ""):
            check_finite(item, place)
            refuse_file(item, place)


def refuse_file(value: object, place: str = "") -> None:
    """Raise WrongResult if a value is an open file."""
    if hasattr(value, "read") and hasattr(value, "__next__"):
        field = f"{place.removeprefix('.')}: " if place else ""
        raise WrongResult(
            f"{field}{type(value).__name__} is an open file; return its content, as a text or as a File"
        )


_PLAIN: Final = frozenset({str, int, bool, NoneType})


def _is_plain(value: object) -> bool:
    """True if a value consists of dicts, lists, texts and finite numbers only. This is the usual case, and quick."""
    kind = type(value)
    if kind is dict or kind is list:
        items: Any = value
        for item in items.values() if kind is dict else items:
            if type(item) not in _PLAIN and not _is_plain(item):
                return False
        return True
    return kind in _PLAIN or (kind is float and math.isfinite(cast("float", value)))


def _unusual(value: object, place: str) -> Iterator[tuple[str, object]]:
    """Yield the objects in a value, in dicts, lists and members of objects, each with its place."""
    if isinstance(value, dict):
        for name, item in value.items():
            if type(item) not in _PLAIN:
                yield from _unusual(item, f"{place}.{name}")
    elif isinstance(value, (list, tuple, set, frozenset)):
        for index, item in enumerate(value):
            if type(item) not in _PLAIN:
                yield from _unusual(item, f"{place}[{index}]")
    else:
        yield place, value
        if hasattr(value, "__dict__") and not isinstance(value, (type, Enum)):
            yield from _unusual(vars(value), place)
