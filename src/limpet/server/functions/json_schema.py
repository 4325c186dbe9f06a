"""A value against a JSON schema: the parts of JSON Schema that schemas of results use.

Unknown keywords allow every value.

For results whose type Python cannot check: a given `output_schema`, and limits (`ge=`, `max_length=`) of a dataclass,
which are checked for no object that the author has made.
"""

import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

LIMITS: Final[dict[str, tuple[Callable[[Any, Any], bool], str]]] = {
    "minimum": (lambda value, limit: value >= limit, "is below the minimum"),
    "maximum": (lambda value, limit: value <= limit, "is above the maximum"),
    "exclusiveMinimum": (lambda value, limit: value > limit, "is not above"),
    "exclusiveMaximum": (lambda value, limit: value < limit, "is not below"),
    "multipleOf": (lambda value, step: abs(value / step - round(value / step)) < _TINY, "is no multiple of"),
    "minLength": (lambda value, limit: len(value) >= limit, "is shorter than"),
    "maxLength": (lambda value, limit: len(value) <= limit, "is longer than"),
    "pattern": (lambda value, pattern: _matches(pattern, value), "does not match"),
    "minItems": (lambda value, limit: len(value) >= limit, "has fewer items than"),
    "maxItems": (lambda value, limit: len(value) <= limit, "has more items than"),
    "minProperties": (lambda value, limit: len(value) >= limit, "has fewer members than"),
    "maxProperties": (lambda value, limit: len(value) <= limit, "has more members than"),
}
"""By keyword: whether a value is within the limit, and the words for one that is not."""
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_TAKEN: Final = {
    (dict,): ("minProperties", "maxProperties"),
    (list,): ("minItems", "maxItems"),
    (str,): ("minLength", "maxLength", "pattern"),
    (int, float): ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""The limits of values of these types."""
_TINY: Final = 1e-9
_shorten = reprlib.Repr()
_shorten.maxstring = _shorten.maxother = 60


def misfits(
    value: Any, schema: Any, whole: Mapping[str, Any] | None = None, place: str = ""
) -> Iterator[str]:
    """Yield the parts of plain JSON data that do not fit a schema: the field and the fault.

    `whole` has the definitions.
    """
    if not isinstance(schema, Mapping):
        if schema is False:
            yield _said(place, "is not allowed")
        return
    whole = schema if whole is None else whole
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if (definition := whole.get("$defs", {}).get(name)) is not None:
        yield from misfits(value, definition, whole, place)
    if (kinds := schema.get("type")) is not None and not _is_of(value, kinds):
        named = kinds if isinstance(kinds, str) else " or ".join(kinds)
        yield _said(place, f"should be of type {named}; returned {_shorten.repr(value)}")
        return
    yield from _limits(value, schema, place)
    for key in ("anyOf", "oneOf"):
        choices = schema.get(key, ())
        if choices and all(any(misfits(value, one, whole)) for one in choices):
            yield _said(place, f"fits none of {len(choices)} types")
    for one in schema.get("allOf", ()):
        yield from misfits(value, one, whole, place)
    for inner, item, at in _parts(value, schema, place):
        yield from misfits(item, inner, whole, at)


def _limits(value: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    if "const" in schema and value != schema["const"]:
        yield _said(place, f"should be {schema['const']!r}; returned {_shorten.repr(value)}")
    if "enum" in schema and value not in schema["enum"]:
        known = ", ".join(map(repr, schema["enum"]))
        yield _said(place, f"should be one of {known}; returned {_shorten.repr(value)}")
    for types, keywords in _TAKEN.items():
        if isinstance(value, types) and not isinstance(value, bool):
            for keyword in keywords:
                fits, words = LIMITS[keyword]
                if keyword in schema and not fits(value, schema[keyword]):
                    yield _said(place, f"{_shorten.repr(value)} {words} {schema[keyword]}")
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                yield _said(f"{place}.{name}", "missing, but required")


def _parts(value: Any, schema: Mapping[str, Any], place: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield the schema, the value and the place of each item and member."""
    if isinstance(value, list):
        first: Sequence[Any] = schema.get("prefixItems", ())
        for index, item in enumerate(value):
            yield first[index] if index < len(first) else schema.get("items"), item, f"{place}[{index}]"
    elif isinstance(value, dict):
        known, more = schema.get("properties", {}), schema.get("additionalProperties")
        more = None if "patternProperties" in schema else more
        for name, item in value.items():
            yield known.get(name, more), item, f"{place}.{name}"


def _is_of(value: Any, kinds: str | Sequence[str]) -> bool:
    for kind in (kinds,) if isinstance(kinds, str) else kinds:
        if kind == "integer" and isinstance(value, float) and not value.is_integer():
            continue
        if isinstance(value, _TYPES.get(kind, object)) and (kind == "boolean" or not isinstance(value, bool)):
            return True
    return False


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return True  # A pattern of JavaScript that Python does not have.


def _said(place: str, fault: str) -> str:
    return f"{place.removeprefix('.')}: {fault}" if place else fault
