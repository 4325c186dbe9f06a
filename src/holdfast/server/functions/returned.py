"""Values that a function returns by mistake: JSON has no NaN, and an open file is not its content.

Both are errors of the author that would otherwise arrive at the client as `null`, or as a list of lines.
"""

import math
from typing import Any

from holdfast.errors import WrongResult


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
    """Raise WrongResult if a value is an open file, or a dict with one."""
    if isinstance(value, dict):
        for name, item in value.items():
            _refuse_file(item, f"{name}: ")
    else:
        _refuse_file(value, "")


def _refuse_file(value: object, place: str) -> None:
    if hasattr(value, "read") and hasattr(value, "__next__"):
        raise WrongResult(
            f"{place}{type(value).__name__} is an open file; return its content, as a text or as a File"
        )
